//! Drives the scheduler: passes events to it, carries out the steps that it returns, publishes and saves its state.
//!
//! One task owns the scheduler. Pulls, lookups and pin operations run beside it as tasks of their own, which end when they
//! are cancelled and when the agent stops.

mod steps;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use larder_model::{ByteSize, Reason};
use larder_planner::node::{Ended, EntryState, Found, Key, NodeScheduler, NodeStep, Note, PinOp, entries};
use larder_registry::RegistryClient;
use larder_registry::client::Settings as RegistrySettings;
use larder_registry::fetch::{FetchSettings, Fetcher};
use larder_registry::hosts::Hosts;
use larder_runtime::{FetchOwner, Fetching};
use larder_telemetry::Part;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use crate::RuntimeSource;
use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::inventory::Inventory;
use crate::ledger::{Ledger, Memory};
use crate::messages::{DesiredStatus, Orders, RuntimeSnapshot};
use crate::metrics::{Fetched, Metrics};
use crate::pull::{PullProgress, Puller};
use crate::runtime_handle::RuntimeHandle;
use crate::settings::{FetchMode, Settings};

/// Capacity of the queue of progress reports. A report that does not fit is dropped; the next one has newer numbers.
const PROGRESS_QUEUE: usize = 64;

/// A state with a deadline is saved at least this often (see the ledger).
const SAVE_EVERY: Duration = Duration::from_mins(1);

pub(crate) struct Tools {
    pub(crate) settings: Arc<Settings>,
    pub(crate) runtime_handle: RuntimeHandle,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) ledger: Ledger,
    pub(crate) registry: RegistryClient,
    pub(crate) refresh: Arc<Notify>,
    /// Whether this is the agent of the node, whose orders say what the runtime's store should keep.
    pub(crate) owns_runtime: bool,
}

/// Access to registries, as the runtime has it.
pub(crate) fn registry_client(settings: &Settings, credentials: &Credentials) -> RegistryClient {
    let hosts = settings.hosts_dir.clone().map(Hosts::in_dir).unwrap_or_default();
    RegistryClient::new(RegistrySettings {
        hosts,
        mirror_logins: credentials.keyring().clone(),
        ..RegistrySettings::default()
    })
}

impl Tools {
    fn fetching(&self) -> Option<Fetching> {
        let settings = FetchSettings {
            connections: self.settings.connections_per_pull,
            max_bandwidth: self.settings.max_bandwidth,
            ..FetchSettings::default()
        };
        (self.settings.fetch == FetchMode::Auto)
            .then(|| Fetching::new(&self.registry, Fetcher::new(settings), FetchOwner::Agent))
    }

    /// The task that keeps an inventory of the runtime, for a driver with these tools.
    pub(crate) fn inventory(
        &self,
        source: RuntimeSource,
        snapshot: watch::Sender<Option<RuntimeSnapshot>>,
        health: Part,
    ) -> Inventory {
        Inventory {
            source,
            runtime_handle: self.runtime_handle.clone(),
            snapshot,
            refresh: Arc::clone(&self.refresh),
            clock: self.clock.clone(),
            pin_share: self.settings.pin_share,
            gc_threshold: self.settings.gc_threshold,
            inspect_every: self.settings.inspect_every,
            fetching: self.fetching(),
            health,
        }
    }
}

pub(crate) struct Channels {
    pub(crate) orders: watch::Receiver<Orders>,
    pub(crate) snapshot: watch::Receiver<Option<RuntimeSnapshot>>,
    pub(crate) desired_status: watch::Sender<Option<DesiredStatus>>,
}

/// The result of a task that ran beside the scheduler.
enum TaskResult {
    Looked(u64, Found),
    Ended(u64, Key, Ended, Duration),
    PinOp(PinOp, Result<(), Note>),
    /// Whether the runtime did it.
    DroppedUnfinished(bool),
}

/// What a task was started for; needed when it panics and returns no result.
enum TaskPurpose {
    Run(u64),
    PinOp(PinOp),
    DropUnfinished,
}

