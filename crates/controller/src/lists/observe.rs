//! What the watches show of lists and of their children.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_model::ImageRef;

use super::{ListJob, ListJobs, ListKey};
use crate::engine::{WatchEvent, WatchKind, WriteThrottle, object_name, revision};

/// Uids of children that are remembered after the objects are gone.
const GONE: usize = 4_096;

impl ListJobs {
    /// Takes in what a watch shows of lists.
    pub fn observe(&mut self, kind: &WatchKind, event: &WatchEvent, now: Timestamp) {
        let listed = self.sync.observe(kind, event, now);
        match (kind, event) {
            (WatchKind::ParentJob, WatchEvent::ParentJob(list)) => self.observe_list((**list).clone(), false, now),
            (WatchKind::ParentJob, WatchEvent::Gone { namespace, name }) => {
                let key = ListKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                self.lists.remove(&key);
            }
            (WatchKind::ParentJob, WatchEvent::ListComplete) => {
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

    pub(super) fn observe_list(&mut self, mut list: ImageListPullJob, from_write: bool, now: Timestamp) {
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
                let list = ListJob {
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

    pub(super) fn child_gone(&mut self, key: &ListKey) {
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
}

/// Uid of the list that a job belongs to.
fn parent_of(job: &ImagePullJob) -> Option<String> {
    let owners = job.metadata.owner_references.iter().flatten();
    let mut lists = owners.filter(|owner| owner.kind == "ImageListPullJob" && owner.controller == Some(true));
    lists.next().map(|owner| owner.uid.clone())
}
