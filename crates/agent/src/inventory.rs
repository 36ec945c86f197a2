//! Connects to the runtime, and keeps a snapshot of what it holds.
//!
//! A snapshot is taken at the start, after everything that we change, when the runtime reports a change, and
//! every few minutes in case it reported none. A runtime that goes away is waited for.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use larder_model::ByteSize;
use larder_planner::node::{NodeInventory, OwnName, room_before_clean_up};
use larder_runtime::detect::detect;
use larder_runtime::{Fetching, ImageEvents, ImageRuntime, Purpose, RuntimeError, Support, connect_with};
use larder_telemetry::Part;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::RuntimeSource;
use crate::clock::Clock;
use crate::messages::RuntimeSnapshot;
use crate::runtime_handle::RuntimeHandle;

/// A runtime that deletes ten images says so ten times.
const GATHER: Duration = Duration::from_millis(200);

/// A runtime that never stops talking is looked at all the same.
const GATHER_MAX: Duration = Duration::from_secs(2);

/// Longest pause between two attempts to reach the runtime.
const PAUSE_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Inventory {
    pub(crate) source: RuntimeSource,
    pub(crate) runtime_handle: RuntimeHandle,
    pub(crate) snapshot: watch::Sender<Option<RuntimeSnapshot>>,
    pub(crate) refresh: Arc<Notify>,
    pub(crate) clock: Clock,
    pub(crate) pin_share: u8,
    pub(crate) gc_threshold: u8,
    /// A new snapshot after this time, or up to twice of it, in any case.
    pub(crate) inspect_every: Duration,
    pub(crate) fetching: Option<Fetching>,
    pub(crate) health: Part,
}

pub(crate) async fn run(inventory: Inventory, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = inventory.follow() => {}
    }
}

impl Inventory {
    async fn follow(mut self) {
        let runtime = self.reach().await;
        self.runtime_handle.fill(Arc::clone(&runtime));
        let mut away = Pauses::default();
        loop {
            match self.watch_over(&*runtime, &mut away).await {
                // Its events ended: it is going away, or threw us out for being slow.
                Ok(()) => sleep(GATHER).await,
                Err(error) => {
                    if away.first() {
                        tracing::warn!(error = error.text(), "the container runtime is away; waiting for it");
                    }
                    self.health.waiting(error.text());
                    // Nothing is decided by a snapshot of a runtime that is away.
                    self.snapshot.send_if_modified(|snapshot| snapshot.take().is_some());
                    away.pause().await;
                }
            }
        }
    }

    /// Waits until a runtime answers for the first time.
    async fn reach(&mut self) -> Arc<dyn ImageRuntime> {
        let place = match &self.source {
            RuntimeSource::Given(runtime) => return Arc::clone(runtime),
            RuntimeSource::Found(place) => place.clone(),
        };
        let mut pauses = Pauses::default();
        loop {
            let endpoint = match &place.endpoint {
                Some(endpoint) => Ok(endpoint.clone()),
                None => detect(&place.host_root)
                    .await
                    .map(|found| found.endpoint)
                    .map_err(|none| none.to_string()),
            };
            let reached = match endpoint {
                Ok(endpoint) => connect_with(&endpoint, &place.host_root, self.fetching.clone())
                    .await
                    .map_err(|error| error.text()),
                Err(none) => Err(none),
            };
            match reached {
                Ok(runtime) => return runtime,
                Err(why) => {
                    if pauses.first() {
                        tracing::warn!(why, "no container runtime answers yet; waiting for it");
                    }
                    self.health.waiting(why);
                }
            }
            pauses.pause().await;
        }
    }

    /// Takes snapshots until the runtime fails or its events end.
    async fn watch_over(&self, runtime: &dyn ImageRuntime, away: &mut Pauses) -> Result<(), RuntimeError> {
        // Listening begins before looking, so that nothing falls in between.
        let capabilities = runtime.capabilities().await?;
        let mut events: Option<ImageEvents> = match capabilities.events {
            Support::Yes => Some(runtime.events().await?),
            Support::No(_) => None,
        };
        loop {
            let snapshot = self.take(runtime).await?;
            if away.over() {
                tracing::info!(runtime = snapshot.runtime, "the container runtime answers");
            }
            self.health.ready();
            self.snapshot.send_replace(Some(snapshot));
            let regularly = rand::random_range(self.inspect_every..self.inspect_every * 2);
            tokio::select! {
                () = self.refresh.notified() => {}
                () = sleep(regularly) => {}
                open = next(&mut events) => if !open {
                    return Ok(());
                },
            }
            // More may follow at once; a stream that ends here is noticed in the next round.
            let gather = async { while timeout(GATHER, next(&mut events)).await == Ok(true) {} };
            timeout(GATHER_MAX, gather).await.ok();
        }
    }

    async fn take(&self, runtime: &dyn ImageRuntime) -> Result<RuntimeSnapshot, RuntimeError> {
        let taken = self.clock.now();
        let version = runtime.version().await?;
        let capabilities = runtime.capabilities().await?;
        let own = runtime.own_references().await?;
        let images = runtime.list().await?;
        let image_fs = match runtime.image_fs().await {
            Ok(fs) => Some((fs.capacity, fs.free)),
            Err(error) => {
                tracing::debug!(error = error.text(), "the image filesystem cannot be measured");
                None
            }
        };
        let names = images.iter().flat_map(|image| {
            let names = image.tags.iter().chain(&image.digests);
            names.map(|name| (name.clone(), (image.id.clone(), image.size)))
        });
        let own = own.into_iter().map(|own| OwnName {
            image: own.image,
            alias: match own.purpose {
                Purpose::Pin => None,
                Purpose::Alias(name) => Some(name),
            },
            digest: own.digest.to_string(),
        });
        let room = |(capacity, free)| room_before_clean_up(capacity, free, self.gc_threshold);
        let budget = |(capacity, _): (ByteSize, ByteSize)| ByteSize(capacity.0 / 100 * u64::from(self.pin_share));
        Ok(RuntimeSnapshot {
            runtime: version.to_string(),
            inventory: NodeInventory {
                taken,
                names: names.collect(),
                own: own.collect(),
                pin_budget: image_fs.map(budget),
                room: image_fs.map(room),
                no_pin: capabilities.pin.why_not().map(str::to_owned),
                no_alias: capabilities.alias.why_not().map(str::to_owned),
            },
            image_fs,
        })
    }
}

/// The next event; false when there will be none. Without events it never ends.
async fn next(events: &mut Option<ImageEvents>) -> bool {
    match events {
        Some(events) => events.next().await.is_some(),
        None => std::future::pending().await,
    }
}

/// Growing pauses, and whether this is the first of an outage.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    fn first(&self) -> bool {
        self.0 == 0
    }

    fn over(&mut self) -> bool {
        std::mem::take(&mut self.0) > 0
    }

    async fn pause(&mut self) {
        self.0 += 1;
        let longest = (Duration::from_millis(250) * 2_u32.saturating_pow(self.0.min(8))).min(PAUSE_MAX);
        sleep(rand::random_range(longest / 2..=longest)).await;
    }
}
