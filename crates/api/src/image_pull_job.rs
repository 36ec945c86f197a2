//! `ImagePullJob`: one image onto many nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::progress::JobProgress;
use crate::template::PullTemplate;
use crate::{rules, schema, time};

/// What an ImagePullJob asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "ImagePullJob",
    plural = "imagepulljobs",
    namespaced,
    status = "ImagePullJobStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Pulls one image onto the selected nodes.",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::image_pull_job_spec()))]
pub struct ImagePullJobSpec {
    /// The image: name:tag, or name@digest.
    #[schemars(schema_with = "schema::image")]
    pub image: String,

    /// Always: ask the registry each time. `IfNotPresent`: pull only where the image is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", ""], "default" = "IfNotPresent"))]
    pub image_pull_policy: Option<String>,

    /// Nodes, pace and pull rules.
    #[serde(flatten)]
    pub template: PullTemplate,
}

/// How far an ImagePullJob is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullJobStatus {
    /// When the controller first saw the job.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the job ended. A job with it is finished for good.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Nodes that are selected now.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub desired: i32,

    /// Nodes that have the order and no result yet.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub active: i32,

    /// Nodes that have the image.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub succeeded: i32,

    /// Nodes that could not get it.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub failed: i32,

    /// One line on where the job stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::MESSAGE_MAX))]
    pub message: Option<String>,

    /// Names of the failed nodes, sorted; shortened in very large jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<String>,

    /// Conditions, bytes and reasons.
    #[serde(flatten)]
    pub progress: JobProgress,
}
