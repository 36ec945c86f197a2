//! ImagePullJob as a [`Dialect`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use larder_api::{ImagePullJob, ImagePullJobStatus};

use super::campaign::campaign;
use super::status;
use crate::dialect::{Candidate, Dialect, Finished, Fleet, JobStatus, Plan, Refusal, StatusCounts};
use crate::explain::Explanation;
use crate::finish::End;
use crate::progress::Progress;
use crate::secret::UnusableSecrets;
use crate::view::NodeKey;

/// The kind `ImagePullJob`.
#[derive(Debug)]
pub enum PullJobs {}

impl Dialect for PullJobs {
    type Object = ImagePullJob;
    type Status = ImagePullJobStatus;
    type Run = ();

    const FOREIGN_FINALIZER: Option<&'static str> = Some(larder_api::names::KRUISE_FINALIZER);

    fn status_of(object: &ImagePullJob) -> Option<&ImagePullJobStatus> {
        object.status.as_ref()
    }

    fn started(object: &ImagePullJob) -> Option<Timestamp> {
        let status = object.status.as_ref()?;
        status.start_time.as_ref().map(|time| time.0)
    }

    fn finished(object: &ImagePullJob) -> Option<Finished> {
        let at = object.status.as_ref()?.completion_time.as_ref()?.0;
        let campaign = campaign(object).ok();
        Some(Finished {
            at: Some(at),
            pins: campaign.as_ref().is_some_and(|campaign| campaign.rules.pin),
            ttl: campaign.and_then(|campaign| campaign.ttl()),
        })
    }

    /// A child of an ImageListPullJob.
    fn has_parent(object: &ImagePullJob) -> bool {
        let mut owners = object.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.kind == "ImageListPullJob" && owner.controller == Some(true))
    }

    fn plan(object: &ImagePullJob, _fleet: &dyn Fleet, earlier: Option<(&(), &Progress)>) -> Result<Plan<()>, Refusal> {
        let campaign = campaign(object).map_err(Refusal::InvalidSpec)?;
        if earlier.is_some_and(|((), progress)| *progress.campaign() == campaign) {
            return Ok(Plan::Unchanged);
        }
        Ok(Plan::Campaign {
            campaign: Box::new(campaign),
            run: (),
            succeeded_before: Vec::new(),
        })
    }

    fn status(
        (): &(),
        object: &ImagePullJob,
        progress: &mut Progress,
        _unusable: &UnusableSecrets,
        end: Option<End>,
        now: Timestamp,
    ) -> ImagePullJobStatus {
        progress.pull_job_status(object.status.as_ref(), object.metadata.generation, end, now)
    }

    fn refused(object: &ImagePullJob, refusal: &Refusal, now: Timestamp) -> ImagePullJobStatus {
        status::refused(object.status.as_ref(), object.metadata.generation, refusal, now)
    }

    fn achievement(object: &ImagePullJob, counts: StatusCounts) -> String {
        let StatusCounts { succeeded, desired, .. } = counts;
        format!("Image {} is on {succeeded} of {desired} nodes", object.spec.image)
    }

    fn explain(
        (): &(),
        progress: &Progress,
        _unusable: &UnusableSecrets,
        nodes: &BTreeMap<NodeKey, Option<Candidate<'_>>>,
        now: Timestamp,
    ) -> Vec<(NodeKey, Explanation)> {
        let explained = nodes.keys().map(|node| (node.clone(), progress.explain(node, now)));
        explained.collect()
    }
}

impl JobStatus for ImagePullJobStatus {
    fn counts(&self) -> StatusCounts {
        StatusCounts {
            desired: self.desired,
            succeeded: self.succeeded,
            failed: self.failed,
        }
    }

    fn ended(&self) -> Option<Timestamp> {
        self.completion_time.as_ref().map(|time| time.0)
    }
}
