//! What the watches show.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_planner::NodeKey;

use super::{Index, JobKey};
use crate::facts::{NodeFacts, PodFacts};

/// A kind that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    NodeImage,
    Job,
    PrePull,
    List,
    /// Pods of one namespace.
    Pods(String),
}

impl Kind {
    /// Those that are watched everywhere and always.
    pub(crate) const CLUSTER_WIDE: [Kind; 5] = [Kind::Node, Kind::NodeImage, Kind::Job, Kind::PrePull, Kind::List];
}

/// What a watch shows of a kind.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A list begins.
    Begin,
    /// The list is complete: what it did not show is gone.
    Complete,
    Node(NodeFacts),
    NodeImage(Box<NodeImage>),
    Job(Box<ImagePullJob>),
    PrePull(Box<ImagePrePullJob>),
    List(Box<ImageListPullJob>),
    Pod(PodFacts),
    /// An object that cannot be read, and why. What was known of it stays.
    Unreadable(Box<ObjectReference>, String),
    /// An object is gone.
    Gone {
        namespace: String,
        name: String,
    },
}

impl Index {
    /// Takes in what a watch shows.
    pub(crate) fn observe(&mut self, kind: &Kind, seen: Seen, now: Timestamp) {
        if let (Some(keys), Some(key)) = (self.listing.get_mut(kind), key_of(kind, &seen)) {
            keys.insert(key);
        }
        match seen {
            Seen::Begin => {
                self.listing.insert(kind.clone(), std::collections::BTreeSet::new());
            }
            Seen::Complete => self.complete(kind, now),
            Seen::Node(facts) => self.see_node(facts, now),
            Seen::NodeImage(object) => {
                let node = NodeKey::from(object.metadata.name.as_deref().unwrap_or_default());
                self.take_in_image(&node, *object, false, now);
            }
            Seen::Job(job) => self.see_job(job, now),
            Seen::PrePull(job) => self.see_prepull(job, now),
            Seen::List(list) => self.see_list(*list, now),
            Seen::Pod(pod) => {
                if let Kind::Pods(namespace) = kind {
                    self.see_pod(namespace, &pod, now);
                }
            }
            Seen::Unreadable(object, why) => {
                let key = joined(object.namespace.as_deref(), object.name.as_deref());
                self.note_unreadable(kind, key, *object, &why);
            }
            Seen::Gone { namespace, name } => {
                let key = joined(Some(&namespace), Some(&name));
                self.notes.keep_unreadable(kind, |known| known != key);
                self.gone(kind, namespace, name, now);
            }
        }
    }

    fn gone(&mut self, kind: &Kind, namespace: String, name: String, now: Timestamp) {
        match kind {
            Kind::Node => self.node_gone(&NodeKey::from(name), now),
            Kind::NodeImage => self.image_gone(&NodeKey::from(name), now),
            Kind::Job | Kind::PrePull => self.job_gone(&JobKey { namespace, name }, now),
            Kind::List => self.list_gone(&JobKey { namespace, name }),
            Kind::Pods(namespace) => self.pod_gone(namespace, &name, now),
        }
    }

    fn complete(&mut self, kind: &Kind, now: Timestamp) {
        let shown = self.listing.remove(kind).unwrap_or_default();
        let missing: Vec<(String, String)> = self
            .known(kind)
            .into_iter()
            .filter(|(namespace, name)| !shown.contains(&joined(Some(namespace), Some(name))))
            .collect();
        self.notes.keep_unreadable(kind, |key| shown.contains(key));
        for (namespace, name) in missing {
            self.gone(kind, namespace, name, now);
        }
        if matches!(kind, Kind::Job | Kind::PrePull) {
            self.jobs_synced_at = now;
        }
        if let Kind::Pods(namespace) = kind {
            self.pods_listed(namespace, now);
            return;
        }
        self.synced.insert(kind.clone());
        if self.is_complete() {
            self.look_at_all();
        }
    }

    /// Namespace and name of everything of a kind.
    fn known(&self, kind: &Kind) -> Vec<(String, String)> {
        let plain = |node: &NodeKey| (String::new(), node.to_string());
        match kind {
            Kind::Node => self
                .nodes
                .iter()
                .filter(|(_, record)| record.facts.is_some())
                .map(|(node, _)| plain(node))
                .collect(),
            Kind::NodeImage => self
                .nodes
                .iter()
                .filter(|(_, record)| record.image.is_some())
                .map(|(node, _)| plain(node))
                .collect(),
            Kind::Job | Kind::PrePull => self
                .job_keys
                .keys()
                .filter(|key| key.is_prepull() == (*kind == Kind::PrePull))
                .map(|key| (key.namespace.clone(), key.name.clone()))
                .collect(),
            Kind::List => self
                .lists
                .keys()
                .map(|key| (key.namespace.clone(), key.name.clone()))
                .collect(),
            Kind::Pods(namespace) => {
                let book = self.pods.get(namespace);
                let names = book.into_iter().flat_map(|book| book.pods.keys());
                names.map(|name| (namespace.clone(), name.clone())).collect()
            }
        }
    }

    fn see_node(&mut self, facts: NodeFacts, now: Timestamp) {
        let node = NodeKey::from(facts.name.as_str());
        let record = self.nodes.entry(node.clone()).or_default();
        let before = record.facts.replace(facts);
        record.share_labels();
        let after = record.facts.as_ref();
        if before.as_ref() == after {
            return;
        }
        let retainted = before.as_ref().map(|facts| &facts.taints) != after.map(|facts| &facts.taints);
        if retainted || record.image.is_none() {
            self.reselect_node(&node, now);
        } else {
            self.touch_node(&node, now);
        }
        self.agenda.node(&node);
    }

    fn node_gone(&mut self, node: &NodeKey, now: Timestamp) {
        if let Some(record) = self.nodes.get_mut(node) {
            record.facts = None;
            self.reselect_node(node, now);
            self.agenda.node(node);
        }
    }
}

fn joined(namespace: Option<&str>, name: Option<&str>) -> String {
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn key_of(kind: &Kind, seen: &Seen) -> Option<String> {
    let of = |meta: &kube::core::ObjectMeta| joined(meta.namespace.as_deref(), meta.name.as_deref());
    match seen {
        Seen::Begin | Seen::Complete | Seen::Gone { .. } => None,
        Seen::Node(facts) => Some(format!("/{}", facts.name)),
        Seen::NodeImage(object) => Some(of(&object.metadata)),
        Seen::Job(job) => Some(of(&job.metadata)),
        Seen::PrePull(job) => Some(of(&job.metadata)),
        Seen::List(list) => Some(of(&list.metadata)),
        Seen::Unreadable(object, _) => Some(joined(object.namespace.as_deref(), object.name.as_deref())),
        Seen::Pod(pod) => match kind {
            Kind::Pods(namespace) => Some(format!("{namespace}/{}", pod.name)),
            Kind::Node | Kind::NodeImage | Kind::Job | Kind::PrePull | Kind::List => None,
        },
    }
}
