//! What Larder adds to the status of every job, beside the fields of the originals.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{ImageListPullJobStatus, ImagePrePullJobStatus, ImagePullJobStatus, schema, time};

/// Conditions, bytes and reasons of a job; flattened into each job's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// `Complete`, `Failed` and `Progressing`, so that `kubectl wait` works.
    #[serde(default, deserialize_with = "conditions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Compressed bytes of all images on all selected nodes, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<i64>,

    /// Bytes of these that the nodes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<i64>,

    /// Seconds until the job is done, at the rate of the last minutes. Absent when nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<i64>,

    /// How many nodes failed or wait, for each reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, i32>,
}

/// A status that holds a [`JobProgress`].
pub trait HasProgress: Clone + PartialEq {
    /// What it holds.
    fn progress(&self) -> &JobProgress;

    /// The same, to be changed.
    fn progress_mut(&mut self) -> &mut JobProgress;

    /// Whether two statuses differ in nothing but the estimated time.
    fn differs_in_eta_alone(&self, other: &Self) -> bool {
        if self.progress().eta_seconds == other.progress().eta_seconds {
            return false;
        }
        let mut same = other.clone();
        same.progress_mut().eta_seconds = self.progress().eta_seconds;
        same == *self
    }
}

macro_rules! has_progress {
    ($($status:ty),+) => {
        $(impl HasProgress for $status {
            fn progress(&self) -> &JobProgress {
                &self.progress
            }

            fn progress_mut(&mut self) -> &mut JobProgress {
                &mut self.progress
            }
        })+
    };
}

has_progress!(ImagePullJobStatus, ImageListPullJobStatus, ImagePrePullJobStatus);

/// Reads conditions of which only the type is given, as the schema allows: one that somebody wrote by hand must not make a
/// whole job unreadable. A condition without a time changed at the beginning of time.
fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Written {
        #[serde(deserialize_with = "time::lenient")]
        last_transition_time: Option<Time>,
        message: String,
        observed_generation: Option<i64>,
        reason: String,
        status: String,
        r#type: String,
    }

    let written = Vec::<Written>::deserialize(deserializer)?;
    let complete = |condition: Written| Condition {
        last_transition_time: condition
            .last_transition_time
            .unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
        message: condition.message,
        observed_generation: condition.observed_generation,
        reason: condition.reason,
        status: condition.status,
        type_: condition.r#type,
    };
    Ok(written.into_iter().map(complete).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses_that_differ_in_the_estimated_time_alone() {
        let status = |eta: i64, failed: i32| ImagePullJobStatus {
            failed,
            progress: JobProgress {
                eta_seconds: Some(eta),
                ..JobProgress::default()
            },
            ..ImagePullJobStatus::default()
        };
        assert!(status(1, 0).differs_in_eta_alone(&status(2, 0)));
        assert!(!status(1, 0).differs_in_eta_alone(&status(2, 1)));
        assert!(!status(1, 0).differs_in_eta_alone(&status(1, 0)));
    }

    #[test]
    fn a_condition_with_a_type_alone_is_readable() {
        let progress: JobProgress = serde_json::from_value(json!({ "conditions": [{ "type": "Complete" }] })).unwrap();
        assert_eq!(progress.conditions[0].type_, "Complete");
        assert_eq!(progress.conditions[0].status, "");
    }
}
