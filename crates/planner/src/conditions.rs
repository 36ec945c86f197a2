//! The three conditions of a job, as `kubectl wait` reads them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use larder_api::conditions::{PROGRESSING, reasons};
use larder_api::contract::shorten;

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
    pub fn running(&mut self, reason: &str, message: &str) {
        self.push(condition(PROGRESSING, "True", reason, message));
    }

    /// The job ended, with a verdict of condition and reason.
    pub fn ended(&mut self, (kind, reason): (&str, &str), message: &str) {
        self.push(condition(kind, "True", reason, message));
        self.push(condition(PROGRESSING, "False", reasons::FINISHED, message));
    }

    /// The conditions.
    pub fn into_list(self) -> Vec<Condition> {
        self.list
    }

    fn push(&mut self, mut condition: Condition) {
        let before = self.previous.iter().find(|before| before.type_ == condition.type_);
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
