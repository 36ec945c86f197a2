//! Looking at everything again, whether or not anything happened: heals what was missed. In slices, so that no event waits
//! for it.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::Timestamp;
use larder_planner::NodeKey;

use super::{Engine, JobId};

/// Nodes in one slice. Each is shown to every running job, and its entries are gone over: with two hundred jobs that is
/// some ten milliseconds.
const NODES: usize = 32;

/// Jobs in one slice.
const JOBS: usize = 16;

/// How far the resync has come: what was looked at last.
#[derive(Debug, Default)]
pub(super) struct Resync {
    node: Option<NodeKey>,
    job: Option<JobId>,
}

impl Engine {
    /// Looks at the next few, and begins anew after the last. True if these were the last.
    pub fn resync_slice(&mut self, now: Timestamp) -> bool {
        let nodes = after(self.nodes.records(), self.resync.node.as_ref(), NODES);
        let jobs = after(self.jobs.records(), self.resync.job.as_ref(), JOBS);
        self.resync = Resync {
            node: last_of(&nodes, NODES),
            job: last_of(&jobs, JOBS),
        };
        for node in &nodes {
            self.reselect_node(node, now);
            self.queue.node(node);
        }
        for job in &jobs {
            self.queue.job(*job);
        }
        self.resync.node.is_none() && self.resync.job.is_none()
    }

    /// Slices of a whole resync.
    pub fn resync_slices(&self) -> usize {
        let (nodes, jobs) = (self.nodes.records().len(), self.jobs.records().len());
        nodes.div_ceil(NODES).max(jobs.div_ceil(JOBS)).max(1)
    }

    /// Everything is looked at as soon as possible: a list is complete.
    pub(super) fn queue_all(&mut self) {
        self.resync = Resync::default();
        self.queue.nodes(&self.nodes.keys());
        for job in self.jobs.ids() {
            self.queue.job(job);
        }
    }
}

/// The next few keys after the last one.
pub(super) fn after<K: Ord + Clone, V>(map: &BTreeMap<K, V>, last: Option<&K>, count: usize) -> Vec<K> {
    let from = last.map_or(Bound::Unbounded, Bound::Excluded);
    let rest = map.range::<K, _>((from, Bound::Unbounded));
    rest.map(|(key, _)| key.clone()).take(count).collect()
}

/// The last of a full slice; after one that is not full the next begins at the beginning.
fn last_of<K: Clone>(slice: &[K], full: usize) -> Option<K> {
    slice.last().filter(|_| slice.len() == full).cloned()
}
