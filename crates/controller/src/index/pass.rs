//! Looking at everybody again, whatever has happened: heals what was missed. In slices, so that nobody waits for it.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::Timestamp;
use larder_planner::NodeKey;

use super::{Index, JobId, JobKey};

/// Nodes in one slice. Each is shown to every running job, and its entries are gone over: with two hundred jobs that is
/// some ten milliseconds.
const NODES: usize = 32;

/// Jobs in one slice, of each kind.
const JOBS: usize = 16;

/// How far the pass has come: who was looked at last.
#[derive(Debug, Default)]
pub(super) struct Pass {
    node: Option<NodeKey>,
    job: Option<JobId>,
    list: Option<JobKey>,
}

impl Index {
    /// Looks at the next few, and begins anew after the last.
    pub(crate) fn pass_on(&mut self, now: Timestamp) {
        let nodes = after(&self.nodes, self.pass.node.as_ref(), NODES);
        let jobs = after(&self.jobs, self.pass.job.as_ref(), JOBS);
        let lists = after(&self.lists, self.pass.list.as_ref(), JOBS);
        self.pass = Pass {
            node: last_of(&nodes, NODES),
            job: last_of(&jobs, JOBS),
            list: last_of(&lists, JOBS),
        };
        for node in &nodes {
            self.reselect_node(node, now);
            self.agenda.node(node);
        }
        for job in &jobs {
            self.agenda.job(*job);
        }
        for list in &lists {
            self.agenda.list(list);
        }
    }

    /// Slices of a whole pass.
    pub(crate) fn slices(&self) -> usize {
        let jobs = self.jobs.len().max(self.lists.len());
        self.nodes.len().div_ceil(NODES).max(jobs.div_ceil(JOBS)).max(1)
    }

    /// Everybody is looked at as soon as possible: a list is complete.
    pub(super) fn look_at_all(&mut self) {
        self.pass = Pass::default();
        self.nodes.keys().for_each(|node| self.agenda.node(node));
        self.jobs.keys().for_each(|job| self.agenda.job(*job));
        self.lists.keys().for_each(|list| self.agenda.list(list));
    }
}

/// The next few keys after the last one.
fn after<K: Ord + Clone, V>(map: &BTreeMap<K, V>, last: Option<&K>, count: usize) -> Vec<K> {
    let from = last.map_or(Bound::Unbounded, Bound::Excluded);
    let rest = map.range::<K, _>((from, Bound::Unbounded));
    rest.map(|(key, _)| key.clone()).take(count).collect()
}

/// The last of a full slice; after one that is not full the next begins at the beginning.
fn last_of<K: Clone>(slice: &[K], full: usize) -> Option<K> {
    slice.last().filter(|_| slice.len() == full).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeFacts;
    use crate::index::{Kind, Limits, Seen};

    #[test]
    fn every_node_is_looked_at_once_in_a_pass() {
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: false,
            serve_jobs: true,
        });
        let now = Timestamp::UNIX_EPOCH;
        for number in 0..100 {
            let facts = NodeFacts {
                name: format!("node-{number:03}"),
                ready: true,
                ..NodeFacts::default()
            };
            index.observe(&Kind::Node, Seen::Node(facts), now);
        }
        let looked_at = |index: &mut Index| std::iter::from_fn(|| index.agenda.next_node()).collect::<Vec<_>>();
        assert_eq!(looked_at(&mut index).len(), 100);
        let mut seen = Vec::new();
        assert_eq!(index.slices(), 4);
        for _ in 0..4 {
            index.pass_on(now);
            let slice = looked_at(&mut index);
            assert!(slice.len() <= NODES, "{}", slice.len());
            seen.extend(slice);
        }
        let all: Vec<NodeKey> = index.nodes.keys().cloned().collect();
        assert_eq!(seen, all);
        index.pass_on(now);
        assert_eq!(looked_at(&mut index), all[..NODES]);
    }
}
