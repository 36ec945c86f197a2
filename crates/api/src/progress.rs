//! What Larder adds to the status of every job, beside the fields of the originals.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Conditions, bytes and reasons of a job; flattened into each job's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// `Complete`, `Failed` and `Progressing`, so that `kubectl wait` works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
