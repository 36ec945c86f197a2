//! What an ImagePrePullJob asks for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{ImagePrePullJobStatus, OverriderItem, PrePullImage};
use crate::rules;
use crate::schema::{self, IMAGES_MAX, NAME_MAX, NODE_NAMES_MAX};
use crate::template::is_default;
use crate::window::{Window, WindowEnd};

/// What an ImagePrePullJob asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "operations.kubeedge.io",
    version = "v1alpha2",
    kind = "ImagePrePullJob",
    plural = "imageprepulljobs",
    status = "ImagePrePullJobStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Pulls images onto edge nodes before they are needed.",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ImagePrePullJobSpec {
    /// Images, nodes and rules.
    pub image_pre_pull_template: ImagePrePullTemplate,

    /// Per-region rewrites; every one that matches a node is applied, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub image_pre_pull_overriders: Vec<OverriderItem>,
}

/// Images, nodes and rules of an ImagePrePullJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::pre_pull_template()))]
pub struct ImagePrePullTemplate {
    /// The images, in the order in which they are pulled: references, or objects with registry, repo, tag and imageSecret.
    #[schemars(schema_with = "images")]
    pub images: Vec<PrePullImage>,

    /// Names of edge nodes. Excludes labelSelector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "node_names")]
    pub node_names: Vec<String>,

    /// Another name of nodeNames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "node_names")]
    pub nodes: Vec<String>,

    /// Edge nodes by label; `{}` means all of them. Excludes nodeNames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// What a node checks before it pulls: `disk`, `cpu`, `mem`. An empty list means no checks.
    #[serde(default = "default_check_items")]
    #[schemars(schema_with = "schema::checks")]
    pub check_items: Vec<String>,

    /// The share of nodes that may fail, as a decimal between 0 and 1.
    #[serde(default = "default_failure_tolerate")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = rules::failure_tolerate()))]
    pub failure_tolerate: String,

    /// How many nodes may pull at the same time; 0 means 1.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 0))]
    pub concurrency: i32,

    /// Where pulls are limited, jobs with a higher priority go first; 0 if not given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,

    /// Seconds that each node has, from the moment when the job reached it; 0 means 300.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,

    /// `namespace/name` of a docker-registry Secret for all images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317), extend("x-kubernetes-validations" = rules::image_secrets()))]
    pub image_secrets: Option<String>,

    /// Attempts after the first.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub retry_times: i32,

    /// Keep the images from the kubelet's garbage collection while the job exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,

    /// Seconds after which the job ends; until then it waits for nodes that are not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// Seconds after its end when the job is deleted; kept for ever if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Pulls start only inside one of these; at any time if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,

    /// What happens to pulls that run when the last window closes. Finish if not given: they finish. Stop: they are stopped, and
    /// go on when a window opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_end: Option<WindowEnd>,
}

fn default_check_items() -> Vec<String> {
    vec!["disk".to_owned()]
}

fn default_failure_tolerate() -> String {
    "0.1".to_owned()
}

fn default_concurrency() -> i32 {
    1
}

fn default_timeout_seconds() -> i32 {
    300
}

/// A string or an object: no structural schema can say that, so the items have no type and keep what they hold.
fn images(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": IMAGES_MAX,
        "items": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// Duplicates are let through, as upstream does, and count once.
fn node_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": NODE_NAMES_MAX,
        "items": { "type": "string", "minLength": 1, "maxLength": NAME_MAX },
    })
}
