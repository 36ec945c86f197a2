//! What the watches show, taken apart: every event goes to the part of the engine that it concerns.

use std::collections::BTreeSet;

use jiff::Timestamp;
use larder_planner::NodeKey;

use super::nodes::NodeChange;
use super::sync::{ObjectName, object_name};
use super::{Engine, JobKey, WatchEvent, WatchKind};

impl Engine {
    /// Takes in what a watch shows.
    pub fn observe(&mut self, kind: &WatchKind, event: WatchEvent, now: Timestamp) {
        let listed = self.sync.observe(kind, &event, now);
        match event {
            WatchEvent::ListBegins | WatchEvent::ParentJob(_) => {}
            WatchEvent::ListComplete => self.list_complete(kind, &listed.unwrap_or_default(), now),
            WatchEvent::Node(mut facts) => {
                let gate = facts.gate.take();
                let (node, change) = self
                    .nodes
                    .observe_node(facts, &self.limits.agent_nodes, self.gate.taint());
                if let Some(gate) = gate {
                    self.gate.observe(&node, *gate, now);
                }
                self.node_changed(&node, &change, now);
                // A kubelet's heartbeat changes nothing that is looked at.
                if !matches!(change, NodeChange::Nothing) {
                    self.queue.node(&node);
                }
            }
            WatchEvent::NodeImage(object) => {
                let node = NodeKey::from(object.metadata.name.as_deref().unwrap_or_default());
                self.observe_image(&node, *object, false, now);
            }
            WatchEvent::Job(job) => self.observe_job(job, false, now),
            WatchEvent::Pod(pod) => {
                if let WatchKind::Pods(namespace) = kind {
                    self.observe_pod(namespace, &pod.name, Some(&pod), now);
                }
            }
            WatchEvent::Unreadable(object, why) => {
                let name = object_name(object.namespace.as_deref(), object.name.as_deref());
                self.events.record_unreadable(kind, name, *object, &why);
            }
            WatchEvent::Gone { namespace, name } => {
                let gone = object_name(Some(&namespace), Some(&name));
                self.events.keep_unreadable(kind, |known| known != gone);
                self.gone(kind, namespace, name, now);
            }
        }
    }

    fn gone(&mut self, kind: &WatchKind, namespace: String, name: String, now: Timestamp) {
        match kind {
            WatchKind::Node => {
                let node = NodeKey::from(name);
                self.gate.gone(&node);
                if self.nodes.node_gone(&node) {
                    self.reselect_node(&node, now);
                    self.queue.node(&node);
                }
            }
            WatchKind::NodeImage => self.image_gone(&NodeKey::from(name), now),
            WatchKind::Job(kind) => {
                let key = JobKey {
                    kind: *kind,
                    namespace,
                    name,
                };
                self.job_gone(&key, now);
            }
            WatchKind::Pods(namespace) => self.observe_pod(namespace, &name, None, now),
            WatchKind::ParentJob => {}
        }
    }

    /// What a list did not show is gone.
    fn list_complete(&mut self, kind: &WatchKind, shown: &BTreeSet<ObjectName>, now: Timestamp) {
        let known = self.known(kind).into_iter();
        let missing = known.filter(|(namespace, name)| !shown.contains(&object_name(Some(namespace), Some(name))));
        self.events.keep_unreadable(kind, |name| shown.contains(name));
        for (namespace, name) in missing.collect::<Vec<_>>() {
            self.gone(kind, namespace, name, now);
        }
        if let WatchKind::Pods(namespace) = kind {
            self.pods_listed(namespace, now);
        } else if self.is_complete() {
            self.queue_all();
        }
    }

    /// Namespace and name of everything of a kind.
    fn known(&self, kind: &WatchKind) -> Vec<(String, String)> {
        let nodes = self.nodes.records().iter();
        match kind {
            WatchKind::Node => nodes
                .filter(|(_, record)| record.facts.is_some())
                .map(|(node, _)| (String::new(), node.to_string()))
                .collect(),
            WatchKind::NodeImage => nodes
                .filter(|(_, record)| record.image.is_some())
                .map(|(node, _)| (String::new(), node.to_string()))
                .collect(),
            WatchKind::Job(kind) => {
                let keys = self.jobs.keys_of(*kind).into_iter();
                keys.map(|key| (key.namespace, key.name)).collect()
            }
            WatchKind::Pods(namespace) => {
                let names = self.pods.names(namespace).into_iter();
                names.map(|name| (namespace.clone(), name)).collect()
            }
            WatchKind::ParentJob => Vec::new(),
        }
    }
}
