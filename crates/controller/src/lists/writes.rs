//! What is to be written for a list: children to create and to delete, its status, its deletion; and how that ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::contract::job_status_patch;
use larder_api::progress::HasProgress as _;
use larder_api::{ImageListPullJobStatus, ImagePullJob, ImagePullJobSpec};
use larder_model::ImageRef;
use larder_planner::kruise::list as rules;

use super::{ListJob, ListJobs, ListKey, ListTarget, ListWrite, ListWriteResult};
use crate::engine::{NewEvent, WatchKind};

/// How long a child whose creation has an unknown outcome is waited for before it is created again.
const CREATION_SHOWS_WITHIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// What is to be done with a child next.
pub(super) enum ListStep {
    Create(Box<ImagePullJobSpec>),
    Delete(ListKey, String),
}

impl ListJobs {
    /// The children of a list by image. Of two for one image the older one counts.
    fn children_of(&self, list: &ListJob) -> (BTreeMap<ImageRef, &ImagePullJob>, Vec<&ImagePullJob>) {
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
    pub(super) fn step(&self, list: &ListJob) -> Option<ListStep> {
        if list.is_leaving() || list.ended().is_some() || self.not_served.is_some() {
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

    pub(super) fn write(&self, key: &ListKey, now: Timestamp) -> Option<ListWrite> {
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
        let patch = job_status_patch(&list.uid, before, &status)?;
        let eta_alone = before.is_some_and(|before| before.differs_in_eta_alone(&status));
        let worth_writing = list.throttle.is_worth_writing(eta_alone, now);
        worth_writing.then_some(ListWrite::Status(patch))
    }

    fn status(&self, list: &ListJob, now: Timestamp) -> ImageListPullJobStatus {
        if let Some(why) = self.not_served {
            return rules::held(&list.object, why, now);
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
