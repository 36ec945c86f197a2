//! The limit on pulls of the whole fleet: the slots of all running jobs, and the jobs that wait for one, in order. What is
//! asked of it costs as much as finding a job among those that wait, however many they are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use super::{Share, allowance};
use crate::priority::Bypasses;

/// The slots of all running jobs, which are called by `J`.
#[derive(Debug)]
pub struct FleetLimit<J> {
    max: Option<NonZeroUsize>,
    shares: BTreeMap<J, Share>,
    /// Slots that all running jobs hold together.
    taken: usize,
    /// Jobs that would hand out more if the limit allowed it, in the order in which they are served.
    waiting: BTreeSet<(Share, J)>,
    /// The same jobs by priority; of each, the one that was served longest ago comes first.
    by_wait: BTreeMap<i32, BTreeSet<(u64, J)>>,
    bypasses: Bypasses,
    /// Hand-outs so far.
    served: u64,
}

impl<J: Copy + Ord> FleetLimit<J> {
    /// At most so many slots for all jobs together; as many as they want if there is no limit.
    pub fn new(max: Option<NonZeroUsize>) -> Self {
        Self {
            max,
            shares: BTreeMap::new(),
            taken: 0,
            waiting: BTreeSet::new(),
            by_wait: BTreeMap::new(),
            bypasses: Bypasses::default(),
            served: 0,
        }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.max.is_some()
    }

    /// Slots that all running jobs hold together.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Slots that a job holds.
    pub fn slots(&self, job: J) -> usize {
        self.shares.get(&job).map_or(0, |share| share.slots)
    }

    /// Takes in a job that starts, or that has another priority now.
    pub fn add(&mut self, job: J, priority: i32) {
        let newcomer = Share::of_newcomer(priority, self.served);
        self.shares.entry(job).or_insert(newcomer);
        self.change(job, |share| share.priority = Reverse(priority));
    }

    /// Forgets a job that ended, and its slots.
    pub fn remove(&mut self, job: J) {
        self.stop_waiting(job);
        if let Some(share) = self.shares.remove(&job) {
            self.taken -= share.slots;
        }
    }

    /// Forgets all jobs.
    pub fn clear(&mut self) {
        self.shares.clear();
        self.waiting.clear();
        self.by_wait.clear();
        self.bypasses.reset();
        self.taken = 0;
    }

    /// Takes in how many slots a job holds.
    pub fn set_slots(&mut self, job: J, slots: usize) {
        self.taken -= self.slots(job);
        self.change(job, |share| share.slots = slots);
        self.taken += self.slots(job);
    }

    fn change(&mut self, job: J, change: impl FnOnce(&mut Share)) {
        let waits = self.stop_waiting(job);
        if let Some(share) = self.shares.get_mut(&job) {
            change(share);
        }
        if waits {
            self.wait(job);
        }
    }

    /// How many more slots a job may take now.
    pub fn allowance(&self, job: J) -> usize {
        let (Some(max), Some(own)) = (self.max, self.shares.get(&job).copied()) else {
            return usize::MAX;
        };
        let free = max.get().saturating_sub(self.taken);
        let next = self.waiting.iter().find(|(_, other)| *other != job);
        let next = next.map(|(share, _)| *share);
        let fair = allowance(free, own, next);
        let longest_wait = |below: i32| {
            let own_wait = (own.priority.0 < below).then_some((own.served, job));
            self.longest_wait_below(below).into_iter().chain(own_wait).min()
        };
        if let Some((_, passed_over)) = self.bypasses.next_below().and_then(longest_wait) {
            return free.min(usize::from(passed_over == job));
        }
        let highest = next.map_or(own.priority, |next| own.priority.min(next.priority));
        match longest_wait(highest.0) {
            Some(_) => fair.min(self.bypasses.left().max(1)),
            None => fair,
        }
    }

    /// Takes in how many slots a job was given, and whether it wants more than the limit allows.
    pub fn served(&mut self, job: J, given: usize, wants_more: bool) {
        self.stop_waiting(job);
        let Some(share) = self.shares.get_mut(&job) else {
            return;
        };
        if 0 < given {
            self.served += 1;
            share.served = self.served;
            let Reverse(priority) = share.priority;
            if self.bypasses.next_below().is_some_and(|below| priority < below) {
                self.bypasses.reset();
            } else if self.longest_wait_below(priority).is_some() {
                self.bypasses.pass(given, priority);
            }
        }
        if wants_more && self.max.is_some() {
            self.wait(job);
        }
    }

    fn wait(&mut self, job: J) {
        if let Some(share) = self.shares.get(&job) {
            self.waiting.insert((*share, job));
            let same = self.by_wait.entry(share.priority.0).or_default();
            same.insert((share.served, job));
        }
    }

    /// The job does not wait for the limit. True if it did.
    pub fn stop_waiting(&mut self, job: J) -> bool {
        let Some(share) = self.shares.get(&job) else {
            return false;
        };
        let priority = share.priority.0;
        if let Some(same) = self.by_wait.get_mut(&priority) {
            same.remove(&(share.served, job));
            if same.is_empty() {
                self.by_wait.remove(&priority);
            }
        }
        self.waiting.remove(&(*share, job))
    }

    /// The job that is served next, if a slot is free.
    pub fn next(&self) -> Option<J> {
        let free = self.max.is_some_and(|max| self.taken < max.get());
        let (_, first) = self.waiting.first().filter(|_| free)?;
        let below = self.bypasses.next_below();
        let passed_over = below.and_then(|below| self.longest_wait_below(below));
        Some(passed_over.map_or(*first, |(_, job)| job))
    }

    /// Of the jobs that wait with a lower priority than this, the one that was served longest ago, and when that was.
    fn longest_wait_below(&self, priority: i32) -> Option<(u64, J)> {
        let lower = self.by_wait.range(..priority);
        lower.filter_map(|(_, jobs)| jobs.first().copied()).min()
    }
}
