//! ImagePrePullJob: KubeEdge's kind, several images onto edge nodes. Its rules are the planner's; here is where a job stands
//! in its life, as its object tells.

use jiff::Timestamp;
use larder_api::ImagePrePullJob;
use larder_planner::prepull::{PrePull, verdict};

/// Where a job stands in its life.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Life {
    /// It is over, since this moment if anybody knows; with what it asked for, if that can be read.
    Over(Option<Timestamp>, Option<Box<PrePull>>),
    /// It says something that cannot be carried out.
    Refused(String),
    /// It asks for this.
    Runs(Box<PrePull>),
}

/// Where a job stands in its life.
pub(crate) fn life(job: &ImagePrePullJob) -> Life {
    let plan = PrePull::of(job).map(Box::new);
    if is_over(job) {
        let at = job.status.as_ref().and_then(verdict::ended);
        return Life::Over(at, plan.ok());
    }
    match plan {
        Ok(plan) => Life::Runs(plan),
        Err(why) => Life::Refused(why.to_string()),
    }
}

/// Whether a job is over, as it says itself.
pub(crate) fn is_over(job: &ImagePrePullJob) -> bool {
    let status = job.status.as_ref();
    status.is_some_and(|status| verdict::is_over(status, job.metadata.generation))
}

/// When a job began, to the second, as deadlines count: as it says itself, or now.
pub(crate) fn began(job: &ImagePrePullJob, now: Timestamp) -> Timestamp {
    let said = job.status.as_ref().and_then(verdict::began);
    said.unwrap_or_else(|| Timestamp::from_second(now.as_second()).unwrap_or(now))
}