pub(crate) struct Driver {
    scheduler: NodeScheduler,
    orders: Orders,
    tools: Tools,
    channels: Channels,
    puller: Puller,
    progress: mpsc::Receiver<PullProgress>,
    tasks: JoinSet<TaskResult>,
    purposes: HashMap<Id, TaskPurpose>,
    cancel_tokens: BTreeMap<u64, CancellationToken>,
    fetched: Fetched,
    /// Whether there may be fetched layers of images that are not to be pulled any more. At the start an earlier process may have
    /// left some.
    has_unfinished: bool,
    /// Whether the runtime could not throw them away. It is asked again once it has answered something else.
    has_kept_unfinished: bool,
    runtime: Option<String>,
    image_fs: Option<(ByteSize, ByteSize)>,
}

impl Driver {
    pub(crate) fn new(tools: Tools, channels: Channels, memory: Memory) -> Self {
        let (sender, progress) = mpsc::channel(PROGRESS_QUEUE);
        let puller = Puller {
            node: tools.settings.node.clone(),
            runtime_handle: tools.runtime_handle.clone(),
            credentials: Arc::clone(&tools.credentials),
            registry: tools.registry.clone(),
            metrics: tools.metrics.clone(),
            gc_threshold: tools.settings.gc_threshold,
            accept_foreign_images: tools.settings.accept_foreign_images,
            binfmt_dir: tools.settings.binfmt_dir.clone(),
            promises: Arc::new(Mutex::new(BTreeMap::new())),
            progress: sender,
        };
        let mut scheduler = NodeScheduler::new(tools.settings.max_pulls);
        scheduler.resume(memory.states);
        let mut driver = Self {
            scheduler,
            orders: Orders::Unknown,
            tools,
            channels,
            puller,
            progress,
            tasks: JoinSet::new(),
            purposes: HashMap::new(),
            cancel_tokens: BTreeMap::new(),
            fetched: Fetched::default(),
            has_unfinished: true,
            has_kept_unfinished: false,
            runtime: None,
            image_fs: None,
        };
        // The ledger's orders are obeyed until the API shows others.
        driver.take_orders();
        driver
    }

    fn take_orders(&mut self) {
        let now = self.tools.clock.now();
        self.orders = self.channels.orders.borrow_and_update().clone();
        self.has_unfinished = true;
        match &self.orders {
            Orders::Unknown => {}
            Orders::Withdrawn => self.scheduler.withdraw(),
            Orders::Given(given) => {
                tracing::debug!(
                    uid = given.order.uid,
                    generation = given.order.generation,
                    "taking up orders"
                );
                self.scheduler
                    .take_orders(entries(&given.spec), given.said.as_deref(), now);
            }
        }
    }

    fn take_snapshot(&mut self) {
        let Some(snapshot) = self.channels.snapshot.borrow_and_update().clone() else {
            return;
        };
        let now = self.tools.clock.now();
        self.runtime = Some(snapshot.runtime);
        self.image_fs = snapshot.image_fs;
        // A snapshot means that the runtime answers.
        self.has_unfinished |= std::mem::take(&mut self.has_kept_unfinished);
        self.scheduler.wake(now, Reason::RuntimeDown);
        self.scheduler.take_inventory(snapshot.inventory, now);
    }

    fn take_progress(&mut self, progress: PullProgress) {
        // The last look at a pull may be taken up after its end.
        if !self.cancel_tokens.contains_key(&progress.run) {
            return;
        }
        let now = self.tools.clock.now();
        self.scheduler.registry_asks(progress.run, progress.wait, now);
        if let Some(bytes) = progress.bytes {
            let new = self.fetched.looked(progress.run, bytes.done.0);
            self.tools.metrics.bytes.inc_by(new);
            self.scheduler.progress(progress.run, bytes.done.0, bytes.total.0, now);
        }
    }

    fn show(&self) {
        let metrics = &self.tools.metrics;
        metrics
            .running
            .set(i64::try_from(self.scheduler.pulling()).unwrap_or(i64::MAX));
        metrics
            .queued
            .set(i64::try_from(self.scheduler.queued()).unwrap_or(i64::MAX));
        if let Orders::Given(given) = &self.orders {
            let wanted = DesiredStatus {
                uid: given.order.uid.clone(),
                generation: given.order.generation,
                entries: self.scheduler.status(),
                runtime: self.runtime.clone(),
                image_fs: self.image_fs,
            };
            self.channels.desired_status.send_if_modified(|shown| {
                let news = shown.as_ref() != Some(&wanted);
                if news {
                    *shown = Some(wanted);
                }
                news
            });
        } else {
            self.channels
                .desired_status
                .send_if_modified(|shown| shown.take().is_some());
        }
    }

