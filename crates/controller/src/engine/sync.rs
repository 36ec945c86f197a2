//! Which kinds of objects were listed, and which objects a list that is under way has shown so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::core::ObjectMeta;
use larder_api::NodeImage;

use super::job::Job;
use crate::facts::{NodeFacts, PodFacts};
use crate::kinds::{KindId, ParentJob};

/// A kind of object that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchKind {
    Node,
    NodeImage,
    Job(KindId),
    /// Jobs that create other jobs. The engine runs only those that they create.
    ParentJob,
    /// Pods of one namespace.
    Pods(String),
}

impl WatchKind {
    /// The kinds that the engine needs to know completely before it decides.
    pub fn of_engine() -> impl Iterator<Item = WatchKind> {
        [WatchKind::Node, WatchKind::NodeImage]
            .into_iter()
            .chain(KindId::all().map(WatchKind::Job))
    }

    /// The kinds that are watched everywhere and always.
    pub fn cluster_wide() -> impl Iterator<Item = WatchKind> {
        WatchKind::of_engine().chain([WatchKind::ParentJob])
    }
}

impl fmt::Display for WatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("Nodes"),
            Self::NodeImage => f.write_str("NodeImages"),
            Self::Job(kind) => write!(f, "{}s", kind.name()),
            Self::ParentJob => write!(f, "{}s", ParentJob::kind(&())),
            Self::Pods(namespace) => write!(f, "Pods in {namespace}"),
        }
    }
}

/// What a watch shows of a kind.
pub enum WatchEvent {
    /// A list begins.
    ListBegins,
    /// The list is complete: what it did not show is gone.
    ListComplete,
    Node(NodeFacts),
    NodeImage(Box<NodeImage>),
    Job(Box<dyn Job>),
    ParentJob(Box<ParentJob>),
    Pod(PodFacts),
    /// An object that cannot be read, and why. What was known of it stays.
    Unreadable(Box<ObjectReference>, String),
    /// An object is gone.
    Gone {
        namespace: String,
        name: String,
    },
}

/// `namespace/name`.
pub(crate) type ObjectName = String;

/// What was listed.
#[derive(Debug, Default)]
pub(crate) struct Sync {
    synced: BTreeSet<WatchKind>,
    listing: BTreeMap<WatchKind, BTreeSet<ObjectName>>,
    jobs_synced_at: Timestamp,
}

impl Sync {
    /// Whether a kind was listed completely.
    pub(crate) fn is_synced(&self, kind: &WatchKind) -> bool {
        self.synced.contains(kind)
    }

    /// When jobs were last listed.
    pub(super) fn jobs_synced_at(&self) -> Timestamp {
        self.jobs_synced_at
    }

    /// Takes in an event. At the end of a list, gives back the names that it has shown.
    pub(crate) fn observe(
        &mut self,
        kind: &WatchKind,
        event: &WatchEvent,
        now: Timestamp,
    ) -> Option<BTreeSet<ObjectName>> {
        match event {
            WatchEvent::ListBegins => {
                self.listing.insert(kind.clone(), BTreeSet::new());
                None
            }
            WatchEvent::ListComplete => {
                self.synced.insert(kind.clone());
                if matches!(kind, WatchKind::Job(_)) {
                    self.jobs_synced_at = now;
                }
                Some(self.listing.remove(kind).unwrap_or_default())
            }
            event => {
                if let (Some(names), Some(name)) = (self.listing.get_mut(kind), name_in(kind, event)) {
                    names.insert(name);
                }
                None
            }
        }
    }

    /// The controller created an object. A list that is under way may be older than that, and must not take it away.
    pub(crate) fn created(&mut self, kind: &WatchKind, metadata: &ObjectMeta) {
        if let Some(names) = self.listing.get_mut(kind) {
            names.insert(object_name(metadata.namespace.as_deref(), metadata.name.as_deref()));
        }
    }

    /// Nothing counts as listed any more.
    pub(crate) fn restart(&mut self) {
        self.synced.clear();
        self.listing.clear();
    }
}

/// `namespace/name`, with an empty namespace for cluster-wide objects.
pub(crate) fn object_name(namespace: Option<&str>, name: Option<&str>) -> ObjectName {
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// The name of the object that an event shows.
fn name_in(kind: &WatchKind, event: &WatchEvent) -> Option<ObjectName> {
    let of = |meta: &ObjectMeta| object_name(meta.namespace.as_deref(), meta.name.as_deref());
    match event {
        WatchEvent::ListBegins | WatchEvent::ListComplete | WatchEvent::Gone { .. } => None,
        WatchEvent::Node(facts) => Some(object_name(None, Some(&facts.name))),
        WatchEvent::NodeImage(object) => Some(of(&object.metadata)),
        WatchEvent::Job(job) => Some(of(job.metadata())),
        WatchEvent::ParentJob(parent) => Some(of(&parent.metadata)),
        WatchEvent::Unreadable(object, _) => Some(object_name(object.namespace.as_deref(), object.name.as_deref())),
        WatchEvent::Pod(pod) => match kind {
            WatchKind::Pods(namespace) => Some(object_name(Some(namespace), Some(&pod.name))),
            WatchKind::Node | WatchKind::NodeImage | WatchKind::Job(_) | WatchKind::ParentJob => None,
        },
    }
}
