//! ImageListPullJobs: the controller creates one ImagePullJob for each image of a list, and sums their statuses up. The
//! children are jobs like all others; the engine does not know that they have a parent.
//!
//! Synchronous, like the engine: what was observed goes in, what is to be written comes out. Which children a list wants,
//! and what its status says, is decided in [`larder_planner::kruise::list`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use kube::core::ObjectMeta;
use larder_api::contract::{job_status_patch, json_of};
use larder_api::{ImageListPullJob, ImageListPullJobStatus, ImagePullJob, ImagePullJobSpec};
use larder_model::ImageRef;
use larder_planner::kruise::list as rules;
use serde_json::Value;
use tracing::warn;

use crate::engine::{GATE_OFF, NewEvent, Sync, Timers, WatchEvent, WatchKind, WriteThrottle, object_name, revision};

/// How long a child whose creation has an unknown outcome is waited for before it is created again.
const CREATION_SHOWS_WITHIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// Uids of children that are remembered after the objects are gone.
const GONE: usize = 4_096;

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
    /// A merge patch of the list's status.
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
    serve_jobs: bool,
    sync: Sync,
    lists: BTreeMap<ListKey, List>,
    /// Children by the uid of their list.
    children: BTreeMap<String, BTreeMap<ListKey, ImagePullJob>>,
    /// Lists to look at, at once or later, and those that may be written now.
    queue: BTreeSet<ListKey>,
    later: Timers<ListKey>,
    ready: BTreeSet<ListKey>,
    /// The uids of children that are gone: the response to their creation may arrive later.
    gone: BTreeSet<String>,
}

