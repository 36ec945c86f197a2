//! `ImageListPullJob`: several images onto many nodes, as one child [`crate::ImagePullJob`] per image.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::progress::JobProgress;
use crate::template::PullTemplate;
use crate::{rules, schema, time};

/// What an ImageListPullJob asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "ImageListPullJob",
    plural = "imagelistpulljobs",
    namespaced,
    status = "ImageListPullJobStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Pulls several images onto the selected nodes, through one ImagePullJob per image.",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::image_list_pull_job_spec()))]
pub struct ImageListPullJobSpec {
    /// The images, each as in an ImagePullJob.
    #[schemars(schema_with = "schema::image_list")]
    pub images: Vec<String>,

    /// Passed on to the children, which take `IfNotPresent` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", ""]))]
    pub image_pull_policy: Option<String>,

    /// Nodes, pace and pull rules of each child.
    #[serde(flatten)]
    pub template: PullTemplate,
}

/// How far an ImageListPullJob is. It counts images, not nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageListPullJobStatus {
    /// When the controller first saw the job.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the job ended.
    #[serde(default, deserialize_with = "time::lenient", skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Images in the list.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub desired: i32,

    /// Images that are being pulled somewhere.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub active: i32,

    /// Images whose child has ended.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub completed: i32,

    /// Images that every selected node has.
    #[serde(default)]
    #[schemars(schema_with = "schema::counter")]
    pub succeeded: i32,

    /// Images that some node could not get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_image_statuses: Vec<FailedImageStatus>,

    /// Images whose child has ended. They are done, whatever becomes of the child.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = schema::IMAGES_MAX))]
    pub finished_images: Vec<FinishedImage>,

    /// Conditions, bytes and reasons.
    #[serde(flatten)]
    pub progress: JobProgress,
}

/// One image whose child has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FinishedImage {
    /// The image, as in the list.
    #[serde(default)]
    #[schemars(length(max = schema::IMAGE_MAX))]
    pub name: String,

    /// Name of the child job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::NAME_MAX))]
    pub image_pull_job: Option<String>,

    /// Why the child failed, as its condition says; absent if every node has the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,

    /// What the child was asked for, as a hash. After an edit of the list the image is pulled anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
}

/// One image that some node could not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedImageStatus {
    /// Name of the child job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_job: Option<String>,

    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Where to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::MESSAGE_MAX))]
    pub message: Option<String>,
}
