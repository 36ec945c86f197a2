//! Who has to be looked at, at once or at a moment.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_planner::NodeKey;

use super::{JobId, JobKey};

/// Jobs, lists and nodes that something happened to, and those whose time comes.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    jobs: BTreeSet<JobId>,
    lists: BTreeSet<JobKey>,
    nodes: BTreeSet<NodeKey>,
    job_writes: BTreeSet<JobId>,
    list_writes: BTreeSet<JobKey>,
    later_jobs: Later<JobId>,
    later_lists: Later<JobKey>,
    later_nodes: Later<NodeKey>,
}

/// At most one moment per key.
#[derive(Debug)]
pub(super) struct Later<K> {
    moments: BTreeSet<(Timestamp, K)>,
    keys: BTreeMap<K, Timestamp>,
}

impl<K> Default for Later<K> {
    fn default() -> Self {
        Self {
            moments: BTreeSet::new(),
            keys: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Later<K> {
    pub(super) fn set(&mut self, key: &K, moment: Option<Timestamp>) {
        if let Some(before) = self.keys.remove(key) {
            self.moments.remove(&(before, key.clone()));
        }
        if let Some(moment) = moment {
            self.keys.insert(key.clone(), moment);
            self.moments.insert((moment, key.clone()));
        }
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<K> {
        let (moment, _) = self.moments.first()?;
        if now < *moment {
            return None;
        }
        let (_, key) = self.moments.pop_first()?;
        self.keys.remove(&key);
        Some(key)
    }

    pub(super) fn first(&self) -> Option<Timestamp> {
        self.moments.first().map(|(moment, _)| *moment)
    }
}

impl Agenda {
    pub(crate) fn job(&mut self, job: JobId) {
        self.jobs.insert(job);
    }

    /// Jobs that something happened to.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().copied()
    }

    pub(crate) fn list(&mut self, list: &JobKey) {
        self.lists.insert(list.clone());
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

    pub(crate) fn list_later(&mut self, list: &JobKey, moment: Option<Timestamp>) {
        self.later_lists.set(list, moment);
    }

    pub(crate) fn node_later(&mut self, node: &NodeKey, moment: Option<Timestamp>) {
        self.later_nodes.set(node, moment);
    }

    /// The next job to decide for; its moment is forgotten.
    pub(crate) fn next_job(&mut self, now: Timestamp) -> Option<JobId> {
        let job = self.jobs.pop_first().or_else(|| self.later_jobs.pop_due(now))?;
        self.later_jobs.set(&job, None);
        Some(job)
    }

    pub(crate) fn next_list(&mut self, now: Timestamp) -> Option<JobKey> {
        let list = self.lists.pop_first().or_else(|| self.later_lists.pop_due(now))?;
        self.later_lists.set(&list, None);
        Some(list)
    }

    /// A job's own object is to be written.
    pub(crate) fn write_job(&mut self, job: JobId) {
        self.job_writes.insert(job);
    }

    /// A list's own object, or one of its children, is to be written.
    pub(crate) fn write_list(&mut self, list: &JobKey) {
        self.list_writes.insert(list.clone());
    }

    pub(crate) fn next_job_write(&mut self) -> Option<JobId> {
        self.job_writes.pop_first()
    }

    pub(crate) fn next_list_write(&mut self) -> Option<JobKey> {
        self.list_writes.pop_first()
    }

    /// Nodes whose moment has come.
    pub(crate) fn due_nodes(&mut self, now: Timestamp) -> Vec<NodeKey> {
        std::iter::from_fn(|| self.later_nodes.pop_due(now)).collect()
    }

    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The next node that has to be looked at now.
    pub(crate) fn next_node(&mut self) -> Option<NodeKey> {
        self.nodes.pop_first()
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let moments = [
            self.later_jobs.first(),
            self.later_lists.first(),
            self.later_nodes.first(),
        ];
        moments.into_iter().flatten().min()
    }
}
