//! What has to be looked at, at once or at a moment.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_planner::NodeKey;

use super::JobId;

/// Jobs and nodes that something happened to, and those whose time comes.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Those with a higher priority are first: of jobs that are looked at in one turn, they take free slots before the others.
    jobs: BTreeSet<(Reverse<i32>, JobId)>,
    /// Priorities other than 0.
    priorities: BTreeMap<JobId, i32>,
    nodes: BTreeSet<NodeKey>,
    job_writes: BTreeSet<JobId>,
    later_jobs: Timers<JobId>,
    later_nodes: Timers<NodeKey>,
}

/// At most one moment for each key.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    moments: BTreeSet<(Timestamp, K)>,
    keys: BTreeMap<K, Timestamp>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            moments: BTreeSet::new(),
            keys: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Timers<K> {
    pub(crate) fn set(&mut self, key: &K, moment: Option<Timestamp>) {
        if let Some(before) = self.keys.remove(key) {
            self.moments.remove(&(before, key.clone()));
        }
        if let Some(moment) = moment {
            self.keys.insert(key.clone(), moment);
            self.moments.insert((moment, key.clone()));
        }
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<K> {
        let (moment, _) = self.moments.first()?;
        if now < *moment {
            return None;
        }
        let (_, key) = self.moments.pop_first()?;
        self.keys.remove(&key);
        Some(key)
    }

    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.moments.first().map(|(moment, _)| *moment)
    }
}

impl WorkQueue {
    pub(crate) fn job(&mut self, job: JobId) {
        self.jobs.insert(self.place(job));
    }

    /// A job has another priority now.
    pub(crate) fn set_priority(&mut self, job: JobId, priority: i32) {
        let is_queued = self.jobs.remove(&self.place(job));
        if priority == 0 {
            self.priorities.remove(&job);
        } else {
            self.priorities.insert(job, priority);
        }
        if is_queued {
            self.job(job);
        }
    }

    fn place(&self, job: JobId) -> (Reverse<i32>, JobId) {
        (Reverse(self.priorities.get(&job).copied().unwrap_or(0)), job)
    }

    pub(crate) fn node(&mut self, node: &NodeKey) {
        self.nodes.insert(node.clone());
    }

    pub(crate) fn job_later(&mut self, job: JobId, moment: Option<Timestamp>) {
        self.later_jobs.set(&job, moment);
    }

    /// Looks at a job at this moment, or before.
    pub(crate) fn job_later_at_most(&mut self, job: JobId, moment: Timestamp) {
        let sooner = self
            .later_jobs
            .keys
            .get(&job)
            .map_or(moment, |known| moment.min(*known));
        self.later_jobs.set(&job, Some(sooner));
    }

    pub(crate) fn nodes(&mut self, nodes: &[NodeKey]) {
        self.nodes.extend(nodes.iter().cloned());
    }

    pub(crate) fn node_later(&mut self, node: &NodeKey, moment: Option<Timestamp>) {
        self.later_nodes.set(node, moment);
    }

    /// The next job to decide for; its moment is forgotten.
    pub(crate) fn next_job(&mut self, now: Timestamp) -> Option<JobId> {
        let queued = self.jobs.pop_first().map(|(_, job)| job);
        let job = queued.or_else(|| self.later_jobs.pop_due(now))?;
        self.later_jobs.set(&job, None);
        Some(job)
    }

    /// A job's own object is to be written.
    pub(crate) fn write_job(&mut self, job: JobId) {
        self.job_writes.insert(job);
    }

    pub(crate) fn next_job_write(&mut self) -> Option<JobId> {
        self.job_writes.pop_first()
    }

    /// Nodes whose moment has come.
    pub(crate) fn due_nodes(&mut self, now: Timestamp) -> Vec<NodeKey> {
        std::iter::from_fn(|| self.later_nodes.pop_due(now)).collect()
    }

    /// Jobs that something happened to.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().map(|(_, job)| *job)
    }

    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The next node that has to be looked at now, of those that may be.
    pub(crate) fn next_node(&mut self, may_be: impl Fn(&NodeKey) -> bool) -> Option<NodeKey> {
        let node = self.nodes.iter().find(|node| may_be(node)).cloned()?;
        self.nodes.take(&node)
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let moments = [self.later_jobs.first(), self.later_nodes.first()];
        moments.into_iter().flatten().min()
    }
}
