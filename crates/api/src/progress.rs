//! What Larder adds to the status of every job, beside the fields of the originals.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{schema, time};

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
    fn a_condition_with_a_type_alone_is_readable() {
        let progress: JobProgress = serde_json::from_value(json!({ "conditions": [{ "type": "Complete" }] })).unwrap();
        assert_eq!(progress.conditions[0].type_, "Complete");
        assert_eq!(progress.conditions[0].status, "");
    }
}
