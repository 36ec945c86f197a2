//! Whether a job is over, and how it ended.

use jiff::Timestamp;
use larder_api::conditions::{self, reasons};
use larder_api::image_pre_pull_job::ImagePrePullJobStatus;

use super::campaign::PrePull;
use super::nodes::Choice;
use super::words::{JobPhase, too_many_failed};
use crate::finish::End;
use crate::progress::Progress;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Completed or Failure.
    pub phase: JobPhase,
    /// The job's `reason`, where it failed.
    pub reason: Option<String>,
    /// Condition and its reason.
    pub condition: (&'static str, &'static str),
}

/// How a job ended, if it is over at `now`. Asked after [`Progress::decide`], of a progress that was shown every node that
/// can be tried.
pub fn end(plan: &PrePull, choice: &Choice, progress: &Progress, now: Timestamp) -> Option<End> {
    let counts = progress.counts();
    let unfit = choice.unfit();
    if unfit + counts.finished() == choice.total() {
        return Some(End::AllDone);
    }
    if progress
        .campaign()
        .deadline(progress.started())
        .is_some_and(|deadline| deadline <= now)
    {
        return Some(End::Deadline);
    }
    // What is under way is waited for: its bytes are paid for, and its result is worth knowing.
    let lost = plan.tolerance.is_exceeded(unfit + counts.failed, choice.total());
    (lost && counts.slots == 0).then_some(End::TooManyFailures)
}

/// What an end means, with so many failed nodes: those that did not qualify, those that kept silent, and at a deadline
/// those that are not done.
pub fn verdict(plan: &PrePull, end: End, failed: usize, total: usize) -> Verdict {
    if plan.tolerance.is_exceeded(failed, total) {
        let why = match end {
            End::Deadline => reasons::DEADLINE_EXCEEDED,
            End::AllDone | End::NoNodes | End::TooManyFailures => reasons::TOO_MANY_FAILURES,
        };
        return Verdict {
            phase: JobPhase::Failure,
            reason: Some(too_many_failed(failed, total)),
            condition: (conditions::FAILED, why),
        };
    }
    let why = if failed == 0 {
        reasons::ALL_NODES_SUCCEEDED
    } else {
        reasons::WITHIN_TOLERANCE
    };
    Verdict {
        phase: JobPhase::Completed,
        reason: None,
        condition: (conditions::COMPLETE, why),
    }
}

/// Whether a status says that its job is over; such a job is never run again. Jobs of KubeEdge before 1.21 say so by
/// v1alpha1's `state` alone.
pub fn is_over(status: &ImagePrePullJobStatus) -> bool {
    match status.phase.as_deref().filter(|phase| !phase.is_empty()) {
        Some(phase) => phase == JobPhase::Completed.as_str() || phase == JobPhase::Failure.as_str(),
        None => matches!(status.state.as_deref(), Some("Successful" | "Failed")),
    }
}

/// When a job began, as its status tells: its `Progressing` condition has been true since.
pub fn began(status: &ImagePrePullJobStatus) -> Option<Timestamp> {
    progressing_since(status, "True")
}

/// When a job ended, as its status tells: by its condition, or where KubeEdge wrote it by the time of its last state.
pub fn ended(status: &ImagePrePullJobStatus) -> Option<Timestamp> {
    let time = || status.time.as_deref().and_then(|time| time.parse().ok());
    is_over(status)
        .then(|| progressing_since(status, "False").or_else(time))
        .flatten()
}

fn progressing_since(status: &ImagePrePullJobStatus, value: &str) -> Option<Timestamp> {
    let mut said = status.progress.conditions.iter();
    let progressing = said.find(|condition| condition.type_ == conditions::PROGRESSING)?;
    (progressing.status == value).then_some(progressing.last_transition_time.0)
}
