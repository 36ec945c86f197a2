//! Nodes, Pods and Secrets as the controller's client would read them, with the few fields that there are in a run. Reading
//! whole Pods would cost more to compile than everything else here.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Secret, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

pub(crate) fn node(value: &Value) -> Node {
    let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
    let condition = |condition: &Value| NodeCondition {
        type_: text(&condition["type"]).unwrap_or_default(),
        status: text(&condition["status"]).unwrap_or_default(),
        reason: text(&condition["reason"]),
        message: text(&condition["message"]),
        last_transition_time: condition["lastTransitionTime"]
            .as_str()
            .and_then(|time| time.parse().ok())
            .map(Time),
        ..NodeCondition::default()
    };
    let taints = value["spec"]["taints"].as_array().into_iter().flatten();
    let taint = |taint: &Value| Taint {
        key: text(&taint["key"]).unwrap_or_default(),
        effect: text(&taint["effect"]).unwrap_or_default(),
        ..Taint::default()
    };
    Node {
        metadata: metadata(value),
        spec: Some(NodeSpec {
            taints: Some(taints.map(taint).collect()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            conditions: Some(conditions.map(condition).collect()),
            ..NodeStatus::default()
        }),
    }
}

pub(crate) fn pod(value: &Value) -> Pod {
    Pod {
        metadata: metadata(value),
        spec: Some(PodSpec {
            node_name: text(&value["spec"]["nodeName"]),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: text(&value["status"]["phase"]),
            ..PodStatus::default()
        }),
    }
}

pub(crate) fn secret(value: &Value) -> Secret {
    let data = value["data"].as_object().into_iter().flatten();
    let bytes = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    Secret {
        metadata: metadata(value),
        data: Some(
            data.map(|(name, value)| (name.clone(), ByteString(bytes(value))))
                .collect(),
        ),
        ..Secret::default()
    }
}

fn metadata(value: &Value) -> ObjectMeta {
    let metadata = &value["metadata"];
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<String, String> = labels
        .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
        .collect();
    ObjectMeta {
        name: text(&metadata["name"]),
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
