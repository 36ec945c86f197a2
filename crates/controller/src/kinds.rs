//! The kinds of jobs that the controller serves, each registered once. This module reads and writes their objects; what
//! they mean is in `larder_planner`.

use std::borrow::Cow;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ApiResource;
use kube::{Api, Client, Resource};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_planner::dialect::Dialect;
use larder_planner::kruise::{self, PullJobs};
use larder_planner::kubeedge::{self, PrePullJobs};
use larder_planner::not_served::StatusFields;
use serde::de::DeserializeOwned;

use crate::core::metrics::Metrics;
use crate::core::watches::{Outlet, follow_jobs};
use crate::core::writes::write_job;
use crate::engine::{Job, JobTarget, JobWrite, JobWriteResult, TypedJob, object_of};

/// A kind of job: its place in `KINDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(u8);

/// How objects of a kind are read and written.
pub(crate) struct JobKind {
    /// API group and kind.
    name: fn() -> (Cow<'static, str>, Cow<'static, str>),
    /// Whether the kind's status quotes what nodes report.
    pub(crate) quotes_nodes: bool,
    pub(crate) watch: fn(KindId, Client, Outlet) -> BoxFuture<'static, ()>,
    pub(crate) write: fn(Client, JobTarget, JobWrite, Metrics) -> BoxFuture<'static, JobWriteResult>,
}

/// Every kind of job. A new one is one line here.
pub(crate) static KINDS: [JobKind; 2] = [JobKind::of::<PullJobs>(), JobKind::of::<PrePullJobs>()];

/// The kind of job that creates other jobs.
pub use larder_api::ImageListPullJob as ParentJob;

/// ImagePullJobs, which ImageListPullJobs create.
pub(crate) const IMAGE_PULL_JOB: KindId = KindId(0);

impl JobKind {
    const fn of<D>() -> Self
    where
        D: Dialect,
        D::Object: DeserializeOwned,
    {
        Self {
            name: || (D::Object::group(&()), D::Object::kind(&())),
            quotes_nodes: D::QUOTES_NODES,
            watch: |kind, client, outlet| {
                let jobs = Api::all(client);
                Box::pin(follow_jobs::<D>(kind, jobs, outlet))
            },
            write: |client, target, write, metrics| Box::pin(write_job::<D>(client, target, write, metrics)),
        }
    }
}

impl KindId {
    /// Every kind.
    pub(crate) fn all() -> impl Iterator<Item = KindId> {
        (0..KINDS.len())
            .filter_map(|number| u8::try_from(number).ok())
            .map(KindId)
    }

    pub(crate) fn kind(self) -> &'static JobKind {
        &KINDS[usize::from(self.0)]
    }

    /// What the kind is called.
    pub(crate) fn name(self) -> Cow<'static, str> {
        (self.kind().name)().1
    }

    /// The kind with this API group and name.
    pub(crate) fn named(group: &str, name: &str) -> Option<KindId> {
        KindId::all().find(|kind| (kind.kind().name)() == (Cow::Borrowed(group), Cow::Borrowed(name)))
    }

    /// The kind that an owner reference names.
    pub(crate) fn of_reference(reference: &ObjectReference) -> Option<KindId> {
        let (group, _) = reference.api_version.as_deref()?.split_once('/')?;
        KindId::named(group, reference.kind.as_deref()?)
    }

    /// The kind of a dialect.
    pub fn of<D: Dialect>() -> Option<KindId> {
        KindId::named(&D::Object::group(&()), &D::Object::kind(&()))
    }
}

/// The kinds that people write, in the version that every CRD of them has had, each with the fields by which its status
/// says whether it is served.
pub(crate) fn written_kinds() -> [(ApiResource, StatusFields); 3] {
    fn oldest<K: Resource<DynamicType = ()>>() -> ApiResource {
        let mut resource = ApiResource::erase::<K>(&());
        "v1alpha1".clone_into(&mut resource.version);
        resource.api_version = format!("{}/{}", resource.group, resource.version);
        resource
    }
    [
        (oldest::<ImagePullJob>(), kruise::status::FIELDS),
        (oldest::<ImageListPullJob>(), kruise::list::FIELDS),
        (oldest::<ImagePrePullJob>(), kubeedge::status::FIELDS),
    ]
}

/// A job of a dialect, as the engine holds it.
pub fn job<D: Dialect>(object: D::Object) -> Option<Box<dyn Job>> {
    Some(TypedJob::<D>::boxed(KindId::of::<D>()?, object))
}

/// A job that a [`ParentJob`] created, as the engine holds it.
pub(crate) fn child_job(object: ImagePullJob) -> Option<Box<dyn Job>> {
    job::<PullJobs>(object)
}

/// The object of an ImagePullJob.
pub(crate) fn image_pull_job(job: &dyn Job) -> Option<&ImagePullJob> {
    object_of::<PullJobs>(job)
}
