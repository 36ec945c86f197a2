//! The three conditions of a job, as `kubectl wait` reads them. Decisions use the enums here; the words of the API are
//! written and read in this module alone.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use larder_api::conditions::{COMPLETE, FAILED, PROGRESSING, reasons};
use larder_api::contract::shorten;

/// What a job that has not ended does, or waits for: the reason of its condition `Progressing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressReason {
    /// Nodes are at work.
    Pulling,
    /// The job or the whole fleet is paused.
    Paused,
    /// No window of the job, or of the whole fleet, is open.
    OutsideWindow,
    /// A pull secret cannot be used.
    SecretMissing,
    /// The job selects no node.
    NoNodesMatched,
    /// The whole fleet has as many pulls as it may have.
    FleetLimit,
    /// No node can be given work.
    Waiting,
    /// Every node is done, and the job goes on.
    Following,
    /// No job is served.
    NotServed,
}

/// How a job ended: a condition and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// The condition `Complete`.
    Complete(CompleteReason),
    /// The condition `Failed`.
    Failed(FailedReason),
}

/// Why a job is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteReason {
    /// Every node has what was asked for.
    AllNodesSucceeded,
    /// Failures stayed within what the job tolerates.
    WithinTolerance,
    /// No node was selected.
    NoNodesMatched,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedReason {
    /// Nodes failed.
    NodesFailed,
    /// The job's time was over.
    DeadlineExceeded,
    /// More nodes failed than the job tolerates.
    TooManyFailures,
    /// The job says something that cannot be carried out.
    InvalidSpec,
    /// The job matches no node, and does not wait for one.
    NoNodesMatched,
}

impl ProgressReason {
    const ALL: [Self; 9] = [
        Self::Pulling,
        Self::Paused,
        Self::OutsideWindow,
        Self::SecretMissing,
        Self::NoNodesMatched,
        Self::FleetLimit,
        Self::Waiting,
        Self::Following,
        Self::NotServed,
    ];

    /// The word in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pulling => reasons::PULLING,
            Self::Paused => reasons::PAUSED,
            Self::OutsideWindow => reasons::OUTSIDE_WINDOW,
            Self::SecretMissing => reasons::SECRET_MISSING,
            Self::NoNodesMatched => reasons::NO_NODES_MATCHED,
            Self::FleetLimit => reasons::FLEET_LIMIT,
            Self::Waiting => reasons::WAITING,
            Self::Following => reasons::FOLLOWING,
            Self::NotServed => reasons::NOT_SERVED,
        }
    }

    /// What a job's condition `Progressing` says while it is true.
    pub fn read(conditions: &[Condition]) -> Option<(Self, &str)> {
        let condition = find(conditions, PROGRESSING).filter(|condition| condition.status == "True")?;
        let known = Self::ALL.into_iter().find(|reason| reason.as_str() == condition.reason);
        Some((known.unwrap_or(Self::Waiting), &condition.message))
    }
}

impl CompleteReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::AllNodesSucceeded => reasons::ALL_NODES_SUCCEEDED,
            Self::WithinTolerance => reasons::WITHIN_TOLERANCE,
            Self::NoNodesMatched => reasons::NO_NODES_MATCHED,
        }
    }
}

impl FailedReason {
    const ALL: [Self; 5] = [
        Self::NodesFailed,
        Self::DeadlineExceeded,
        Self::TooManyFailures,
        Self::InvalidSpec,
        Self::NoNodesMatched,
    ];

    /// The word in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodesFailed => reasons::NODES_FAILED,
            Self::DeadlineExceeded => reasons::DEADLINE_EXCEEDED,
            Self::TooManyFailures => reasons::TOO_MANY_FAILURES,
            Self::InvalidSpec => reasons::INVALID_SPEC,
            Self::NoNodesMatched => reasons::NO_NODES_MATCHED,
        }
    }

    /// Reads the word. One that is not known says that nodes failed, which is true of most failed jobs.
    pub fn parse(word: &str) -> Self {
        let known = Self::ALL.into_iter().find(|reason| reason.as_str() == word);
        known.unwrap_or(Self::NodesFailed)
    }
}

