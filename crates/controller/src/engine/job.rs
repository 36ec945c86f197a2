//! A job of any kind, as the engine holds it: its object as last seen, and what its dialect keeps while it runs.
//!
//! [`Job`] erases the kind; [`TypedJob`] is its only implementation, for every [`Dialect`].

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::core::ObjectMeta;
use larder_api::contract::job_status_patch;
use larder_api::progress::HasProgress as _;
use larder_model::{ImageRef, Reason};
use larder_planner::campaign::Campaign;
use larder_planner::dialect::{
    Candidate, Dialect, Finished, Fleet, JobStatus, Plan, Refusal, Relabelled, StatusCounts,
};
use larder_planner::explain::Explanation;
use larder_planner::finish::End;
use larder_planner::report::{Failure, NodeReport};
use larder_planner::secret::UnusableSecrets;
use larder_planner::{NodeKey, Progress};
use serde_json::{Value, json};

use super::jobs::JobKey;
use crate::kinds::KindId;

/// A job of any kind.
pub trait Job: Any + Send {
    fn kind(&self) -> KindId;
    fn metadata(&self) -> &ObjectMeta;
    /// How entries and Events name it.
    fn reference(&self) -> ObjectReference;
    /// The finalizer of the software that the kind comes from.
    fn foreign_finalizer(&self) -> Option<&'static str>;
    /// Whether it is part of another job, and goes with that one.
    fn has_parent(&self) -> bool;
    /// What gives its object this status; None if it has it.
    fn status_patch(&self, status: &AnyStatus) -> Option<StatusPatch>;
    /// The counts in its object's status.
    fn counts(&self) -> StatusCounts;
    fn started(&self) -> Option<Timestamp>;
    fn finished(&self) -> Option<Finished>;
    /// Takes over the object of a job of the same kind.
    fn replace_object(&mut self, newer: Box<dyn Job>);
    /// What the job asks for, if that changed: a campaign, and nodes that had succeeded before.
    fn plan(
        &mut self,
        fleet: &dyn Fleet,
        progress: Option<&Progress>,
    ) -> Result<Option<(Campaign, Vec<NodeKey>)>, Refusal>;
    /// Whether a node's task may depend on its labels.
    fn follows_labels(&self) -> bool;
    fn relabelled(&mut self, progress: &Progress, node: &NodeKey, known: Candidate<'_>) -> Option<Relabelled>;
    /// Takes in what a node reports about its task, and says whether that is news.
    fn reported(&mut self, node: &NodeKey, report: Option<NodeReport>) -> bool;
    fn rephrase(&self, progress: &Progress, image: &ImageRef, handed_out: Timestamp, reason: Reason)
    -> Option<Failure>;
    fn status(
        &self,
        progress: &mut Progress,
        unusable: &UnusableSecrets,
        end: Option<End>,
        now: Timestamp,
    ) -> Option<AnyStatus>;
    fn refused(&self, refusal: &Refusal, now: Timestamp) -> AnyStatus;
    fn explain(
        &self,
        progress: &Progress,
        unusable: &UnusableSecrets,
        nodes: &BTreeMap<NodeKey, Option<Candidate<'_>>>,
        now: Timestamp,
    ) -> Vec<(NodeKey, Explanation)>;
    /// Forgets what the dialect keeps while the job runs.
    fn stop(&mut self);
}

/// A status of any kind, to be written.
#[derive(Clone, Debug)]
pub struct AnyStatus {
    /// The `Dialect::Status`.
    status: Arc<dyn Any + Send + Sync>,
    pub(super) counts: StatusCounts,
    pub(super) ended: Option<Timestamp>,
    /// How the job failed, in words, if it did.
    pub(super) failure: Option<String>,
    /// What the job has achieved.
    pub(super) achievement: String,
}

/// A write of a job's status.
#[derive(Clone, Debug)]
pub struct StatusPatch {
    /// A JSON patch.
    pub(super) patch: Value,
    /// Nothing changes but the estimated time.
    pub(super) eta_alone: bool,
}

/// A job of one kind.
pub struct TypedJob<D: Dialect> {
    kind: KindId,
    object: D::Object,
    run: Option<D::Run>,
}

impl<D: Dialect> TypedJob<D> {
    pub fn boxed(kind: KindId, mut object: D::Object) -> Box<dyn Job> {
        object.meta_mut().managed_fields = None;
        Box::new(Self {
            kind,
            object,
            run: None,
        })
    }

    fn erase(&self, status: D::Status) -> AnyStatus {
        AnyStatus {
            counts: status.counts(),
            ended: status.ended(),
            failure: status.failure().map(str::to_owned),
            achievement: D::achievement(&self.object, status.counts()),
            status: Arc::new(status),
        }
    }
}

/// The object of a job, if it is of this kind.
pub(crate) fn object_of<D: Dialect>(job: &dyn Job) -> Option<&D::Object> {
    let job: &dyn Any = job;
    job.downcast_ref::<TypedJob<D>>().map(|job| &job.object)
}

impl<D: Dialect> Job for TypedJob<D> {
    fn kind(&self) -> KindId {
        self.kind
    }