struct List {
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

enum ListStep {
    Create(Box<ImagePullJobSpec>),
    Delete(ListKey, String),
}

impl ListKey {
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl List {
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
    pub fn new(serve_jobs: bool) -> Self {
        Self {
            serve_jobs,
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
        let needed = [WatchKind::List, WatchKind::Job(crate::kinds::IMAGE_PULL_JOB)];
        needed.iter().all(|kind| self.sync.is_synced(kind))
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

    /// Takes in what a watch shows of lists.
    pub fn observe(&mut self, kind: &WatchKind, event: &WatchEvent, now: Timestamp) {
        let listed = self.sync.observe(kind, event, now);
        match (kind, event) {
            (WatchKind::List, WatchEvent::List(list)) => self.observe_list((**list).clone(), false, now),
            (WatchKind::List, WatchEvent::Gone { namespace, name }) => {
                let key = ListKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                self.lists.remove(&key);
            }
            (WatchKind::List, WatchEvent::ListComplete) => {
                let shown = listed.unwrap_or_default();
                let stays = |key: &ListKey| shown.contains(&object_name(Some(&key.namespace), Some(&key.name)));
                self.lists.retain(|key, _| stays(key));
                self.queue.extend(self.lists.keys().cloned());
            }
            (WatchKind::Job(kind), event) if *kind == crate::kinds::IMAGE_PULL_JOB => {
                self.observe_jobs(event, &listed.unwrap_or_default());
            }
            _ => {}
        }
    }

    fn observe_jobs(&mut self, event: &WatchEvent, shown: &BTreeSet<String>) {
        match event {
            WatchEvent::Job(job) => {
                if let Some(child) = crate::kinds::image_pull_job(&**job) {
                    self.observe_child(child);
                }
            }
            WatchEvent::Gone { namespace, name } => {
                let key = ListKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                self.child_gone(&key);
            }
            WatchEvent::ListComplete => {
                let known = self.children.values().flat_map(BTreeMap::keys);
                let gone = known.filter(|key| !shown.contains(&object_name(Some(&key.namespace), Some(&key.name))));
                for key in gone.cloned().collect::<Vec<_>>() {
                    self.child_gone(&key);
                }
                self.queue.extend(self.lists.keys().cloned());
            }
            _ => {}
        }
    }

    fn observe_list(&mut self, mut list: ImageListPullJob, from_write: bool, now: Timestamp) {
        list.metadata.managed_fields = None;
        let key = ListKey::of(&list.metadata);
        let uid = list.metadata.uid.clone().unwrap_or_default();
        match self.lists.get_mut(&key).filter(|known| known.uid == uid) {
            Some(known)
                if (known.ahead_of_watch || from_write)
                    && revision(&list.metadata) < revision(&known.object.metadata) =>
            {
                return;
            }
            Some(known) => {
                known.object = list;
                known.ahead_of_watch = from_write;
            }
            None => {
                let list = List {
                    uid,
                    object: list,
                    ahead_of_watch: from_write,
                    throttle: WriteThrottle::default(),
                    first_seen: now,
                    unsure_until: None,
                    departed: BTreeMap::new(),
                };
                self.lists.insert(key.clone(), list);
            }
        }
        self.queue.insert(key);
    }

    /// Takes in a child, from the watch or from a write.
    pub fn observe_child(&mut self, child: &ImagePullJob) {
        let key = ListKey::of(&child.metadata);
        // Another job may have the name by now, with another parent or none.
        let is_other = |known: &ImagePullJob| known.metadata.uid != child.metadata.uid;
        if self
            .children
            .values()
            .any(|children| children.get(&key).is_some_and(is_other))
        {
            self.child_gone(&key);
        }
        let Some(parent) = parent_of(child) else {
            return;
        };
        let known = self.children.get(&parent).and_then(|children| children.get(&key));
        let older = known.is_some_and(|known| {
            known.metadata.uid == child.metadata.uid && revision(&child.metadata) < revision(&known.metadata)
        });
        if !older {
            self.queue_parent(&parent);
            self.children.entry(parent).or_default().insert(key, child.clone());
        }
    }

    fn child_gone(&mut self, key: &ListKey) {
        let mut gone = None;
        for (parent, children) in &mut self.children {
            if let Some(child) = children.remove(key) {
                gone = Some((parent.clone(), child));
            }
        }
        self.children.retain(|_, children| !children.is_empty());
        if GONE <= self.gone.len() {
            self.gone.clear();
        }
        self.gone
            .extend(gone.as_ref().and_then(|(_, child)| child.metadata.uid.clone()));
        if let Some((parent, child)) = gone {
            self.remember(&parent, child);
            self.queue_parent(&parent);
        }
    }

    /// A child that ended and was deleted is not made again.
    fn remember(&mut self, parent: &str, child: ImagePullJob) {
        let ended = child
            .status
            .as_ref()
            .is_some_and(|status| status.completion_time.is_some());
        let list = self.lists.values_mut().find(|list| list.uid == parent);
        if let (Some(list), Ok(image)) = (list.filter(|_| ended), ImageRef::parse(&child.spec.image)) {
            list.departed.insert(image, child);
        }
    }

    fn queue_parent(&mut self, uid: &str) {
        let parents = self.lists.iter().filter(|(_, list)| list.uid == uid);
        let parents: Vec<ListKey> = parents.map(|(key, _)| key.clone()).collect();
        self.queue.extend(parents);
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
    fn due_at(&self, list: &List) -> Option<Timestamp> {
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

    /// The children of a list by image. Of two for one image the older one counts.
    fn children_of(&self, list: &List) -> (BTreeMap<ImageRef, &ImagePullJob>, Vec<&ImagePullJob>) {
        let mut children: BTreeMap<ImageRef, &ImagePullJob> = BTreeMap::new();
        let mut extra = Vec::new();
        let known = self.children.get(&list.uid).into_iter().flat_map(BTreeMap::values);
        let mut known: Vec<&ImagePullJob> = known
            .filter(|child| child.metadata.deletion_timestamp.is_none())
            .collect();
        known.sort_by_key(|child| child.metadata.creation_timestamp.as_ref().map(|time| time.0));
        for child in known {
            match ImageRef::parse(&child.spec.image) {
                Ok(image) if !children.contains_key(&image) => {
                    children.insert(image, child);
                }
                Ok(_) | Err(_) => extra.push(child),
            }
        }
        (children, extra)
    }

    /// The next child to create or delete.
    fn step(&self, list: &List) -> Option<ListStep> {
        if list.is_leaving() || list.ended().is_some() || !self.serve_jobs {
            return None;
        }
        let wanted = rules::children(&list.object).ok()?;
        let (children, extra) = self.children_of(list);
        let unwanted = |(image, child): &(&ImageRef, &&ImagePullJob)| {
            let spec = wanted.get(*image);
            spec.is_none_or(|spec| !rules::is_as_wanted(&child.spec, spec))
        };
        let first_unwanted = || children.iter().find(unwanted).map(|(_, child)| *child);
        if let Some(child) = extra.first().copied().or_else(first_unwanted) {
            return Some(ListStep::Delete(
                ListKey::of(&child.metadata),
                child.metadata.uid.clone()?,
            ));
        }
        let finished = rules::finished(&list.object);
        let missing = wanted.into_iter().find(|(image, spec)| {
            let departed = list.departed.get(image);
            let known = departed.is_some_and(|child| rules::is_as_wanted(&child.spec, spec));
            !children.contains_key(image) && !known && !finished.contains_key(image)
        });
        missing.map(|(_, spec)| ListStep::Create(Box::new(spec)))
    }

    fn write(&self, key: &ListKey, now: Timestamp) -> Option<ListWrite> {
        let list = self.lists.get(key)?;
        if list.is_leaving() {
            return None;
        }
        match self.step(list) {
            Some(ListStep::Create(spec)) => {
                return Some(ListWrite::CreateChild(Box::new(rules::child(&list.object, *spec))));
            }
            Some(ListStep::Delete(child, uid)) => return Some(ListWrite::DeleteChild { child, uid }),
            None => {}
        }
        if list.ended().is_some() {
            let due = list.leaves_at().is_some_and(|moment| moment <= now);
            return due.then_some(ListWrite::Delete);
        }
        let before = list.object.status.as_ref();
        let mut status = self.status(list, now);
        if before.is_none_or(|status| status.start_time.is_none()) {
            status.start_time = Some(Time(list.first_seen));
        }
        let patch = job_status_patch(&list.uid, before, &json_of(&status))?;
        list.throttle
            .is_worth_writing(&patch, now)
            .then_some(ListWrite::Status(patch))
    }

    fn status(&self, list: &List, now: Timestamp) -> ImageListPullJobStatus {
        if !self.serve_jobs {
            return rules::held(&list.object, GATE_OFF, now);
        }
        match rules::children(&list.object) {
            Err(why) => rules::refused(&list.object, &why, now),
            Ok(wanted) => {
                let (mut children, _) = self.children_of(list);
                for (image, child) in &list.departed {
                    children.entry(image.clone()).or_insert(child);
                }
                children.retain(|image, _| wanted.contains_key(image));
                rules::status(&list.object, &wanted, &children, now)
            }
        }
    }

    /// Takes in how a write of a list or a child ended, and gives back the Event that it is worth.
    pub fn written(&mut self, target: &ListTarget, result: ListWriteResult, now: Timestamp) -> Option<NewEvent> {
        let key = &target.key;
        let list = self.lists.get_mut(key).filter(|list| list.uid == target.uid)?;
        let subject = list.reference();
        let event = |reason, text| NewEvent {
            subject,
            warning: false,
            reason,
            text,
        };
        self.queue.insert(key.clone());
        match result {
            ListWriteResult::List(object) => {
                list.throttle.succeeded(0, now);
                self.observe_list(*object, true, now);
                None
            }
            ListWriteResult::Child(child) => {
                list.throttle.in_flight = false;
                if !child.metadata.uid.as_ref().is_some_and(|uid| self.gone.contains(uid)) {
                    let kind = WatchKind::Job(crate::kinds::IMAGE_PULL_JOB);
                    self.sync.created(&kind, &child.metadata);
                    self.observe_child(&child);
                }
                let name = child.metadata.name.as_deref().unwrap_or_default();
                Some(event(
                    "Successful create ImagePullJob",
                    format!("Create ImagePullJob {name}"),
                ))
            }
            ListWriteResult::ChildGone(child) => {
                list.throttle.in_flight = false;
                self.child_gone(&child);
                Some(event(
                    "Successful delete ImagePullJob",
                    format!("Delete ImagePullJob {}", child.name),
                ))
            }
            ListWriteResult::Absent => {
                self.lists.remove(key);
                None
            }
            ListWriteResult::CreationUnknown(error) => {
                list.unsure_until = now.checked_add(CREATION_SHOWS_WITHIN).ok();
                list.failed(key, &error, now);
                None
            }
            ListWriteResult::Failed(error) => {
                list.failed(key, &error, now);
                None
            }
        }
    }
}

/// Uid of the list that a job belongs to.
fn parent_of(job: &ImagePullJob) -> Option<String> {
    let owners = job.metadata.owner_references.iter().flatten();
    let mut lists = owners.filter(|owner| owner.kind == "ImageListPullJob" && owner.controller == Some(true));
    lists.next().map(|owner| owner.uid.clone())
}
