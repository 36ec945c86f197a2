//! What a job's status says while the controller serves no job at all, because other software serves the same kinds or the
//! CRDs cannot hold what the controller writes.
//!
//! The other software may write the same status. So only a status that nobody has begun is written: whoever serves a job
//! sets one of the fields [`StatusFields::begun`] with the first write and replaces the whole status, and from then on it is theirs.
//! Works on JSON, because the CRDs may not be those that the types of this program describe.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use larder_api::conditions::PROGRESSING;
use serde_json::{Value, json};

use crate::campaign::whole_seconds;
use crate::conditions::{Conditions, ProgressReason};

/// The fields of a kind's status that tell whether a job is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusFields {
    /// Fields of which the software that serves a job sets at least one with its first write.
    pub begun: &'static [&'static str],
    /// The field that says in words how the job is, if the kind has one.
    pub text: Option<&'static str>,
}

impl StatusFields {
    /// Whether some software serves a job, as far as its status tells.
    fn show_begun(self, status: Option<&Value>) -> bool {
        let is_set = |field: &&str| status.is_some_and(|status| !status[*field].is_null());
        self.begun.iter().any(is_set)
    }
}

/// What to write into a job's status so that it says why it is not served; None if that is not ours to say, or said.
pub fn status_to_write(
    status: Option<&Value>,
    fields: StatusFields,
    generation: Option<i64>,
    why: &str,
    now: Timestamp,
) -> Option<Value> {
    if fields.show_begun(status) {
        return None;
    }
    let known = status.map_or(&Value::Null, |status| &status["conditions"]);
    let known: Vec<Condition> = serde_json::from_value(known.clone()).unwrap_or_default();
    let is_it = |condition: &Condition| condition.type_ == PROGRESSING && condition.message == why;
    if known.iter().any(is_it) {
        return None;
    }
    let mut conditions = Conditions::new(Some(&known), generation, whole_seconds(now));
    conditions.running(ProgressReason::NotServed, why);
    let mut written = json!({ "conditions": conditions.into_list() });
    if let Some(text) = fields.text {
        written[text] = json!(why);
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{kruise, kubeedge};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    const FIELDS: StatusFields = StatusFields {
        begun: &["began", "ended"],
        text: Some("message"),
    };

    fn write(status: &Value) -> Option<Value> {
        let status = Some(status).filter(|status| !status.is_null());
        status_to_write(status, FIELDS, Some(2), "other software serves it", at(0))
    }

    #[rstest]
    #[case::nothing(json!(null), true)]
    #[case::empty(json!({}), true)]
    #[case::defaults(json!({"desired": 0, "active": 0}), true)]
    #[case::another_sentence(json!({"message": "the gate is off"}), true)]
    #[case::begun(json!({"began": "2026-01-01T00:00:00Z", "desired": 3}), false)]
    #[case::ended(json!({"ended": "2026-01-01T00:00:00Z"}), false)]
    fn only_a_status_that_nobody_began_is_written(#[case] status: Value, #[case] want: bool) {
        assert_eq!(write(&status).is_some(), want);
    }

    #[rstest]
    #[case::image_pull_job(kruise::status::FIELDS, json!({"startTime": "2026-01-01T00:00:00Z", "desired": 3}))]
    #[case::image_list_pull_job(kruise::list::FIELDS, json!({"completionTime": "2026-01-01T00:00:00Z"}))]
    #[case::image_pre_pull_job(kubeedge::status::FIELDS, json!({"phase": "InProgress"}))]
    #[case::image_pre_pull_job_of_an_older_version(kubeedge::status::FIELDS, json!({"state": "Pulling"}))]
    fn every_kind_tells_that_a_job_is_served(#[case] fields: StatusFields, #[case] status: Value) {
        let write = |status| status_to_write(status, fields, Some(2), "other software serves it", at(0));
        assert_eq!(write(Some(&status)), None);
        assert!(write(None).is_some());
    }

    #[test]
    fn it_says_why_in_a_condition_and_in_words() {
        let written = write(&json!(null)).unwrap();
        assert_eq!(written["message"], "other software serves it");
        let condition = &written["conditions"][0];
        assert_eq!(condition["type"], "Progressing");
        assert_eq!(condition["reason"], "NotServed");
        assert_eq!(condition["message"], "other software serves it");
        assert_eq!(condition["observedGeneration"], 2);
    }

    #[test]
    fn what_is_said_is_not_said_again() {
        let written = write(&json!(null)).unwrap();
        assert_eq!(write(&written), None);
    }
}
