//! What the end of a job means, and what the status of a job that is over tells.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use larder_api::conditions::PROGRESSING;
use larder_api::image_pre_pull_job::ImagePrePullJobStatus;

use super::texts::{JobPhase, too_many_failed};
use crate::campaign::Campaign;
use crate::conditions::{CompleteReason, EndCondition, FailedReason, failed, find};
use crate::finish::End;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Completed or Failure.
    pub phase: JobPhase,
    /// The job's `reason`, where it failed.
    pub reason: Option<String>,
    /// Its condition.
    pub condition: EndCondition,
}

/// What an end means, with so many failed nodes: those that did not qualify, those that kept silent, and at a deadline
/// those that are not done.
pub fn verdict(campaign: &Campaign, end: End, failed: usize, total: usize) -> Verdict {
    if campaign.gives_up_after(failed, total) {
        let why = match end {
            End::Deadline => FailedReason::DeadlineExceeded,
            End::AllDone | End::NoNodes | End::TooManyFailures => FailedReason::TooManyFailures,
        };
        return Verdict {
            phase: JobPhase::Failure,
            reason: Some(too_many_failed(failed, total)),
            condition: EndCondition::Failed(why),
        };
    }
    let why = if failed == 0 {
        CompleteReason::AllNodesSucceeded
    } else {
        CompleteReason::WithinTolerance
    };
    Verdict {
        phase: JobPhase::Completed,
        reason: None,
        condition: EndCondition::Complete(why),
    }
}

/// Whether a job is over; such a job is never run again. A job that was refused has not run yet: once it is edited, which
/// its generation tells, it is looked at anew.
pub fn is_over(status: &ImagePrePullJobStatus, generation: Option<i64>) -> bool {
    let refused = |condition: &&Condition| {
        let reason = FailedReason::parse(&condition.reason);
        condition.status == "True" && matches!(reason, FailedReason::InvalidSpec | FailedReason::NoNodesMatched)
    };
    let refusal = failed(&status.progress.conditions).filter(refused);
    let edited = refusal.is_some_and(|refusal| refusal.observed_generation.is_some_and(|seen| Some(seen) < generation));
    says_over(status) && !edited
}

/// Jobs of KubeEdge before 1.21 say so by v1alpha1's `state` alone.
fn says_over(status: &ImagePrePullJobStatus) -> bool {
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
    says_over(status)
        .then(|| progressing_since(status, "False").or_else(time))
        .flatten()
}

fn progressing_since(status: &ImagePrePullJobStatus, value: &str) -> Option<Timestamp> {
    let progressing = find(&status.progress.conditions, PROGRESSING)?;
    (progressing.status == value).then_some(progressing.last_transition_time.0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::Refusal;
    use crate::kubeedge::status::refused;
    use crate::view::samples::at;

    #[rstest]
    #[case::as_it_was(Some(3), true)]
    #[case::edited(Some(4), false)]
    #[case::generation_unknown(None, true)]
    fn a_refused_job_gets_another_chance_when_it_is_edited(#[case] generation: Option<i64>, #[case] want: bool) {
        let status = refused(
            None,
            Some(3),
            &Refusal::InvalidSpec("images[0]: 7 is neither a text nor an object".into()),
            at(0),
        );
        assert_eq!(is_over(&status, generation), want);
    }

    #[test]
    fn a_job_that_ran_is_over_whatever_is_edited() {
        let condition =
            json!({"type": "Failed", "status": "True", "reason": "TooManyFailures", "observedGeneration": 3});
        let status = serde_json::from_value(json!({"phase": "Failure", "conditions": [condition]})).unwrap();
        assert!(is_over(&status, Some(4)));
    }

    #[rstest]
    #[case::by_the_condition(
        json!({"phase": "Completed", "time": "2027-01-15T07:00:00Z", "conditions": [{"type": "Progressing", "status": "False", "lastTransitionTime": "2027-01-15T08:00:00Z"}]}),
        Some(at(0))
    )]
    #[case::by_the_time_that_kubeedge_wrote(json!({"state": "Successful", "time": "2027-01-15T08:00:00Z"}), Some(at(0)))]
    #[case::nobody_knows(json!({"phase": "Completed"}), None)]
    #[case::a_time_that_is_none(json!({"phase": "Completed", "time": "yesterday"}), None)]
    #[case::it_runs(json!({"phase": "InProgress", "time": "2027-01-15T08:00:00Z"}), None)]
    fn a_job_tells_when_it_ended(#[case] status: Value, #[case] want: Option<Timestamp>) {
        assert_eq!(ended(&serde_json::from_value(status).unwrap()), want);
    }
}
