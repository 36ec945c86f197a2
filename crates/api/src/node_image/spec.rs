//! What the controller (or a person, by hand) asks of one node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodeImageStatus;
use crate::template::{SandboxConfig, default_backoff_limit, default_timeout_seconds, is_default};
use crate::{rules, schema, time};

/// The images that one node shall have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "NodeImage",
    plural = "nodeimages",
    status = "NodeImageStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The images that one node shall have, and what became of them. Named like the node.",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeImageSpec {
    /// Entries by familiar image name: `nginx`, `foo/bar`, `registry.example:5000/team/app`. At most 256 names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256, "x-kubernetes-validations" = rules::node_image_names()))]
    pub images: BTreeMap<String, ImageSpec>,

    /// Credentials sealed to this node's key; entries refer to them by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub sealed_credentials: Vec<SealedCredential>,
}

/// All wanted tags of one image name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Secrets for a hand-written entry, from `larder-system` or `kruise-daemon-config` only. The agent never reads them:
    /// the controller seals what they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<PullSecretReference>,

    /// The wanted tags and digests, each once.
    #[schemars(extend("maxItems" = schema::TAGS_MAX, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["tag"]))]
    pub tags: Vec<ImageTagSpec>,

    /// Labels and annotations that go to the runtime with each pull of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_config: Option<SandboxConfig>,
}

/// A Secret that a hand-written entry names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullSecretReference {
    /// Namespace of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub namespace: Option<String>,

    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub name: Option<String>,

    /// `batch` on Secrets that OpenKruise copied. Kept as it is, never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// One wanted tag or digest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTagSpec {
    /// The tag, or a digest such as `sha256:…`.
    #[schemars(length(min = 1, max = 256))]
    pub tag: String,

    /// When the entry was made, by the controller's clock. For people: no agent compares it with its own clock.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,

    /// Timeouts, retries and how long the entry stays.
    pub pull_policy: ImageTagPullPolicy,

    /// The jobs that want this tag. None: somebody wrote the entry by hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::owner_references")]
    pub owner_references: Vec<ObjectReference>,

    /// Raised with every new claim; a result counts for a claim from the claim's version on.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0))]
    pub version: i64,

    /// Always: ask the registry. `IfNotPresent`: pull only if the image is missing. Empty behaves as Always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", ""]))]
    pub image_pull_policy: Option<String>,

    /// From which version on a result counts for which job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub claims: Vec<Claim>,

    /// Keep the image from the kubelet's garbage collection.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pin: bool,

    /// A second full reference that the image shall have on the node, such as the name in the job when an overrider
    /// changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 520))]
    pub alias: Option<String>,

    /// Checks before the pull: `disk`, `cpu`, `mem`, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::checks")]
    pub checks: Vec<String>,

    /// Ids of the sealed credentials that may be used for this entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,

    /// Seconds between two reports of bytes while the pull runs; the controller raises it with the number of active nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_seconds: Option<i32>,

    /// Place among the images of one job: of those that come at the same time, the lower starts first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub position: Option<i32>,

    /// Of the entries that wait on the node, those with a higher priority start first; 0 if not given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,

    /// Resolve, compare with what is there, look for room, report; pull nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dry_run: bool,
}

/// Timeouts and retries of one entry. All are durations: no clock of another machine is needed to obey them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTagPullPolicy {
    /// Seconds that one attempt may take.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: i32,

    /// Retries after the first attempt.
    #[serde(default = "default_backoff_limit")]
    #[schemars(range(min = 0))]
    pub backoff_limit: i32,

    /// Seconds that the entry stays after its pull ended (hand-written entries), or after its last owner ended.
    #[schemars(required, range(min = 0))]
    pub ttl_seconds_after_finished: i32,

    /// Seconds that are left for this version of the entry when it is written. The agent counts them from the moment
    /// when it first sees that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
}

impl Default for ImageTagPullPolicy {
    fn default() -> Self {
        Self {
            timeout_seconds: default_timeout_seconds(),
            backoff_limit: default_backoff_limit(),
            ttl_seconds_after_finished: 0,
            active_deadline_seconds: None,
        }
    }
}

/// One job's claim on an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Uid of the job.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,

    /// The first version whose result counts for that job.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub version: i64,
}

/// Credentials that only this node can open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SealedCredential {
    /// What entries refer to.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,

    /// Fingerprint of the public key that it was sealed for.
    #[serde(default)]
    pub key: String,

    /// The sealed bytes, in base64.
    #[serde(default)]
    pub data: String,
}
