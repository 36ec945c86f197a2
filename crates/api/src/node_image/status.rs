//! What a node's agent says about its orders. Texts of a closed set are read leniently: an agent of another version must
//! not make a NodeImage unreadable. All texts are bounded: ten thousand of these objects pass through every watch.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_model::{Phase, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, time};

/// What became of a node's orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImageStatus {
    /// Tags in the spec.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub desired: i32,

    /// Tags that are there.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub succeeded: i32,

    /// Tags that could not be had.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub failed: i32,

    /// Tags that are being pulled.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub pulling: i32,

    /// Tags whose turn has not come.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub waiting: i32,

    /// Results by familiar image name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 512))]
    pub image_statuses: BTreeMap<String, ImageStatus>,

    /// Declared by OpenKruise and written by nobody; kept so that it is not lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_sync_status: Option<SyncStatus>,

    /// The agent that wrote this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,

    /// Room on the filesystem that holds the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<ImageFsStatus>,
}

/// Results of one image name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageStatus {
    /// Results by tag.
    #[serde(default)]
    #[schemars(extend("maxItems" = schema::TAG_RESULTS_MAX))]
    pub tags: Vec<ImageTagStatus>,
}

/// The result of one tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTagStatus {
    /// The tag or digest, as in the spec.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub tag: String,

    /// `Waiting`, `Pulling`, `Succeeded` or `Failed`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub phase: String,

    /// Percent of the bytes that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<i32>,

    /// When the first attempt of this version began, by the node's clock.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When this version ended, by the node's clock.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The version of the entry that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,

    /// `<image name>@<image id of the runtime>`.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub image_id: Option<String>,

    /// What happened, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::MESSAGE_MAX))]
    pub message: Option<String>,

    /// Digest of the manifest that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub digest: Option<String>,

    /// Compressed size of the image, where the runtime tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<i64>,

    /// Bytes of these that are on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<i64>,

    /// Why it failed or waits, as one word of a closed set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,

    /// Real tries of this version: 0 if the image was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,

    /// The newest success. Never overwritten by a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_succeeded: Option<LastSucceeded>,
}

impl ImageTagStatus {
    /// The phase, `Waiting` where the text is empty or unknown.
    pub fn phase(&self) -> Phase {
        self.phase.parse().unwrap_or(Phase::Waiting)
    }

    /// The reason, `Internal` where an agent of another version gave one that is unknown here.
    pub fn reason(&self) -> Option<Reason> {
        let text = self.reason.as_deref().filter(|text| !text.is_empty())?;
        Some(text.parse().unwrap_or(Reason::Internal))
    }

    /// The version that this answers; the originals leave out a zero.
    pub fn version(&self) -> i64 {
        self.version.unwrap_or(0)
    }
}

/// The newest success of a tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSucceeded {
    /// The version of the entry that it answered.
    #[serde(default)]
    pub version: i64,

    /// Digest of the manifest that was there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub digest: Option<String>,

    /// When, by the node's clock.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// The agent that wrote a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub version: Option<String>,

    /// Name and version of the container runtime, such as `containerd 2.1.9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub runtime: Option<String>,

    /// The public half of the node's key, in base64: credentials are sealed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub public_key: Option<String>,

    /// Host name and a random part: another one for every process. Two agents with the same node name are told apart by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub instance: Option<String>,

    /// Instance of another agent that lately wrote this status, too: two agents run with the name of this node. Each of
    /// them writes rarely until one of them is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub conflicts_with: Option<String>,

    /// When the agent last wrote something, by the node's clock. There is no heartbeat: it moves with other writes only.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
}

/// Room on the image filesystem, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageFsStatus {
    /// Size of the filesystem.
    #[serde(default)]
    pub capacity: i64,

    /// What is free of it.
    #[serde(default)]
    pub free: i64,
}

/// See [`NodeImageStatus::first_sync_status`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    /// When the first sync was.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub sync_at: Option<Time>,

    /// How it went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::TEXT_MAX))]
    pub status: Option<String>,

    /// More on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::MESSAGE_MAX))]
    pub message: Option<String>,
}
