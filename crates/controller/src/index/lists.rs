//! One ImageListPullJob: its children, which are ImagePullJobs like all others, and its status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use larder_api::{ImageListPullJob, ImageListPullJobStatus, ImagePullJob, ImagePullJobSpec};
use larder_model::ImageRef;
use tracing::warn;

use super::desk::Desk;
use super::jobs::{JobState, revision};
use super::notes::{Note, list_reference};
use super::objects::JobObject;
use super::statuses::{CREATION_SHOWS_WITHIN, GATE_OFF, status_patch};
use super::{Index, JobKey, ObjectAction, ObjectAnswer};
use crate::kinds::image_list_pull_job as kind;

/// What is known of one list.
pub(super) struct ListRecord {
    pub(super) key: JobKey,
    pub(super) uid: String,
    object: ImageListPullJob,
    ahead_of_watch: bool,
    pub(super) desk: Desk,
    /// A child whose creation nobody knows the outcome of; the watch shows it if there is one.
    unsure_until: Option<Timestamp>,
    /// Children that ended and were deleted by somebody: they are not made again. The list says so itself, but less of it.
    departed: BTreeMap<ImageRef, ImagePullJob>,
}

impl ListRecord {
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
}

impl Index {
    pub(super) fn see_list(&mut self, list: ImageListPullJob, _now: Timestamp) {
        self.take_in_list(list, false);
    }

    fn take_in_list(&mut self, mut list: ImageListPullJob, from_write: bool) {
        list.metadata.managed_fields = None;
        let key = JobKey::of(&list.metadata);
        let uid = list.metadata.uid.clone().unwrap_or_default();
        match self.lists.get_mut(&key).filter(|record| record.uid == uid) {
            Some(record) if record.ahead_of_watch && revision(&list) < revision(&record.object) => return,
            Some(record) => {
                record.object = list;
                record.ahead_of_watch = from_write;
            }
            None => {
                let record = ListRecord {
                    key: key.clone(),
                    uid,
                    object: list,
                    ahead_of_watch: from_write,
                    desk: Desk::default(),
                    unsure_until: None,
                    departed: BTreeMap::new(),
                };
                self.lists.insert(key.clone(), record);
            }
        }
        self.agenda.list(&key);
    }

    pub(super) fn list_gone(&mut self, key: &JobKey) {
        self.lists.remove(key);
    }

    /// Notes when a list, or one of its children, may be written.
    pub(super) fn decide_list(&mut self, key: &JobKey, now: Timestamp) {
        let Some(record) = self.lists.get(key) else {
            return;
        };
        let urgent = record.ended().is_some() || self.list_step(record).is_some();
        let later = record.leaves_at().filter(|moment| now < *moment);
        let (under_way, free, not_before) = (record.desk.under_way, record.desk.is_free(now), record.desk.not_before);
        let waits = record.unsure_until.filter(|until| now < *until);
        if !under_way && waits.is_none() && (urgent || free) {
            self.agenda.write_list(key);
            self.agenda.list_later(key, later);
        } else if !under_way {
            let next = [later, waits, Some(not_before).filter(|moment| now < *moment)];
            self.agenda.list_later(key, next.into_iter().flatten().min());
        }
    }

