//! How many nodes are where, kept up to date as nodes move.

use std::collections::BTreeMap;

use larder_model::Reason;

use crate::node_state::{Bucket, Derived};
use crate::view::NodeView;

/// One node that is done counts as this much work.
pub(crate) const WHOLE: u64 = 1_000;

/// How many nodes are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Selected nodes.
    pub desired: usize,
    /// Of these, the ones that have the order and no result.
    pub active: usize,
    /// Of these, the ones that have the image.
    pub succeeded: usize,
    /// Of those that succeeded, the ones from which somebody removed the image.
    pub lost: usize,
    /// Of these, the ones that could not get it.
    pub failed: usize,
    /// Slots that are taken. A node that left the selection holds its slot until its order is gone.
    pub slots: usize,
    /// How many nodes failed or wait, for each reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// Bytes of the image on all selected nodes, as far as they are known.
    pub bytes_total: i64,
    /// Bytes of these that are there.
    pub bytes_done: i64,
    /// Work done, with [`WHOLE`] for each node.
    pub(crate) work: u64,
}

/// What one node adds to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    total: i64,
    done: i64,
    work: u64,
    lost: bool,
}

impl Load {
    pub(crate) fn of(view: &NodeView, bucket: Bucket) -> Self {
        let claim = view.claim.filter(|_| bucket != Bucket::Outside);
        let total = claim.and_then(|claim| claim.bytes_total).unwrap_or(0).max(0);
        let reported = claim.and_then(|claim| claim.bytes_done).unwrap_or(0).clamp(0, total);
        let share =
            || u64::try_from(i128::from(reported) * i128::from(WHOLE - 1) / i128::from(total.max(1))).unwrap_or(0);
        match bucket {
            Bucket::Succeeded => Self {
                total,
                done: total,
                work: WHOLE,
                lost: claim.is_some_and(|claim| claim.loss.is_some()),
            },
            Bucket::Failed(_) => Self {
                total,
                done: reported,
                work: WHOLE,
                lost: false,
            },
            Bucket::Active | Bucket::Waiting(_) => Self {
                total,
                done: reported,
                work: share(),
                lost: false,
            },
            Bucket::Outside => Self::default(),
        }
    }
}

impl Counts {
    /// Nodes that are neither done nor at work.
    pub fn waiting(&self) -> usize {
        self.desired.saturating_sub(self.active + self.succeeded + self.failed)
    }

    /// Whether nodes wait, and none is at work.
    pub(crate) fn only_wait(&self) -> bool {
        self.active == 0 && 0 < self.waiting()
    }

    /// Nodes that succeeded or failed.
    pub fn finished(&self) -> usize {
        self.succeeded + self.failed
    }

    /// Work that is left, with [`WHOLE`] for each node.
    pub(crate) fn work_left(&self) -> u64 {
        (self.desired as u64 * WHOLE).saturating_sub(self.work)
    }

    pub(crate) fn enter(&mut self, derived: Derived, load: Load) {
        if let Some(counter) = self.counter(derived.bucket) {
            *counter += 1;
        }
        self.desired += usize::from(derived.bucket != Bucket::Outside);
        self.slots += usize::from(derived.slot);
        if let Some(reason) = derived.bucket.reason() {
            *self.reasons.entry(reason).or_default() += 1;
        }
        self.bytes_total = self.bytes_total.saturating_add(load.total);
        self.bytes_done = self.bytes_done.saturating_add(load.done);
        self.work += load.work;
        self.lost += usize::from(load.lost);
    }

    pub(crate) fn leave(&mut self, derived: Derived, load: Load) {
        if let Some(counter) = self.counter(derived.bucket) {
            *counter -= 1;
        }
        self.desired -= usize::from(derived.bucket != Bucket::Outside);
        self.slots -= usize::from(derived.slot);
        if let Some(reason) = derived.bucket.reason()
            && let Some(count) = self.reasons.get_mut(&reason)
        {
            *count -= 1;
            if *count == 0 {
                self.reasons.remove(&reason);
            }
        }
        self.bytes_total -= load.total;
        self.bytes_done -= load.done;
        self.work -= load.work;
        self.lost -= usize::from(load.lost);
    }

    fn counter(&mut self, bucket: Bucket) -> Option<&mut usize> {
        match bucket {
            Bucket::Active => Some(&mut self.active),
            Bucket::Succeeded => Some(&mut self.succeeded),
            Bucket::Failed(_) => Some(&mut self.failed),
            Bucket::Waiting(_) | Bucket::Outside => None,
        }
    }
}