    fn metadata(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn reference(&self) -> ObjectReference {
        let metadata = self.metadata();
        ObjectReference {
            api_version: Some(D::Object::api_version(&()).into_owned()),
            kind: Some(D::Object::kind(&()).into_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }

    fn foreign_finalizer(&self) -> Option<&'static str> {
        D::FOREIGN_FINALIZER
    }

    fn has_parent(&self) -> bool {
        D::has_parent(&self.object)
    }

    fn status_patch(&self, status: &AnyStatus) -> Option<StatusPatch> {
        let wanted: &D::Status = status.status.downcast_ref()?;
        let current = D::status_of(&self.object);
        let uid = self.metadata().uid.as_deref().unwrap_or_default();
        Some(StatusPatch {
            patch: job_status_patch(uid, current, wanted)?,
            eta_alone: current.is_some_and(|current| current.differs_in_eta_alone(wanted)),
        })
    }

    fn counts(&self) -> StatusCounts {
        D::status_of(&self.object).map(JobStatus::counts).unwrap_or_default()
    }

    fn started(&self) -> Option<Timestamp> {
        D::started(&self.object)
    }

    fn finished(&self) -> Option<Finished> {
        D::finished(&self.object)
    }

    fn replace_object(&mut self, newer: Box<dyn Job>) {
        let newer: Box<dyn Any> = newer;
        if let Ok(newer) = newer.downcast::<Self>() {
            self.object = newer.object;
        }
    }

    fn plan(
        &mut self,
        fleet: &dyn Fleet,
        progress: Option<&Progress>,
    ) -> Result<Option<(Campaign, Vec<NodeKey>)>, Refusal> {
        let earlier = self.run.as_ref().zip(progress);
        match D::plan(&self.object, fleet, earlier)? {
            Plan::Unchanged => Ok(None),
            Plan::Campaign {
                campaign,
                run,
                succeeded_before,
            } => {
                self.run = Some(run);
                Ok(Some((*campaign, succeeded_before)))
            }
        }
    }

    fn follows_labels(&self) -> bool {
        D::FOLLOWS_LABELS
    }

    fn relabelled(&mut self, progress: &Progress, node: &NodeKey, known: Candidate<'_>) -> Option<Relabelled> {
        D::relabelled(self.run.as_mut()?, progress, node, known)
    }

    fn reported(&mut self, node: &NodeKey, report: Option<NodeReport>) -> bool {
        let run = self.run.as_mut();
        run.is_some_and(|run| D::reported(run, node, report))
    }

    fn rephrase(
        &self,
        progress: &Progress,
        image: &ImageRef,
        handed_out: Timestamp,
        reason: Reason,
    ) -> Option<Failure> {
        D::rephrase(progress, image, handed_out, reason)
    }

    fn status(
        &self,
        progress: &mut Progress,
        unusable: &UnusableSecrets,
        end: Option<End>,
        now: Timestamp,
    ) -> Option<AnyStatus> {
        let status = D::status(self.run.as_ref()?, &self.object, progress, unusable, end, now);
        Some(self.erase(status))
    }

    fn refused(&self, refusal: &Refusal, now: Timestamp) -> AnyStatus {
        self.erase(D::refused(&self.object, refusal, now))
    }

    fn explain(
        &self,
        progress: &Progress,
        unusable: &UnusableSecrets,
        nodes: &BTreeMap<NodeKey, Option<Candidate<'_>>>,
        now: Timestamp,
    ) -> Vec<(NodeKey, Explanation)> {
        let run = self.run.as_ref();
        run.map(|run| D::explain(run, progress, unusable, nodes, now))
            .unwrap_or_default()
    }

    fn stop(&mut self) {
        self.run = None;
    }
}

impl dyn Job {
    pub fn key(&self) -> JobKey {
        let metadata = self.metadata();
        JobKey {
            kind: self.kind(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    pub(super) fn uid(&self) -> String {
        self.metadata().uid.clone().unwrap_or_default()
    }

    /// Whether its object carries the finalizer of the software that the kind comes from.
    pub(super) fn has_foreign_finalizer(&self) -> bool {
        self.finalizer_position().is_some()
    }

    fn finalizer_position(&self) -> Option<(usize, &'static str)> {
        let theirs = self.foreign_finalizer()?;
        let mut finalizers = self.metadata().finalizers.iter().flatten();
        let position = finalizers.position(|finalizer| finalizer == theirs)?;
        Some((position, theirs))
    }

    /// The patch that takes that finalizer off, wherever it stands.
    pub(super) fn finalizer_patch(&self) -> Option<Value> {
        let (position, theirs) = self.finalizer_position()?;
        let path = format!("/metadata/finalizers/{position}");
        Some(json!([
            { "op": "test", "path": path, "value": theirs },
            { "op": "remove", "path": path },
        ]))
    }
}
