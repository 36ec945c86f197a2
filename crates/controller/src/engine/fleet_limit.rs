//! The limit on pulls of the whole fleet, and the jobs that wait for it. Which job is next is decided in
//! [`larder_planner::fleet`]; this component counts slots and keeps the jobs that wait in order.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use larder_planner::fleet::{self, Share};

use super::JobId;

/// The slots of all running jobs.
#[derive(Debug, Default)]
pub(super) struct FleetLimit {
    max: Option<NonZeroUsize>,
    shares: BTreeMap<JobId, Share>,
    /// Slots that all running jobs hold together.
    taken: usize,
    /// Jobs that would hand out more if the limit allowed it, in the order in which they are served.
    waiting: BTreeSet<(Share, JobId)>,
    /// Hand-outs so far.
    served: u64,
}

impl FleetLimit {
    pub(super) fn new(max: Option<NonZeroUsize>) -> Self {
        Self { max, ..Self::default() }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.max.is_some()
    }

    /// Slots that all running jobs hold together.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Takes in a job that starts.
    pub(super) fn add(&mut self, job: JobId) {
        let share = Share::of_newcomer(self.served);
        self.shares.entry(job).or_insert(share);
    }

    /// Forgets a job that ended, and its slots.
    pub(super) fn remove(&mut self, job: JobId) {
        self.stop_waiting(job);
        if let Some(share) = self.shares.remove(&job) {
            self.taken -= share.slots;
        }
    }

    pub(super) fn clear(&mut self) {
        self.shares.clear();
        self.waiting.clear();
        self.taken = 0;
    }

    /// Takes in how many slots a job holds.
    pub(super) fn set_slots(&mut self, job: JobId, slots: usize) {
        let Some(mut share) = self.shares.get(&job).copied() else {
            return;
        };
        let waits = self.stop_waiting(job);
        self.taken = self.taken - share.slots + slots;
        share.slots = slots;
        self.shares.insert(job, share);
        if waits {
            self.waiting.insert((share, job));
        }
    }

    /// How many more slots a job may take now.
    pub(super) fn allowance(&self, job: JobId) -> usize {
        let (Some(max), Some(own)) = (self.max, self.shares.get(&job)) else {
            return usize::MAX;
        };
        let next = self.waiting.iter().find(|(_, other)| *other != job);
        fleet::allowance(
            max.get().saturating_sub(self.taken),
            *own,
            next.map(|(share, _)| *share),
        )
    }

    /// Takes in that a job was given slots, and whether it wants more than the limit allows.
    pub(super) fn served(&mut self, job: JobId, was_given: bool, wants_more: bool) {
        self.stop_waiting(job);
        self.served += u64::from(was_given);
        let Some(share) = self.shares.get_mut(&job) else {
            return;
        };
        if was_given {
            share.served = self.served;
        }
        if wants_more && self.max.is_some() {
            self.waiting.insert((*share, job));
        }
    }

    /// The job does not wait for the limit. True if it did.
    pub(super) fn stop_waiting(&mut self, job: JobId) -> bool {
        let share = self.shares.get(&job);
        share.is_some_and(|share| self.waiting.remove(&(*share, job)))
    }

    /// The job that is served next, if a slot is free.
    pub(super) fn next(&self) -> Option<JobId> {
        let free = self.max.is_some_and(|max| self.taken < max.get());
        self.waiting.first().filter(|_| free).map(|(_, job)| *job)
    }

    #[cfg(test)]
    pub(super) fn slots(&self, job: JobId) -> usize {
        self.shares.get(&job).map_or(0, |share| share.slots)
    }
}