    async fn save(&mut self) {
        let Tools { ledger, clock, .. } = &mut self.tools;
        ledger.save(&self.orders, self.scheduler.states(), clock).await;
    }
}

/// Runs until `stop`. Running pulls are cancelled then, and started again by the next process.
pub(crate) async fn run(mut driver: Driver, stop: CancellationToken) {
    let mut only_bytes = false;
    loop {
        let now = driver.tools.clock.now();
        let steps = driver.scheduler.decide(now, &driver.tools.clock.wall());
        only_bytes &= steps.is_empty();
        for step in steps {
            driver.start(step);
        }
        // Nothing is shown that a kill would make us forget: what the API knows as done is not pulled again. Bytes are not
        // worth saving.
        if !std::mem::take(&mut only_bytes) {
            driver.save().await;
        }
        driver.show();
        driver.drop_unfinished();
        let wake = driver.wake_at(now);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(ended) = driver.tasks.join_next_with_id() => driver.take_end(ended),
            Ok(()) = driver.channels.orders.changed() => driver.take_orders(),
            Ok(()) = driver.channels.snapshot.changed() => driver.take_snapshot(),
            Some(progress) = driver.progress.recv() => {
                only_bytes = true;
                driver.take_progress(progress);
            }
            () = sleep_until(driver.tools.clock.instant(wake)) => {}
        }
        // Whatever came at the same time is decided together.
        while let Some(ended) = driver.tasks.try_join_next_with_id() {
            only_bytes = false;
            driver.take_end(ended);
        }
    }
}

impl Driver {
    fn wake_at(&self, now: Duration) -> Duration {
        let unfinished = self
            .scheduler
            .states()
            .values()
            .any(|state| !EntryState::is_done(state));
        let save = if unfinished {
            SAVE_EVERY
        } else {
            Duration::from_hours(1)
        };
        let save = now + save;
        self.scheduler.wake_at().map_or(save, |wake| wake.min(save))
    }

    fn take_end(&mut self, ended: Result<(Id, TaskResult), JoinError>) {
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        match ended {
            Ok((id, done)) => {
                self.purposes.remove(&id);
                match done {
                    TaskResult::Looked(run, found) => self.looked(run, found),
                    TaskResult::Ended(run, key, end, took) => self.ended(run, &key, end, took),
                    TaskResult::PinOp(pin_op, end) => {
                        self.scheduler.pin_op_ended(&pin_op, end, now);
                        self.tools.refresh.notify_one();
                    }
                    TaskResult::DroppedUnfinished(is_done) => self.has_kept_unfinished |= !is_done,
                }
            }
            Err(error) => {
                tracing::error!(%error, "a task of the agent panicked; this is a bug");
                let words = || "the agent failed at this; its log has the details".to_owned();
                match self.purposes.remove(&error.id()) {
                    Some(TaskPurpose::Run(run)) => {
                        self.cancel_tokens.remove(&run);
                        self.scheduler
                            .looked(run, Found::Unknown(Reason::Internal, words()), now, &wall);
                        let end = Ended::Failed {
                            reason: Reason::Internal,
                            words: words(),
                            retry_after: None,
                        };
                        self.scheduler.ended(run, end, now, &wall);
                    }
                    Some(TaskPurpose::PinOp(pin_op)) => {
                        let note = Note {
                            reason: Some(Reason::Internal),
                            message: words(),
                        };
                        self.scheduler.pin_op_ended(&pin_op, Err(note), now);
                    }
                    Some(TaskPurpose::DropUnfinished) => self.has_kept_unfinished = true,
                    None => {}
                }
            }
        }
    }

    fn start(&mut self, step: NodeStep) {
        match step {
            NodeStep::Cancel { run } => {
                if let Some(token) = self.cancel_tokens.get(&run) {
                    token.cancel();
                }
            }
            NodeStep::Look { run, key } => self.start_look(run, &key),
            NodeStep::Pull {
                run,
                key,
                attempt,
                limit,
            } => self.start_pull(run, &key, attempt, limit),
            NodeStep::DryRun { run, key, limit } => self.start_dry_run(run, &key, limit),
            NodeStep::PinOp(pin_op) => self.start_pin_op(pin_op),
        }
    }
}