    /// The children of a list by image. Of two for one image the older one counts.
    fn children_of(&self, list: &ListRecord) -> (BTreeMap<ImageRef, &ImagePullJob>, Vec<&ImagePullJob>) {
        let mut children: BTreeMap<ImageRef, &ImagePullJob> = BTreeMap::new();
        let mut extra = Vec::new();
        for record in self.jobs.values() {
            if record.parent() != Some(&list.uid) || matches!(record.state, JobState::Leaving(_)) {
                continue;
            }
            let Some(child) = record.object.pull() else {
                continue;
            };
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
    fn list_step(&self, list: &ListRecord) -> Option<ListStep> {
        if list.is_leaving() || list.ended().is_some() || !self.limits.serve_jobs {
            return None;
        }
        let wanted = kind::children(&list.object).ok()?;
        let (children, extra) = self.children_of(list);
        let unwanted = |(image, child): &(&ImageRef, &&ImagePullJob)| {
            wanted
                .get(*image)
                .is_none_or(|spec| !kind::is_as_wanted(&child.spec, spec))
        };
        let superfluous = extra
            .first()
            .copied()
            .or_else(|| children.iter().find(unwanted).map(|(_, child)| *child));
        if let Some(child) = superfluous {
            return Some(ListStep::Delete(
                JobKey::of(&child.metadata),
                child.metadata.uid.clone()?,
            ));
        }
        let finished = kind::finished(&list.object);
        let missing = wanted.into_iter().find(|(image, spec)| {
            let known = list
                .departed
                .get(image)
                .is_some_and(|child| kind::is_as_wanted(&child.spec, spec));
            !children.contains_key(image) && !known && !finished.contains_key(image)
        });
        missing.map(|(_, spec)| ListStep::Create(Box::new(spec)))
    }

    pub(super) fn list_action(&mut self, key: &JobKey, now: Timestamp) -> Option<ObjectAction> {
        let record = self.lists.get(key)?;
        if record.desk.under_way || record.is_leaving() {
            return None;
        }
        match self.list_step(record) {
            Some(ListStep::Create(spec)) => {
                return Some(ObjectAction::CreateChild(Box::new(kind::child(&record.object, *spec))));
            }
            Some(ListStep::Delete(child, uid)) => return Some(ObjectAction::DeleteChild { child, uid }),
            None => {}
        }
        if record.ended().is_some() {
            let due = record.leaves_at().is_some_and(|moment| moment <= now);
            return due.then(|| ObjectAction::Delete {
                uid: record.uid.clone(),
            });
        }
        let status = self.list_status(record, now);
        status_patch(&record.uid, record.object.status.as_ref(), &status).map(ObjectAction::Status)
    }

    fn list_status(&self, record: &ListRecord, now: Timestamp) -> ImageListPullJobStatus {
        if !self.limits.serve_jobs {
            return kind::held(&record.object, GATE_OFF, now);
        }
        match kind::children(&record.object) {
            Err(why) => kind::refused(&record.object, &why, now),
            Ok(wanted) => {
                let (mut children, _) = self.children_of(record);
                for (image, child) in &record.departed {
                    children.entry(image.clone()).or_insert(child);
                }
                children.retain(|image, _| wanted.contains_key(image));
                kind::status(&record.object, &wanted, &children, now)
            }
        }
    }

    pub(super) fn list_written(&mut self, key: &JobKey, answer: ObjectAnswer, now: Timestamp) {
        let Some(record) = self.lists.get_mut(key) else {
            return;
        };
        match answer {
            ObjectAnswer::List(object) => {
                record.desk.succeeded(0, now);
                self.take_in_list(*object, true);
            }
            ObjectAnswer::Job(child) => {
                record.desk.under_way = false;
                let name = child.metadata.name.clone().unwrap_or_default();
                let note = Note {
                    subject: list_reference(&record.object),
                    warning: false,
                    reason: "Successful create ImagePullJob",
                    text: format!("Create ImagePullJob {name}"),
                };
                self.notes.push(note);
                self.take_in_job(JobObject::Pull(child), true, now);
            }
            ObjectAnswer::ChildGone(child) => {
                record.desk.under_way = false;
                let note = Note {
                    subject: list_reference(&record.object),
                    warning: false,
                    reason: "Successful delete ImagePullJob",
                    text: format!("Delete ImagePullJob {}", child.name),
                };
                self.notes.push(note);
                self.job_gone(&child, now);
            }
            ObjectAnswer::PrePull(_) => record.desk.under_way = false,
            ObjectAnswer::Absent => self.list_gone(key),
            ObjectAnswer::Failed(error) => {
                record.unsure_until = now.checked_add(CREATION_SHOWS_WITHIN).ok();
                if record.desk.failed(now) {
                    warn!(
                        namespace = key.namespace,
                        list = key.name,
                        error,
                        "a list job could not be written; trying again"
                    );
                }
            }
        }
        self.agenda.list(key);
    }

    /// A child that ended and was deleted stays in its list's memory.
    pub(super) fn remember_child(&mut self, child: &ImagePullJob, parent: &str) {
        let ended = child
            .status
            .as_ref()
            .is_some_and(|status| status.completion_time.is_some());
        let Ok(image) = ImageRef::parse(&child.spec.image) else {
            return;
        };
        let list = self.lists.values_mut().find(|list| list.uid == parent);
        if let Some(list) = list.filter(|_| ended) {
            list.departed.insert(image, child.clone());
        }
    }
}

enum ListStep {
    Create(Box<ImagePullJobSpec>),
    Delete(JobKey, String),
}
