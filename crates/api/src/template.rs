//! What ImagePullJob and ImageListPullJob have in common: which nodes, how many at once, under which pull rules.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::window::{Window, WindowEnd};
use crate::{rules, schema};

/// Seconds that one attempt may take, when a job or entry does not say.
pub const DEFAULT_TIMEOUT_SECONDS: i32 = 600;

/// Retries after the first attempt, when a job or entry does not say.
pub const DEFAULT_BACKOFF_LIMIT: i32 = 3;

/// The part of a job's spec that does not name the image; flattened into both kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullTemplate {
    /// Names of docker-registry Secrets in the job's namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::pull_secrets")]
    pub pull_secrets: Vec<String>,

    /// Nodes by name or label; all nodes if not given. Excludes podSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<NodeSelector>,

    /// Nodes that run matching pods of the job's namespace. Excludes selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,

    /// How many nodes may pull at the same time: an integer, or a string that holds one. 0 pauses the job; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::parallelism")]
    pub parallelism: Option<IntOrString>,

    /// Where pulls are limited, jobs with a higher priority go first; 0 if not given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,

    /// Timeout and retries on each node.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub pull_policy: PullPolicy,

    /// When the job ends.
    #[serde(default)]
    #[schemars(required, extend("default" = {}))]
    pub completion_policy: CompletionPolicy,

    /// Labels and annotations that go to the runtime with each pull, as the kubelet sends those of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_config: Option<SandboxConfig>,

    /// Keep the image from the kubelet's garbage collection while the job exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,

    /// When to give up on the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,

    /// New nodes wait for the image before pods are scheduled there, where the controller runs with --node-gate. Only with
    /// completion policy Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_gate: Option<bool>,

    /// When given, nodes with taints that are not tolerated are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Pulls start only inside one of these; at any time if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,

    /// What happens to pulls that run when the last window closes. Finish if not given: they finish. Stop: they are stopped, and
    /// go on when a window opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_end: Option<WindowEnd>,

    /// When a Never job refreshes its images, as five cron fields: minute, hour, day of the month, month, day of the week. Nodes
    /// begin within ten minutes of each time. Once a day, spread over the day, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = 256, "x-kubernetes-validations" = rules::refresh_schedule()))]
    pub refresh_schedule: Option<String>,

    /// The time zone of refreshSchedule, such as Europe/Berlin; UTC if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = 64))]
    pub refresh_time_zone: Option<String>,
}

/// Nodes by name or by label, never both. Empty means all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = rules::node_selector()))]
pub struct NodeSelector {
    /// Names of nodes. Those without a NodeImage are passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_names_set")]
    pub names: Vec<String>,

    /// Labels that must all be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::match_labels")]
    pub match_labels: BTreeMap<String, String>,

    /// Requirements on labels that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::match_expressions")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Timeout and retries of one node's pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullPolicy {
    /// Seconds that one attempt may take.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: i32,

    /// Retries after the first attempt.
    #[serde(default = "default_backoff_limit")]
    #[schemars(range(min = 0))]
    pub backoff_limit: i32,
}

impl Default for PullPolicy {
    fn default() -> Self {
        Self {
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            backoff_limit: DEFAULT_BACKOFF_LIMIT,
        }
    }
}

/// Whether a value says the same as one that is left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn default_timeout_seconds() -> i32 {
    DEFAULT_TIMEOUT_SECONDS
}

pub(crate) fn default_backoff_limit() -> i32 {
    DEFAULT_BACKOFF_LIMIT
}

/// When a job ends, and how long it stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::completion_policy()))]
pub struct CompletionPolicy {
    /// Always: the job ends when every node succeeded or failed. Never: it follows new nodes and pulls again each day, or by
    /// refreshSchedule.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "Never", ""], "default" = "Always"))]
    pub kind: Option<String>,

    /// Seconds after which an Always job ends, whatever is still running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// Seconds after its end when an Always job is deleted; kept for ever if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

impl CompletionPolicy {
    /// Whether the job never ends. Anything but `Never` is `Always`, an empty text included.
    pub fn is_never(&self) -> bool {
        self.kind.as_deref() == Some("Never")
    }
}

/// Labels and annotations for the runtime, as the kubelet gives it those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxConfig {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub labels: BTreeMap<String, String>,

    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub annotations: BTreeMap<String, String>,
}

/// When to give up on the whole job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// With more failed nodes than this nothing more is handed out, and the job ends as failed: a count, or a percentage of the
    /// selected nodes rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::max_failures")]
    pub max_failures: Option<IntOrString>,
}
