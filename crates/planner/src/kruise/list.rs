//! ImageListPullJob: one child ImagePullJob per image.
//!
//! Children carry the list's template, with two exceptions: no time to live of their own (a finished child that leaves
//! early would be made again, and pull again), and a timeout that fits into the deadline.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube_core::{ObjectMeta, Resource as _};
use larder_api::image_list_pull_job::{FailedImageStatus, FinishedImage};
use larder_api::names::TEMPLATE_HASH_LABEL;
use larder_api::progress::JobProgress;
use larder_api::template::PullTemplate;
use larder_api::{ImageListPullJob, ImageListPullJobStatus, ImagePullJob, ImagePullJobSpec};
use larder_model::ImageRef;
use serde::Serialize;

use crate::conditions::{CompleteReason, Conditions, EndCondition, FailedReason, ProgressReason, failed};
use crate::dialect::status_number;
use crate::jitter;
use crate::not_served::StatusFields;

/// How the status shows that a list job is served.
pub const FIELDS: StatusFields = StatusFields {
    begun: &["startTime", "completionTime"],
    text: None,
};

/// What the children should be, by image. Images that are equal after normalisation count once.
pub fn children(list: &ImageListPullJob) -> Result<BTreeMap<ImageRef, ImagePullJobSpec>, String> {
    let template = child_template(&list.spec.template);
    let mut children = BTreeMap::new();
    for image in &list.spec.images {
        let reference = ImageRef::parse(image).map_err(|error| format!("{image}: {error}"))?;
        children.entry(reference).or_insert_with(|| ImagePullJobSpec {
            image: image.clone(),
            image_pull_policy: list.spec.image_pull_policy.clone(),
            template: template.clone(),
        });
    }
    Ok(children)
}

fn child_template(template: &PullTemplate) -> PullTemplate {
    let mut template = template.clone();
    let policy = &mut template.completion_policy;
    policy.ttl_seconds_after_finished = None;
    if let Some(deadline) = policy
        .active_deadline_seconds
        .and_then(|deadline| i32::try_from(deadline).ok())
    {
        let timeout = &mut template.pull_policy.timeout_seconds;
        *timeout = (*timeout).min(deadline.max(1));
    }
    template
}

/// Whether an existing child does what a wanted one would.
pub fn is_as_wanted(child: &ImagePullJobSpec, wanted: &ImagePullJobSpec) -> bool {
    let of = |spec: &ImagePullJobSpec| asks_for(spec.image_pull_policy.as_deref(), &spec.template);
    of(child) == of(wanted)
}

/// What a child is compared by: field by field, after the defaults that the API server writes. A time to live makes no
/// difference.
fn asks_for(policy: Option<&str>, template: &PullTemplate) -> (String, bool, Option<i64>, PullTemplate) {
    let policy = policy.filter(|text| !text.is_empty()).unwrap_or("IfNotPresent");
    let completion = &template.completion_policy;
    let rest = PullTemplate {
        completion_policy: larder_api::template::CompletionPolicy::default(),
        ..template.clone()
    };
    (
        policy.to_owned(),
        completion.is_never(),
        completion.active_deadline_seconds,
        rest,
    )
}

/// What every child of a list is asked for, as a hash: another one if and only if its children would be others.
fn revision(list: &ImageListPullJob) -> String {
    let template = child_template(&list.spec.template);
    let asked = asks_for(list.spec.image_pull_policy.as_deref(), &template);
    format!("{:x}", jitter::spread(&[&hashed_text(&asked)], u64::MAX))
}

/// The images that are done as the list wants them now, by its own word: whose child has ended, wherever it is.
pub fn finished(list: &ImageListPullJob) -> BTreeMap<ImageRef, &FinishedImage> {
    let said = list.status.iter().flat_map(|status| &status.finished_images);
    let revision = revision(list);
    let done = said.filter(|image| image.revision.as_ref() == Some(&revision));
    done.filter_map(|image| Some((ImageRef::parse(&image.name).ok()?, image)))
        .collect()
}

