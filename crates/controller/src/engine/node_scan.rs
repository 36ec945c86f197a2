//! Jobs that have to see all nodes anew: a job that starts, that was edited, or whose Secrets or pods have become known.
//!
//! They go over the nodes together, one node after the other and round and round, so that a NodeImage is decompressed once
//! for all of them, and the loop can turn in between. A job that joins has seen all nodes when the scan is back where the
//! job joined. Until then the job is neither decided nor written, and a node that is still to be shown is not written.

use std::collections::VecDeque;

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::select::SelectBy;

use super::resync::after;
use super::{Engine, JobId};

/// Showing a node to a job, as compared with finding out that the job does not select it.
const SHOW_WORK: usize = 64;

/// Where the scan is.
#[derive(Debug, Default)]
pub(super) struct NodeScan {
    /// The node that was shown last; empty at the beginning of a round.
    position: NodeKey,
    /// Jobs, and the position at which each joined; the one that joined last is the last.
    jobs: VecDeque<(JobId, NodeKey)>,
}

impl NodeScan {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.jobs.iter().any(|(known, _)| *known == job)
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.iter().map(|(job, _)| *job)
    }

    /// A job begins, or begins again.
    fn add(&mut self, job: JobId) {
        self.remove(job);
        self.jobs.push_back((job, self.position.clone()));
    }

    pub(super) fn remove(&mut self, job: JobId) {
        self.jobs.retain(|(known, _)| *known != job);
    }

    /// Whether all jobs have seen a node: it was shown since the last of them joined.
    pub(super) fn is_past(&self, node: &NodeKey) -> bool {
        let Some((_, joined)) = self.jobs.back() else {
            return true;
        };
        if joined <= &self.position {
            joined < node && node <= &self.position
        } else {
            joined < node || node <= &self.position
        }
    }

    /// Goes on to a node, or to the beginning of the next round. Gives back the jobs that have seen all nodes.
    fn advance(&mut self, to: Option<&NodeKey>) -> Vec<JobId> {
        let position = std::mem::replace(&mut self.position, to.cloned().unwrap_or_default());
        let is_done = |joined: &NodeKey| match to {
            Some(node) => position < *joined && joined <= node,
            None => position < *joined || joined.is_empty(),
        };
        let done = self.jobs.iter().take_while(|(_, joined)| is_done(joined)).count();
        self.jobs.drain(..done).map(|(job, _)| job).collect()
    }
}

impl Engine {
    /// Has a job see all nodes anew.
    pub(super) fn rescan(&mut self, job: JobId, now: Timestamp) {
        let Some(running) = self.jobs.running(job) else {
            return;
        };
        let mut named = running.progress.nodes();
        if let SelectBy::Fixed(names) = &running.progress.campaign().selection.by {
            named.extend(names.iter().map(|name| NodeKey::from(name.as_str())));
        }
        // The scan goes over what is known.
        for node in named
            .iter()
            .filter(|node| self.nodes.get(node).is_none())
            .collect::<Vec<_>>()
        {
            self.reselect(job, node, now);
        }
        self.scan.add(job);
    }

    /// Shows the next node to all jobs of the scan, and says how much work that was; None if no job scans.
    pub(super) fn scan_next(&mut self, now: Timestamp) -> Option<usize> {
        let jobs: Vec<JobId> = self.scan.jobs.iter().map(|(job, _)| *job).collect();
        if jobs.is_empty() {
            return None;
        }
        let node = after(self.nodes.records(), Some(&self.scan.position), 1).pop();
        let mut work = jobs.len();
        if let Some(node) = &node {
            let shown = jobs.into_iter().filter(|job| self.reselect(*job, node, now));
            work += SHOW_WORK * shown.count();
            self.nodes.compress(node);
        }
        for job in self.scan.advance(node.as_ref()) {
            self.count_slots(job);
            self.queue.job(job);
            self.gate.look_at_all();
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FLEET: [&str; 4] = ["b", "d", "f", "h"];

    /// Which nodes each job was shown before it was done. Job 1 begins, and job 2 joins before this step; `change` then
    /// changes the fleet.
    fn seen(joins_at: usize, change: impl Fn(&mut BTreeMap<NodeKey, bool>)) -> BTreeMap<JobId, Vec<String>> {
        let mut fleet: BTreeMap<NodeKey, bool> = FLEET.map(|name| (NodeKey::from(name), true)).into();
        let mut scan = NodeScan::default();
        let mut seen: BTreeMap<JobId, Vec<String>> = BTreeMap::new();
        scan.add(1);
        for step in 0..20 {
            if step == joins_at {
                scan.add(2);
                assert!(!fleet.keys().any(|node| scan.is_past(node)));
                change(&mut fleet);
            }
            let node = after(&fleet, Some(&scan.position), 1).pop();
            for (job, _) in &scan.jobs {
                seen.entry(*job).or_default().extend(node.as_deref().map(str::to_owned));
            }
            let all: Vec<JobId> = scan.jobs.iter().map(|(job, _)| *job).collect();
            scan.advance(node.as_ref());
            for node in fleet.keys() {
                let knows = |job: &JobId| seen[job].iter().any(|seen| **seen == **node);
                assert!(!scan.is_past(node) || all.iter().all(knows), "{node} in step {step}");
            }
        }
        assert!(scan.is_empty());
        assert!(fleet.keys().all(|node| scan.is_past(node)));
        for nodes in seen.values_mut() {
            nodes.sort();
        }
        seen
    }

    #[test]
    fn every_job_sees_every_node_once() {
        let all = FLEET.map(str::to_owned).to_vec();
        for joins_at in 0..6 {
            assert_eq!(seen(joins_at, |_| {}), [(1, all.clone()), (2, all.clone())].into());
        }
    }

    #[test]
    fn no_node_is_missed_when_the_fleet_changes() {
        let cases = (0..6).flat_map(|joins_at| FLEET.map(|gone| (joins_at, gone)));
        let cases = cases.flat_map(|(joins_at, gone)| ["a", "c", "e", "g", "i"].map(|new| (joins_at, gone, new)));
        for (joins_at, gone, new) in cases {
            let seen = seen(joins_at, |fleet| {
                fleet.remove(gone);
                fleet.insert(new.into(), true);
            });
            for node in FLEET.into_iter().filter(|node| *node != gone) {
                let saw = |nodes: &Vec<String>| nodes.iter().any(|seen| seen == node);
                assert!(seen.values().all(saw), "{node}, {joins_at}, {gone}, {new}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_fleet_without_nodes_is_seen_at_once() {
        let mut scan = NodeScan::default();
        scan.add(1);
        assert_eq!(scan.advance(None), [1]);
    }
}
