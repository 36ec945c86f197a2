//! ImageListPullJobs: the controller creates one ImagePullJob for each image of a list, and sums their statuses up. The
//! children are jobs like all others; the engine does not know that they have a parent.
//!
//! Synchronous, like the engine: what was observed goes in, what is to be written comes out. Which children a list wants,
//! and what its status says, is decided in [`larder_planner::kruise::list`].

mod observe;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::core::ObjectMeta;
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_model::ImageRef;
use serde_json::Value;
use tracing::warn;

use crate::engine::{Sync, Timers, WatchKind, WriteThrottle};

/// Namespace and name of a list or a child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListKey {
    pub namespace: String,
    pub name: String,
}

/// The list that a write is about. A response is taken in only for the list that it was sent for.
#[derive(Clone, Debug)]
pub struct ListTarget {
    pub key: ListKey,
    pub uid: String,
}

/// What to do with a list or one of its children.
#[derive(Clone, Debug)]
pub enum ListWrite {
    /// A JSON patch of the list's status, guarded by the uid.
    Status(Value),
    /// Delete the list, with its children.
    Delete,
    CreateChild(Box<ImagePullJob>),
    DeleteChild {
        child: ListKey,
        uid: String,
    },
}

/// How that ended.
#[derive(Debug)]
pub enum ListWriteResult {
    /// The list as it is now.
    List(Box<ImageListPullJob>),
    /// A child that was created.
    Child(Box<ImagePullJob>),
    /// A child that was deleted.
    ChildGone(ListKey),
    /// There is no such list.
    Absent,
    /// Nobody knows whether a child was created; the watch shows it if it was.
    CreationUnknown(String),
    /// Refused, or the outcome is unknown; tried again.
    Failed(String),
}

/// All lists and their children.
pub struct ListJobs {
    not_served: Option<&'static str>,
    sync: Sync,
    lists: BTreeMap<ListKey, ListJob>,
    /// Children by the uid of their list.
    children: BTreeMap<String, BTreeMap<ListKey, ImagePullJob>>,
    /// Lists to look at, at once or later, and those that may be written now.
    queue: BTreeSet<ListKey>,
    later: Timers<ListKey>,
    ready: BTreeSet<ListKey>,
    /// The uids of children that are gone: the response to their creation may arrive later.
    gone: BTreeSet<String>,
}

struct ListJob {
    uid: String,
    object: ImageListPullJob,
    /// The object came back from a write of ours: the watch may still be behind it.
    ahead_of_watch: bool,
    throttle: WriteThrottle,
    /// When the list was first looked at: it began then, also if the first writes of its status were lost.
    first_seen: Timestamp,
    /// A child was created with an unknown outcome; the watch shows it if it exists.
    unsure_until: Option<Timestamp>,
    /// Children that ended and were deleted by somebody else: they are not made again. The list's status says so too, but
    /// less of it.
    departed: BTreeMap<ImageRef, ImagePullJob>,
}

impl ListKey {
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl ListJob {
    fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    fn ended(&self) -> Option<Timestamp> {
        self.object.status.as_ref()?.completion_time.as_ref().map(|time| time.0)
    }

    fn leaves_at(&self) -> Option<Timestamp> {
        let ttl = self.object.spec.template.completion_policy.ttl_seconds_after_finished?;
        let ttl = jiff::SignedDuration::from_secs(ttl.into());
        self.ended().map(|at| at.checked_add(ttl).unwrap_or(Timestamp::MAX))
    }

    fn failed(&mut self, key: &ListKey, error: &str, now: Timestamp) {
        if self.throttle.failed(now) {
            warn!(
                namespace = key.namespace,
                list = key.name,
                error,
                "a list job could not be written; trying again"
            );
        }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(ImageListPullJob::api_version(&()).into_owned()),
            kind: Some(ImageListPullJob::kind(&()).into_owned()),
            name: self.object.metadata.name.clone(),
            namespace: self.object.metadata.namespace.clone(),
            uid: self.object.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

impl ListJobs {
    pub fn new(not_served: Option<&'static str>) -> Self {
        Self {
            not_served,
            sync: Sync::default(),
            lists: BTreeMap::new(),
            children: BTreeMap::new(),
            queue: BTreeSet::new(),
            later: Timers::default(),
            ready: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Whether lists and their children were all seen once.
    pub fn is_complete(&self) -> bool {
        let needed = [WatchKind::ParentJob, WatchKind::Job(crate::kinds::IMAGE_PULL_JOB)];
        needed.iter().all(|kind| self.sync.is_synced(kind))
    }

    /// Whether every list whose children gate nodes has the children that it wants.
    pub fn gates_are_made(&self) -> bool {
        let mut gating = self
            .lists
            .values()
            .filter(|list| list.object.spec.template.node_gate == Some(true));
        gating.all(|list| self.step(list).is_none())
    }

    /// Forgets what was in flight and that anything was seen.
    pub fn restart(&mut self) {
        self.sync.restart();
        for list in self.lists.values_mut() {
            list.throttle.restart();
            list.ahead_of_watch = false;
            // The clock may have been set back. The next list shows a child whose creation had an unknown outcome.
            list.unsure_until = None;
        }
        // Versions that were seen before say nothing about the next list: etcd may have been restored.
        for child in self.children.values_mut().flat_map(BTreeMap::values_mut) {
            child.metadata.resource_version = None;
        }
    }

    /// Decides which lists may be written now, and when the others may.
    pub fn decide(&mut self, now: Timestamp) {
        if !self.is_complete() {
            return;
        }
        while let Some(key) = self.queue.pop_first().or_else(|| self.later.pop_due(now)) {
            let Some(list) = self.lists.get(&key).filter(|list| !list.throttle.in_flight) else {
                continue;
            };
            let due = self.due_at(list).filter(|moment| now < *moment);
            if due.is_none() {
                self.ready.insert(key.clone());
            }
            self.later.set(&key, due);
        }
    }

    /// When a list may be written. A step of its children and its end wait for no interval.
    fn due_at(&self, list: &ListJob) -> Option<Timestamp> {
        let urgent = list.ended().is_some() || self.step(list).is_some();
        let interval = (!urgent || list.throttle.has_failed()).then_some(list.throttle.not_before);
        let moments = [interval, list.unsure_until, list.leaves_at()];
        moments.into_iter().flatten().max()
    }

    /// The next list or child to write, and how.
    pub fn next_write(&mut self, now: Timestamp) -> Option<(ListTarget, ListWrite)> {
        if !self.is_complete() {
            return None;
        }
        while let Some(key) = self.ready.pop_first() {
            let write = self.write(&key, now);
            let list = self.lists.get_mut(&key).filter(|list| !list.throttle.in_flight);
            if let (Some(list), Some(write)) = (list, write) {
                list.throttle.in_flight = true;
                let uid = list.uid.clone();
                return Some((ListTarget { key, uid }, write));
            }
        }
        None
    }

    /// When time alone changes something.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.is_complete().then(|| self.later.first()).flatten()
    }

    /// Looks at all lists again.
    pub fn resync(&mut self) {
        self.queue.extend(self.lists.keys().cloned());
    }
}