/// A child that does not exist yet.
pub fn child(list: &ImageListPullJob, spec: ImagePullJobSpec) -> ImagePullJob {
    let template = hashed_text(&list.spec.template);
    let hash = format!("{:x}", jitter::spread(&[&template], u64::MAX));
    let owner = OwnerReference {
        api_version: ImageListPullJob::api_version(&()).into_owned(),
        kind: ImageListPullJob::kind(&()).into_owned(),
        name: list.metadata.name.clone().unwrap_or_default(),
        uid: list.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ImagePullJob {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", list.metadata.name.as_deref().unwrap_or_default())),
            namespace: list.metadata.namespace.clone(),
            labels: Some([(TEMPLATE_HASH_LABEL.to_owned(), hash)].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The list's status, from its children by image. `wanted` are all the images there should be.
pub fn status(
    list: &ImageListPullJob,
    wanted: &BTreeMap<ImageRef, ImagePullJobSpec>,
    children: &BTreeMap<ImageRef, &ImagePullJob>,
    now: Timestamp,
) -> ImageListPullJobStatus {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let previous = list.status.as_ref();
    let (finished, revision) = (finished(list), revision(list));
    let mut status = ImageListPullJobStatus {
        start_time: previous
            .and_then(|status| status.start_time.clone())
            .or(Some(Time(now))),
        desired: status_number(wanted.len()),
        ..ImageListPullJobStatus::default()
    };
    let endless = list.spec.template.completion_policy.is_never();
    let mut why = None;
    for image in wanted.keys() {
        let failed = match (children.get(image), finished.get(image)) {
            (Some(child), _) => add_child(&mut status, child, endless, &revision),
            (None, Some(done)) => add_departed(&mut status, done),
            (None, None) => None,
        };
        why = why.or(failed);
    }
    let over = !endless && status.desired == status.completed;
    status.completion_time = over.then_some(Time(now));
    let mut conditions = Conditions::new(
        previous.map(|status| &*status.progress.conditions),
        list.metadata.generation,
        now,
    );
    let (done, all) = (status.succeeded, status.desired);
    match why {
        _ if !over => {
            let done = format!("{} of {all} images are done", status.completed);
            match waits_for(children).filter(|_| status.active == 0) {
                Some((reason, why)) => conditions.running(reason, &format!("{done}; {why}")),
                None => conditions.running(ProgressReason::Pulling, &done),
            }
        }
        why => {
            let complete = EndCondition::Complete(CompleteReason::AllNodesSucceeded);
            let end = why.map_or(complete, EndCondition::Failed);
            conditions.ended(end, &format!("{done} of {all} images are on all nodes"));
        }
    }
    status.progress.conditions = conditions.into_list();
    if over {
        status.progress.eta_seconds = None;
    }
    status
}

/// Adds a child to its list's status. Gives back why it failed, if it did.
fn add_child(
    status: &mut ImageListPullJobStatus,
    child: &ImagePullJob,
    endless: bool,
    revision: &str,
) -> Option<FailedReason> {
    let theirs = child.status.as_ref()?;
    let all = theirs.desired == theirs.succeeded + theirs.failed;
    let over = theirs.completion_time.is_some() || endless && 0 < theirs.desired && all;
    let failed = failed(&theirs.progress.conditions);
    status.active += i32::from(0 < theirs.active);
    status.completed += i32::from(over);
    status.succeeded += i32::from(over && theirs.failed == 0 && failed.is_none());
    let name = child.metadata.name.as_deref().unwrap_or_default();
    if 0 < theirs.failed {
        status.failed_image_statuses.push(failed_image(&child.spec.image, name));
    }
    // One that OpenKruise ended has no conditions, and says by its counts alone that nodes failed.
    let nodes_failed = || (over && 0 < theirs.failed).then_some(FailedReason::NodesFailed);
    let reason = failed.map(|condition| FailedReason::parse(&condition.reason));
    let reason = reason.or_else(nodes_failed);
    if theirs.completion_time.is_some() {
        status.finished_images.push(FinishedImage {
            name: child.spec.image.clone(),
            image_pull_job: Some(name.to_owned()),
            reason: reason.map(|reason| reason.as_str().to_owned()),
            revision: Some(revision.to_owned()),
        });
    }
    add(&mut status.progress, &theirs.progress);
    reason
}

/// Adds an image whose child is gone, and of which the list remembers how it ended.
fn add_departed(status: &mut ImageListPullJobStatus, done: &FinishedImage) -> Option<FailedReason> {
    status.completed += 1;
    status.succeeded += i32::from(done.reason.is_none());
    if done.reason.is_some() {
        let name = done.image_pull_job.as_deref().unwrap_or_default();
        status.failed_image_statuses.push(failed_image(&done.name, name));
    }
    status.finished_images.push(done.clone());
    done.reason.as_deref().map(FailedReason::parse)
}

/// What the first child that is not over waits for, and for which image. One that has said nothing yet is about to begin.
fn waits_for(children: &BTreeMap<ImageRef, &ImagePullJob>) -> Option<(ProgressReason, String)> {
    let mut open = children.iter().filter_map(|(image, child)| {
        let status = child.status.as_ref()?;
        let (reason, message) = ProgressReason::read(&status.progress.conditions)?;
        Some((reason, format!("{}: {message}", image.familiar())))
    });
    open.next()
}

/// The status of a list that says something which cannot be carried out.
pub fn refused(list: &ImageListPullJob, why: &str, now: Timestamp) -> ImageListPullJobStatus {
    told(list, now, |conditions| {
        conditions.ended(EndCondition::Failed(FailedReason::InvalidSpec), why);
    })
}

/// The status of a list that is not served for now. It has not failed: whoever waits for that would give up.
pub fn held(list: &ImageListPullJob, why: &str, now: Timestamp) -> ImageListPullJobStatus {
    told(list, now, |conditions| conditions.running(ProgressReason::Paused, why))
}

fn told(list: &ImageListPullJob, now: Timestamp, tell: impl FnOnce(&mut Conditions)) -> ImageListPullJobStatus {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let previous = list.status.as_ref();
    let before = previous.map(|status| &*status.progress.conditions);
    let mut conditions = Conditions::new(before, list.metadata.generation, now);
    tell(&mut conditions);
    let mut status = previous.cloned().unwrap_or_default();
    status.progress.conditions = conditions.into_list();
    status
}

/// The text that a hash is made of; an API type has no failing serializer.
fn hashed_text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn failed_image(image: &str, child: &str) -> FailedImageStatus {
    FailedImageStatus {
        message: Some(format!(
            "Please check for details which nodes failed by 'kubectl get ImagePullJob {child}'."
        )),
        name: Some(image.to_owned()),
        image_pull_job: Some(child.to_owned()),
    }
}

fn add(sum: &mut JobProgress, one: &JobProgress) {
    let plus = |a: Option<i64>, b: Option<i64>| [a, b].into_iter().flatten().reduce(i64::saturating_add);
    sum.bytes_total = plus(sum.bytes_total, one.bytes_total);
    sum.bytes_done = plus(sum.bytes_done, one.bytes_done);
    sum.eta_seconds = sum.eta_seconds.max(one.eta_seconds);
    for (reason, count) in &one.reasons {
        *sum.reasons.entry(reason.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests;
