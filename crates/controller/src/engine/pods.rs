//! Where pods run, in the namespaces that have a running job which selects nodes by pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::select::{LabelRule, SelectBy};

use super::{Engine, JobId};
use crate::facts::PodFacts;

/// The pods of all namespaces that are watched.
#[derive(Debug, Default)]
pub(super) struct Pods(BTreeMap<String, NamespacePods>);

/// The pods of one namespace.
#[derive(Debug, Default)]
struct NamespacePods {
    pods: BTreeMap<String, PodFacts>,
    synced: bool,
}

impl Pods {
    /// Takes in a pod, or that it is gone. Gives back what was known of it.
    fn replace(&mut self, namespace: &str, name: &str, pod: Option<&PodFacts>) -> Option<PodFacts> {
        let known = self.0.entry(namespace.to_owned()).or_default();
        match pod {
            Some(pod) => known.pods.insert(name.to_owned(), pod.clone()),
            None => known.pods.remove(name),
        }
    }

    /// The names of the pods that are known in a namespace.
    pub(super) fn names(&self, namespace: &str) -> Vec<String> {
        let known = self.0.get(namespace);
        known.into_iter().flat_map(|known| known.pods.keys().cloned()).collect()
    }

    /// Matching pods on each node; None while the pods of the namespace are not all known.
    fn count(&self, namespace: &str, rule: &LabelRule) -> Option<BTreeMap<NodeKey, usize>> {
        let known = self.0.get(namespace).filter(|known| known.synced)?;
        let mut counts: BTreeMap<NodeKey, usize> = BTreeMap::new();
        for node in known.pods.values().filter_map(|pod| node_of(pod, rule)) {
            *counts.entry(node.clone()).or_default() += 1;
        }
        Some(counts)
    }

    /// All pods of a namespace were seen.
    fn listed(&mut self, namespace: &str) {
        self.0.entry(namespace.to_owned()).or_default().synced = true;
    }

    /// Forgets the pods of other namespaces.
    fn retain(&mut self, namespaces: &BTreeSet<String>) {
        self.0.retain(|namespace, _| namespaces.contains(namespace));
    }

    /// Nothing counts as listed any more.
    pub(super) fn restart(&mut self) {
        self.0.values_mut().for_each(|known| known.synced = false);
    }
}

impl Engine {
    /// Namespaces whose pods have to be watched. The pods of others are forgotten, here and not when a job stops: a job that
    /// is replaced by another one needs the same watch, which is not started anew.
    pub fn pod_namespaces(&mut self) -> BTreeSet<String> {
        let by_pods = self.jobs.by_pods();
        let needed: BTreeSet<String> = by_pods.map(|(_, key, _)| key.namespace.clone()).collect();
        self.pods.retain(&needed);
        needed
    }

    /// Takes in a pod, or that it is gone.
    pub(super) fn observe_pod(&mut self, namespace: &str, name: &str, pod: Option<&PodFacts>, now: Timestamp) {
        let before = self.pods.replace(namespace, name, pod);
        if before.as_ref() == pod {
            return;
        }
        for (job, rule) in self.jobs_by_pods(namespace) {
            let left = before.as_ref().and_then(|pod| node_of(pod, &rule));
            let entered = pod.and_then(|pod| node_of(pod, &rule));
            if left == entered {
                continue;
            }
            if let Some(counts) = self.jobs.running_mut(job).and_then(|running| running.pods.as_mut()) {
                if let Some(node) = left
                    && let Some(count) = counts.get_mut(node)
                {
                    *count -= 1;
                    if *count == 0 {
                        counts.remove(node);
                    }
                }
                if let Some(node) = entered {
                    *counts.entry(node.clone()).or_default() += 1;
                }
            }
            for node in left.into_iter().chain(entered) {
                self.reselect(job, node, now);
            }
            self.queue.job(job);
        }
    }

    /// All pods of a namespace were seen.
    pub(super) fn pods_listed(&mut self, namespace: &str, now: Timestamp) {
        self.pods.listed(namespace);
        for (job, _) in self.jobs_by_pods(namespace) {
            self.count_pods(job);
            self.rescan(job, now);
        }
    }

    /// Counts a job's pods from scratch.
    pub(super) fn count_pods(&mut self, job: JobId) {
        let Some(namespace) = self.jobs.get(job).map(|record| record.key.namespace.clone()) else {
            return;
        };
        if let Some(running) = self.jobs.running_mut(job)
            && let SelectBy::Pods(rule) = &running.progress.campaign().selection.by
        {
            running.pods = self.pods.count(&namespace, rule);
        }
    }

    fn jobs_by_pods(&self, namespace: &str) -> Vec<(JobId, LabelRule)> {
        let jobs = self.jobs.by_pods().filter(|(_, key, _)| key.namespace == namespace);
        jobs.map(|(id, _, rule)| (id, rule.clone())).collect()
    }
}

/// Where a pod that a rule matches runs.
fn node_of<'a>(pod: &'a PodFacts, rule: &LabelRule) -> Option<&'a NodeKey> {
    pod.node.as_ref().filter(|_| rule.matches(&pod.labels))
}
