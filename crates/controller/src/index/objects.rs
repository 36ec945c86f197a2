//! The object of a job of either kind that pulls by itself, and what such an object says about itself.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::ObjectMeta;
use larder_api::names::{KRUISE_FINALIZER, KUBEEDGE_FINALIZER};
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus, ImagePullJob, ImagePullJobStatus};
use larder_planner::{prepull, status};
use serde_json::{Value, json};

use super::jobs::Refusal;
use super::statuses::{GATE_OFF, status_patch};
use crate::kinds::{image_pre_pull_job, image_pull_job};

/// A job's object.
#[derive(Clone, Debug)]
pub(super) enum JobObject {
    Pull(Box<ImagePullJob>),
    PrePull(Box<ImagePrePullJob>),
}

/// A job's status.
#[derive(Clone, Debug)]
pub(super) enum JobStatus {
    Pull(Box<ImagePullJobStatus>),
    PrePull(Box<ImagePrePullJobStatus>),
}

impl JobObject {
    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Pull(job) => &job.metadata,
            Self::PrePull(job) => &job.metadata,
        }
    }

    pub(super) fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Pull(job) => &mut job.metadata,
            Self::PrePull(job) => &mut job.metadata,
        }
    }

    /// The object, if it is an ImagePullJob.
    pub(super) fn pull(&self) -> Option<&ImagePullJob> {
        match self {
            Self::Pull(job) => Some(job),
            Self::PrePull(_) => None,
        }
    }

    /// How entries and Events name it.
    pub(super) fn reference(&self) -> ObjectReference {
        match self {
            Self::Pull(job) => image_pull_job::reference(job),
            Self::PrePull(job) => prepull::campaign::reference(job),
        }
    }

    /// Whether the API knows that it is over.
    pub(super) fn says_over(&self) -> bool {
        match self {
            Self::Pull(job) => job
                .status
                .as_ref()
                .is_some_and(|status| status.completion_time.is_some()),
            Self::PrePull(job) => image_pre_pull_job::is_over(job),
        }
    }

    /// How many nodes it says that it is for.
    pub(super) fn desired(&self) -> usize {
        let desired = match self {
            Self::Pull(job) => job.status.as_ref().map(|status| status.desired),
            Self::PrePull(job) => job.status.as_ref().map(|status| status.desired),
        };
        usize::try_from(desired.unwrap_or(0)).unwrap_or(0)
    }

    /// The patch that gives it this status; None if it has it.
    pub(super) fn status_patch(&self, uid: &str, status: &JobStatus) -> Option<Value> {
        match (self, status) {
            (Self::Pull(job), JobStatus::Pull(status)) => status_patch(uid, job.status.as_ref(), &**status),
            (Self::PrePull(job), JobStatus::PrePull(status)) => status_patch(uid, job.status.as_ref(), &**status),
            (Self::Pull(_), JobStatus::PrePull(_)) | (Self::PrePull(_), JobStatus::Pull(_)) => None,
        }
    }

    /// What it is told instead of being served.
    pub(super) fn refused(&self, refusal: &Refusal, now: Timestamp) -> JobStatus {
        let generation = self.metadata().generation;
        match (self, refusal) {
            (Self::Pull(job), Refusal::Spec(why)) => {
                JobStatus::Pull(Box::new(status::refused(job.status.as_ref(), generation, why, now)))
            }
            (Self::Pull(job), Refusal::GateOff) => JobStatus::Pull(Box::new(ImagePullJobStatus {
                message: Some(GATE_OFF.to_owned()),
                ..job.status.clone().unwrap_or_default()
            })),
            (Self::PrePull(job), Refusal::Spec(why)) => {
                let status = prepull::status::refused(job.status.as_ref(), generation, why, now);
                JobStatus::PrePull(Box::new(status))
            }
            (Self::PrePull(job), Refusal::GateOff) => JobStatus::PrePull(Box::new(ImagePrePullJobStatus {
                reason: Some(GATE_OFF.to_owned()),
                ..job.status.clone().unwrap_or_default()
            })),
        }
    }

    /// The finalizer that the software which the kind comes from puts on it, if it is there.
    pub(super) fn foreign_finalizer(&self) -> Option<&'static str> {
        let theirs = match self {
            Self::Pull(_) => KRUISE_FINALIZER,
            Self::PrePull(_) => KUBEEDGE_FINALIZER,
        };
        let mut finalizers = self.metadata().finalizers.iter().flatten();
        finalizers.any(|finalizer| finalizer == theirs).then_some(theirs)
    }

    /// Takes out that finalizer, wherever it stands.
    pub(super) fn finalizer_patch(&self) -> Option<Value> {
        let theirs = self.foreign_finalizer()?;
        let finalizers = self.metadata().finalizers.as_ref()?;
        let place = finalizers.iter().position(|finalizer| finalizer == theirs)?;
        let path = format!("/metadata/finalizers/{place}");
        Some(json!([
            { "op": "test", "path": path, "value": theirs },
            { "op": "remove", "path": path },
        ]))
    }
}

impl JobStatus {
    pub(super) fn conditions(&self) -> &[Condition] {
        match self {
            Self::Pull(status) => &status.progress.conditions,
            Self::PrePull(status) => &status.progress.conditions,
        }
    }

    /// Nodes that have what was asked for, that failed, and that there are.
    pub(super) fn counts(&self) -> (i32, i32, i32) {
        match self {
            Self::Pull(status) => (status.succeeded, status.failed, status.desired),
            Self::PrePull(status) => (status.succeeded, status.failed, status.desired),
        }
    }

    /// When the job ended, as it says.
    pub(super) fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Pull(status) => status.completion_time.as_ref().map(|time| time.0),
            Self::PrePull(status) => prepull::verdict::ended(status),
        }
    }
}
