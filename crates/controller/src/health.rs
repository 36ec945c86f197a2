//! What the shell knows, as health and metrics. The core shows its own part.

use larder_telemetry::{Part, Registry};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use crate::crd_check::CrdState;
use crate::lease::Leadership;

/// Numbers of the shell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    leader: Gauge,
    crds_fine: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Whether this replica leads";
        registry.register("leader", help, metrics.leader.clone());
        let help = "Whether the CRDs can hold what this replica writes";
        registry.register("crds_fine", help, metrics.crds_fine.clone());
        metrics
    }
}

/// Shows whether this replica leads. A follower is as ready as a leader.
pub(crate) async fn show_leadership(mut leadership: watch::Receiver<Leadership>, metrics: Metrics) {
    loop {
        let leads = leadership.borrow_and_update().term().is_some();
        metrics.leader.set(i64::from(leads));
        if leadership.changed().await.is_err() {
            metrics.leader.set(0);
            return;
        }
    }
}

/// Shows what keeps the replica from the Lease.
pub(crate) async fn show_lease(mut trouble: watch::Receiver<Option<String>>, part: Part) {
    loop {
        match trouble.borrow_and_update().as_deref() {
            None => part.ready(),
            Some(why) => part.waiting(why),
        }
        if trouble.changed().await.is_err() {
            return;
        }
    }
}

/// Shows what is wrong with the CRDs.
pub(crate) async fn show_crds(mut crds: watch::Receiver<CrdState>, part: Part, metrics: Metrics) {
    loop {
        let state = crds.borrow_and_update().clone();
        metrics.crds_fine.set(i64::from(state == CrdState::Fine));
        match state {
            CrdState::Fine => part.ready(),
            CrdState::Unknown => part.waiting("not all CRDs were seen yet"),
            CrdState::Wrong(sentence) => part.waiting(sentence),
        }
        if crds.changed().await.is_err() {
            return;
        }
    }
}
