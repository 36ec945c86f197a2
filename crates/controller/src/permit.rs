//! Whether this replica may hand out work: it leads, and the CRDs can hold what it writes.
//!
//! The core asks nothing else. A leader whose CRDs are wrong keeps its lease, because the other replicas see the same CRDs.

use tokio::sync::watch;

use crate::crd_check::CrdState;
use crate::lease::Leadership;

/// Joins the two until one of them ends; from then on nothing may be written.
pub(crate) async fn join(
    mut leadership: watch::Receiver<Leadership>,
    mut crds: watch::Receiver<CrdState>,
    permit: watch::Sender<Leadership>,
) {
    loop {
        let joined = both(*leadership.borrow_and_update(), &crds.borrow_and_update());
        permit.send_if_modified(|before| std::mem::replace(before, joined) != joined);
        let changed = tokio::select! {
            changed = leadership.changed() => changed,
            changed = crds.changed() => changed,
        };
        if changed.is_err() {
            permit.send_replace(Leadership::Follower);
            return;
        }
    }
}

fn both(leadership: Leadership, crds: &CrdState) -> Leadership {
    match crds {
        CrdState::Fine => leadership,
        CrdState::Unknown | CrdState::Wrong(_) => Leadership::Follower,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::*;

    async fn becomes(permit: &mut watch::Receiver<Leadership>, wanted: Leadership) {
        let wait = permit.wait_for(|now| *now == wanted);
        timeout(Duration::from_secs(5), wait).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn only_a_leader_with_good_crds_may_write() {
        let (lease, leadership) = watch::channel(Leadership::Follower);
        let (crds, state) = watch::channel(CrdState::Unknown);
        let (sender, mut permit) = watch::channel(Leadership::Follower);
        let task = tokio::spawn(join(leadership, state, sender));
        let leader = |term| Leadership::Leader {
            term,
            may_write_until: Instant::now(),
        };
        let (first, second) = (leader(1), leader(2));

        crds.send_replace(CrdState::Fine);
        lease.send_replace(first);
        becomes(&mut permit, first).await;
        crds.send_replace(CrdState::Wrong("older".into()));
        becomes(&mut permit, Leadership::Follower).await;
        lease.send_replace(second);
        crds.send_replace(CrdState::Fine);
        becomes(&mut permit, second).await;
        drop(lease);
        task.await.unwrap();
        assert_eq!(*permit.borrow(), Leadership::Follower);
    }
}