/// The condition of this type.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// What the condition `Failed` says, where it is there.
pub fn failed(conditions: &[Condition]) -> Option<&Condition> {
    find(conditions, FAILED)
}

/// Makes a job's conditions; the time of a transition moves only when the condition does, and messages are cut.
#[derive(Clone, Debug)]
pub struct Conditions {
    previous: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
    list: Vec<Condition>,
}

impl Conditions {
    /// Starts from what the job said before.
    pub fn new(previous: Option<&[Condition]>, generation: Option<i64>, now: Timestamp) -> Self {
        Self {
            previous: previous.unwrap_or_default().to_vec(),
            generation,
            now,
            list: Vec::new(),
        }
    }

    /// The job runs or waits.
    pub fn running(&mut self, reason: ProgressReason, message: &str) {
        self.push(condition(PROGRESSING, "True", reason.as_str(), message));
    }

    /// The job ended.
    pub fn ended(&mut self, end: EndCondition, message: &str) {
        let (kind, reason) = match end {
            EndCondition::Complete(reason) => (COMPLETE, reason.as_str()),
            EndCondition::Failed(reason) => (FAILED, reason.as_str()),
        };
        self.push(condition(kind, "True", reason, message));
        self.push(condition(PROGRESSING, "False", reasons::FINISHED, message));
    }

    /// The conditions.
    pub fn into_list(self) -> Vec<Condition> {
        self.list
    }

    fn push(&mut self, mut condition: Condition) {
        let before = find(&self.previous, &condition.type_);
        let unchanged = before.filter(|before| before.status == condition.status);
        let since = unchanged.map_or(self.now, |before| before.last_transition_time.0);
        condition.last_transition_time = Time(since);
        condition.observed_generation = self.generation;
        self.list.push(condition);
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: shorten(message),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for reason in ProgressReason::ALL {
            let mut conditions = Conditions::new(None, None, Timestamp::UNIX_EPOCH);
            conditions.running(reason, "why");
            assert_eq!(ProgressReason::read(&conditions.into_list()), Some((reason, "why")));
        }
        for reason in FailedReason::ALL {
            let mut conditions = Conditions::new(None, None, Timestamp::UNIX_EPOCH);
            conditions.ended(EndCondition::Failed(reason), "why");
            let list = conditions.into_list();
            assert_eq!(ProgressReason::read(&list), None);
            let failed = failed(&list).unwrap();
            assert_eq!((FailedReason::parse(&failed.reason), &*failed.message), (reason, "why"));
        }
    }

    #[rstest]
    #[case::of_a_later_version("Bored")]
    #[case::written_by_hand("")]
    fn a_word_that_is_not_known_still_counts(#[case] word: &str) {
        assert_eq!(FailedReason::parse(word), FailedReason::NodesFailed);
        let list = [condition(PROGRESSING, "True", word, "why")];
        assert_eq!(ProgressReason::read(&list), Some((ProgressReason::Waiting, "why")));
    }

    #[test]
    fn the_time_moves_only_with_the_condition() {
        let (first, second) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(9).unwrap());
        let mut conditions = Conditions::new(None, None, first);
        conditions.running(ProgressReason::Waiting, "");
        let before = conditions.into_list();
        let mut conditions = Conditions::new(Some(&before), None, second);
        conditions.running(ProgressReason::Pulling, "");
        assert_eq!(conditions.into_list()[0].last_transition_time.0, first);
        let mut conditions = Conditions::new(Some(&before), None, second);
        conditions.ended(EndCondition::Complete(CompleteReason::AllNodesSucceeded), "");
        let ended = conditions.into_list();
        assert_eq!(find(&ended, PROGRESSING).unwrap().last_transition_time.0, second);
    }
}
