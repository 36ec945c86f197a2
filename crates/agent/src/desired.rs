//! Watches this node's NodeImage and says what is asked for.
//!
//! The watch ends by itself after a random time, so that a fleet that was started together does not come back together.
//! A watch that is silent for too long is given up and everything is read anew: KubeEdge's MetaServer forgets watches,
//! and a dead connection looks like a quiet one. Events may repeat or come late; an order that looks older than the one
//! that is obeyed counts only if a fresh read shows it too.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::WatchEvent;
use larder_api::NodeImage;
use larder_api::contract::{OrderId, Standing};
use larder_telemetry::Part;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::messages::{Given, ObservedNodeImage, Orders};
use crate::node_images::{ApiError, Listed, NodeImages};

/// Seconds after which the API server ends a watch: a random number of these.
const WATCH_SECONDS: std::ops::Range<u32> = 300..900;

/// Pauses after failures.
const PAUSES: std::ops::Range<Duration> = Duration::from_millis(500)..Duration::from_secs(30);

/// A watch that ends sooner was cut off. Once is no harm, as when its version was too old; a proxy that cuts off every
/// watch must not be asked without end.
const CUT_OFF: Duration = Duration::from_secs(1);

pub(crate) struct Desired {
    pub(crate) api: NodeImages,
    pub(crate) orders: watch::Sender<Orders>,
    pub(crate) observed: watch::Sender<Option<ObservedNodeImage>>,
    pub(crate) silence: Duration,
    pub(crate) health: Part,
}

/// How a watch ended in good order.
#[derive(PartialEq, Eq)]
enum End {
    /// Nothing was heard for so long that we gave it up.
    Silent,
    /// The server ended it.
    ByServer,
}

pub(crate) async fn run(mut desired: Desired, stop: CancellationToken) {
    let mut failures = 0_u32;
    let mut cut_off = 0_u32;
    loop {
        let began = Instant::now();
        let round = tokio::select! {
            () = stop.cancelled() => return,
            round = desired.round(&mut failures) => round,
        };
        let troubles = match round {
            Ok(end) if end == End::Silent || CUT_OFF <= began.elapsed() => {
                cut_off = 0;
                continue;
            }
            Ok(_) => {
                cut_off += 1;
                cut_off - 1
            }
            Err(error) => {
                failures += 1;
                desired.health.waiting(error.text());
                // Once per outage: the readiness page shows the rest.
                if failures == 1 {
                    tracing::warn!(error = error.text(), "the API is away; going on with the last orders");
                }
                failures
            }
        };
        if 0 < troubles {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause_after(troubles)) => {}
            }
        }
    }
}

fn pause_after(troubles: u32) -> Duration {
    let longest = PAUSES.end.min(PAUSES.start * 2_u32.saturating_pow(troubles.min(10)));
    rand::random_range(PAUSES.start / 2..=longest)
}

impl Desired {
    /// One list and the watch that follows it.
    async fn round(&mut self, failures: &mut u32) -> Result<End, ApiError> {
        let Listed {
            object,
            mut resource_version,
        } = self.api.list().await?;
        match object {
            Some(object) => self.take(&object).await?,
            // Offline, MetaServer answers with an empty list that has no version: it proves nothing.
            None if resource_version.is_empty() => {}
            None => self.withdraw(),
        }
        let seconds = rand::random_range(WATCH_SECONDS);
        let mut events = match self.api.watch(&resource_version, seconds).await {
            Err(error) if error.is_too_old() => return Ok(End::ByServer),
            watched => watched?,
        };
        // Not before: where lists are allowed and watches are not, it would come and go with every round.
        if *failures > 0 {
            tracing::info!("the API is back");
        }
        *failures = 0;
        self.health.ready();
        let silence = rand::random_range(self.silence / 2..=self.silence);
        while let Ok(event) = timeout(silence, events.next()).await {
            match event {
                None => return Ok(End::ByServer),
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => self.take(&object).await?,
                Some(Ok(WatchEvent::Deleted(_))) => self.confirm_deletion().await?,
                Some(Ok(WatchEvent::Bookmark(bookmark))) => resource_version = bookmark.metadata.resource_version,
                Some(Ok(WatchEvent::Error(status))) => {
                    let error = ApiError::Failed {
                        doing: "watch our NodeImage",
                        source: Box::new(kube::Error::Api(status)),
                    };
                    // Too old a version is no failure of the API: it is read anew.
                    return if error.is_too_old() {
                        Ok(End::ByServer)
                    } else {
                        Err(error)
                    };
                }
                Some(Err(error)) => return Err(error),
            }
        }
        tracing::debug!(resource_version, "the watch was silent for too long; reading anew");
        Ok(End::Silent)
    }

    async fn take(&mut self, object: &NodeImage) -> Result<(), ApiError> {
        if object.metadata.deletion_timestamp.is_some() {
            tracing::info!("our NodeImage is being deleted");
        }
        let Some(order) = OrderId::of(&object.metadata) else {
            return Ok(());
        };
        let standing = match &*self.orders.borrow() {
            Orders::Given(given) => given.order.standing_of(&order),
            Orders::Unknown | Orders::Withdrawn => Standing::AnotherObject,
        };
        match standing {
            Standing::Same => self.show(object),
            Standing::Newer | Standing::AnotherObject => self.obey(object, order),
            Standing::Older => {
                // A late event, or a restored etcd: only a fresh read can tell.
                if let Some(fresh) = self.api.get().await?
                    && let Some(order) = OrderId::of(&fresh.metadata)
                {
                    tracing::info!(generation = order.generation, "a fresh read settles which order holds");
                    self.obey(&fresh, order);
                }
            }
        }
        Ok(())
    }

    fn obey(&self, object: &NodeImage, order: OrderId) {
        self.show(object);
        let given = Given {
            order,
            spec: object.spec.clone().into(),
            said: object.status.clone().map(Into::into),
        };
        self.orders.send_if_modified(|orders| {
            let same = matches!(orders, Orders::Given(known) if known.order == given.order && known.spec == given.spec);
            if !same {
                *orders = Orders::Given(given);
            }
            !same
        });
    }

    fn show(&self, object: &NodeImage) {
        self.observed.send_replace(Some(observe(object)));
    }

    /// Events of a deletion may be late, too: the object may be there again.
    async fn confirm_deletion(&mut self) -> Result<(), ApiError> {
        let Listed {
            object,
            resource_version,
        } = self.api.list().await?;
        match object {
            Some(object) => self.take(&object).await?,
            None if resource_version.is_empty() => {}
            None => self.withdraw(),
        }
        Ok(())
    }

    fn withdraw(&self) {
        self.observed.send_replace(None);
        self.orders.send_if_modified(|orders| {
            let news = matches!(orders, Orders::Given(_));
            if news {
                tracing::info!("our NodeImage is gone; all orders are withdrawn");
                *orders = Orders::Withdrawn;
            }
            news
        });
    }
}

/// What the API server adds with a write: who wrote which fields, a longer version.
const ADDED_BY_A_WRITE: usize = 4 * 1024;

/// What the report needs to know of an object.
pub(crate) fn observe(object: &NodeImage) -> ObservedNodeImage {
    let bytes = |value: serde_json::Result<Vec<u8>>| value.map_or(0, |bytes| bytes.len());
    let status = bytes(serde_json::to_vec(&object.status));
    let rest = bytes(serde_json::to_vec(object)).saturating_sub(status);
    ObservedNodeImage {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
        rest_bytes: rest + ADDED_BY_A_WRITE,
        status: object.status.clone(),
    }
}

#[cfg(test)]
mod tests;
