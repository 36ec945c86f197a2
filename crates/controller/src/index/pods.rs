//! Where pods run, in the namespaces that have an active podSelector job.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::select::{LabelRule, SelectBy};

use super::jobs::JobState;
use super::{Index, JobId};
use crate::facts::PodFacts;

/// The pods of one namespace.
#[derive(Debug, Default)]
pub(super) struct PodBook {
    pub(super) pods: BTreeMap<String, PodFacts>,
    pub(super) synced: bool,
}

impl Index {
    /// Namespaces whose pods have to be watched.
    pub(crate) fn pod_namespaces(&self) -> BTreeSet<String> {
        let by_pods = |record: &&super::JobRecord| match &record.state {
            JobState::Running(running) => matches!(running.progress.campaign().selection.by, SelectBy::Pods(_)),
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => false,
        };
        self.jobs
            .values()
            .filter(by_pods)
            .map(|record| record.key.namespace.clone())
            .collect()
    }

    pub(super) fn see_pod(&mut self, namespace: &str, pod: &PodFacts, now: Timestamp) {
        let book = self.pods.entry(namespace.to_owned()).or_default();
        let before = book.pods.insert(pod.name.clone(), pod.clone());
        if before.as_ref() != Some(pod) {
            self.pod_moved(namespace, before.as_ref(), Some(pod), now);
        }
    }

    pub(super) fn pod_gone(&mut self, namespace: &str, name: &str, now: Timestamp) {
        let book = self.pods.get_mut(namespace);
        if let Some(before) = book.and_then(|book| book.pods.remove(name)) {
            self.pod_moved(namespace, Some(&before), None, now);
        }
    }

    /// All pods of a namespace were seen.
    pub(super) fn pods_listed(&mut self, namespace: &str, now: Timestamp) {
        self.pods.entry(namespace.to_owned()).or_default().synced = true;
        for (job, _) in self.podselector_jobs(namespace) {
            self.count_pods(job);
            self.reselect_job(job, now);
            self.agenda.job(job);
        }
    }

    /// Forgets pods that nobody asks for any more.
    pub(super) fn settle_pods(&mut self) {
        let needed = self.pod_namespaces();
        self.pods.retain(|namespace, _| needed.contains(namespace));
    }

    /// Counts a job's pods from scratch.
    pub(super) fn count_pods(&mut self, job: JobId) {
        let Some(namespace) = self.jobs.get(&job).map(|record| record.key.namespace.clone()) else {
            return;
        };
        let Some(SelectBy::Pods(rule)) = self
            .running(job)
            .map(|running| running.progress.campaign().selection.by.clone())
        else {
            if let Some(running) = self.running_mut(job) {
                running.sees_pods = true;
                running.pods.clear();
            }
            return;
        };
        let book = self.pods.get(&namespace);
        let mut counts: BTreeMap<NodeKey, usize> = BTreeMap::new();
        for node in book
            .into_iter()
            .flat_map(|book| book.pods.values())
            .filter_map(|pod| place(pod, &rule))
        {
            *counts.entry(node.clone()).or_default() += 1;
        }
        let synced = book.is_some_and(|book| book.synced);
        if let Some(running) = self.running_mut(job) {
            running.sees_pods = synced;
            running.pods = counts;
        }
    }

    /// Moves one pod in the counts of the jobs that it matters to.
    fn pod_moved(&mut self, namespace: &str, before: Option<&PodFacts>, after: Option<&PodFacts>, now: Timestamp) {
        for (job, rule) in self.podselector_jobs(namespace) {
            let (left, entered) = (
                before.and_then(|pod| place(pod, &rule)),
                after.and_then(|pod| place(pod, &rule)),
            );
            if left == entered {
                continue;
            }
            if let Some(running) = self.running_mut(job) {
                if let Some(node) = left
                    && let Some(count) = running.pods.get_mut(node)
                {
                    *count -= 1;
                    if *count == 0 {
                        running.pods.remove(node);
                    }
                }
                if let Some(node) = entered {
                    *running.pods.entry(node.clone()).or_default() += 1;
                }
            }
            for node in left.into_iter().chain(entered) {
                self.reselect(job, node, now);
            }
            self.agenda.job(job);
        }
    }

    fn podselector_jobs(&self, namespace: &str) -> Vec<(JobId, LabelRule)> {
        let rule = |(id, record): (&JobId, &super::JobRecord)| match &record.state {
            JobState::Running(running) if record.key.namespace == namespace => {
                match &running.progress.campaign().selection.by {
                    SelectBy::Pods(rule) => Some((*id, rule.clone())),
                    SelectBy::All | SelectBy::Names(_) | SelectBy::Labels(_) => None,
                }
            }
            JobState::Running(_) | JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => None,
        };
        self.jobs.iter().filter_map(rule).collect()
    }
}

/// Where a pod that a rule matches runs.
fn place<'a>(pod: &'a PodFacts, rule: &LabelRule) -> Option<&'a NodeKey> {
    pod.node.as_ref().filter(|_| rule.matches(&pod.labels))
}
