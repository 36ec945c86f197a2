//! How far an ImagePrePullJob is, in both shapes that its readers know: v1alpha1's (`state`, `event`, `action`, `status`)
//! and v1alpha2's (`phase`, `nodeStatus`). Both are filled, whichever version somebody asks for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::progress::JobProgress;
use crate::schema;

/// How far an ImagePrePullJob is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePrePullJobStatus {
    /// `InProgress`, `Completed` or `Failure`. Never `Init`, on which KubeEdge's own task manager would act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,

    /// Why the job failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// One entry per node, in the order in which the nodes were selected. Nodes in `omittedNodes` have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_status: Vec<NodeTaskStatus>,

    /// Nodes of a very large job that have no entry in `nodeStatus`, by phase and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted_nodes: Vec<OmittedNodes>,

    /// v1alpha1: `Checking`, `Pulling`, `Successful` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,

    /// v1alpha1: `Init`, `Check`, `Pull` or `TimeOut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,

    /// v1alpha1: `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,

    /// v1alpha1: when the state last changed, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,

    /// v1alpha1: one entry per node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<LegacyNodeStatus>,

    /// Nodes of the job.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub desired: i32,

    /// Nodes that have every image.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub succeeded: i32,

    /// Nodes that failed or did not answer.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub failed: i32,

    /// Conditions, bytes and reasons.
    #[serde(flatten)]
    pub progress: JobProgress,
}

/// v1alpha2: one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaskStatus {
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// `Pending`, `InProgress`, `Successful`, `Failure` or `Unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,

    /// Why the node failed, as a word: one of those in `reasons`, or why it was not accepted at the start: `NoSuchNode`,
    /// `NotEdgeNode`, `NotReadyAtStart`, `NoAgentVirtualNode`, `NoAgentOperatingSystem`, `NoAgentNotSelected` or `NoAgentTaint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,

    /// Why the node failed or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The actions so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub action_flow: Vec<ActionFlowEntry>,

    /// The images so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_status: Vec<ImagePullResult>,
}

/// Nodes without an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OmittedNodes {
    /// As `phase` of a node in `nodeStatus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,

    /// As `cause` of a node in `nodeStatus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,

    /// Number of these nodes.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub count: i32,

    /// Their names, as far as there is room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// v1alpha2: one action on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionFlowEntry {
    /// `Check` or `Pull`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,

    /// `True` or `False`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,

    /// Why it is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// When it ended, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// v1alpha2: one image on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullResult {
    /// The name in the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// `True` or `False`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,

    /// Why it is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The name that was pulled, where an overrider changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_image: Option<String>,
}

/// v1alpha1: one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LegacyNodeStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_status: Option<LegacyTaskStatus>,

    /// Its images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_status: Vec<LegacyImageStatus>,
}

/// v1alpha1: where one node stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LegacyTaskStatus {
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// As `state` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,

    /// As `event` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,

    /// As `action` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,

    /// Why the node failed or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// As `time` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// v1alpha1: one image on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LegacyImageStatus {
    /// The name in the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// `Successful` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,

    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The name that was pulled, where an overrider changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_image: Option<String>,
}
