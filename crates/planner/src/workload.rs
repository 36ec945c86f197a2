//! Workloads: objects that have pods, or will have. Which images, nodes and Secrets their pods need, and which
//! ImageListPullJob gets the images there.
//!
//! | module | question |
//! |---|---|
//! | this one | what is the pod template of an object? |
//! | [`own`] | does an object of the cluster count, or does another one stand for it? |
//! | `images` | which images do the pods use? |
//! | `nodes` | where may the pods run? |
//! | [`image_list`](mod@image_list) | which job is that? |
//! | [`warm`] | which job is kept for a labelled workload? |
//! | [`kinds`] | which kinds of workloads does Kubernetes have? |
//!
//! Nothing here knows where the objects come from.

pub mod image_list;
pub mod kinds;
pub mod own;
pub mod warm;

mod images;
mod nodes;

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use thiserror::Error;

pub use image_list::{Accounts, ImageList, Note, Refusal, image_list, service_accounts};
pub use nodes::WorkloadNodes;

/// An object that has pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its kind, as `Deployment`.
    pub kind: String,
    /// Its name; of an object that has none yet, what its name begins with.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What its pods are like.
    pub pods: PodSpec,
}

/// Why the pod template of an object cannot be read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// An object of this kind has one.
    #[error("{0} is missing")]
    Missing(String),
    /// A field has a value of another type.
    #[error("{path}: {source}")]
    Wrong {
        /// Where the template stands.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Where the pods of any other kind are looked for.
const TEMPLATE: &str = "/spec/template/spec";

/// Reads an object; None if it has no pods. An object without a namespace is in `namespace`.
pub fn read(object: &Value, namespace: &str) -> Result<Option<Workload>, Unreadable> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind");
    let (pointer, is_known) = match (group_of(text("/apiVersion")), kind) {
        ("", "Pod") => ("/spec", true),
        ("", "PodTemplate") => ("/template/spec", true),
        ("batch", "CronJob") => ("/spec/jobTemplate/spec/template/spec", true),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => (TEMPLATE, true),
        // Kinds of other projects keep to the custom, and are recognised by it: CloneSet, Rollout.
        _ => (TEMPLATE, false),
    };
    let path = || pointer.trim_start_matches('/').replace('/', ".");
    let template = object.pointer(pointer).filter(|template| !template.is_null());
    let template = match template {
        Some(template) if is_known || template["containers"].is_array() => template,
        None if is_known => return Err(Unreadable::Missing(path())),
        _ => return Ok(None),
    };
    let mut pods = PodSpec::deserialize(template).map_err(|source| Unreadable::Wrong { path: path(), source })?;
    // The scheduler chose the node of a pod that exists; another pod like it may run elsewhere.
    if kind == "Pod" && !text("/status/phase").is_empty() {
        pods.node_name = None;
    }
    let given = |texts: [&str; 2]| {
        let given = texts.into_iter().find(|text| !text.is_empty());
        given.unwrap_or_default().to_owned()
    };
    Ok(Some(Workload {
        kind: kind.to_owned(),
        name: given([text("/metadata/name"), text("/metadata/generateName")]),
        namespace: given([text("/metadata/namespace"), namespace]),
        pods,
    }))
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Workload {
    /// `Deployment web`, for messages.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests;
