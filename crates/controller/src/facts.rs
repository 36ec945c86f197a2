//! What is kept of Nodes and Pods: the few facts that decisions look at, taken before anything is stored. A Node of a real
//! cluster is 16 KB, and there may be ten thousand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::ResourceExt as _;
use larder_api::names::{IMAGES_READY_CONDITION, NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE};
use larder_planner::NodeKey;
use larder_planner::node_gate::{GateCondition, GatedNode};

use crate::engine::revision;

/// A Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    /// None while the NodeImage has the same.
    pub labels: Option<BTreeMap<String, String>>,
    /// Whether it has no runtime to pull with.
    pub is_virtual: bool,
    pub taints: Vec<Taint>,
    pub ready: bool,
    /// Since when it is ready or not.
    pub since: Option<Timestamp>,
    /// What the node gate looks at; only where nodes are gated.
    pub gate: Option<Box<GateFacts>>,
}

/// What the node gate looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateFacts {
    pub uid: String,
    /// The resource version.
    pub revision: u64,
    pub node: GatedNode,
}

impl NodeFacts {
    pub fn of(node: Node) -> Self {
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let labels = node.metadata.labels.unwrap_or_default();
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        Self {
            name: node.metadata.name.unwrap_or_default(),
            is_virtual: labels
                .get(NODE_TYPE_LABEL)
                .is_some_and(|kind| kind == VIRTUAL_KUBELET_VALUE),
            labels: Some(labels),
            // The moment at which a taint was added decides nothing, and would make every look at it a change.
            taints: taints
                .into_iter()
                .map(|taint| Taint {
                    time_added: None,
                    ..taint
                })
                .collect(),
            ready: ready.as_ref().is_some_and(|condition| condition.status == "True"),
            since: ready
                .and_then(|condition| condition.last_transition_time)
                .map(|time| time.0),
            gate: None,
        }
    }

    /// The same where nodes are gated.
    pub fn of_gated(node: Node) -> Self {
        let gate = GateFacts::of(&node);
        Self {
            gate: Some(Box::new(gate)),
            ..Self::of(node)
        }
    }
}

impl GateFacts {
    pub fn of(node: &Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
        let mut ours = conditions.filter(|condition| condition.type_ == IMAGES_READY_CONDITION);
        let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            revision: revision(&node.metadata),
            node: GatedNode {
                condition: ours.next().map(|condition| GateCondition {
                    is_true: condition.status == "True",
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                    since: condition.last_transition_time.as_ref().map(|time| time.0),
                }),
                taints: taints.map(|taint| taint.key.clone()).collect(),
            },
        }
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Where it runs; None if nowhere yet, or not any more.
    pub node: Option<NodeKey>,
}

impl PodFacts {
    pub fn of(pod: Pod) -> Self {
        let name = pod.name_any();
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        let over = pod.metadata.deletion_timestamp.is_some() || phase == "Succeeded" || phase == "Failed";
        let node = pod
            .spec
            .and_then(|spec| spec.node_name)
            .filter(|node| !over && !node.is_empty());
        Self {
            name,
            labels: pod.metadata.labels.unwrap_or_default(),
            node: node.map(NodeKey::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::ready(json!([{"type": "Ready", "status": "True"}]), true)]
    #[case::not_ready(json!([{"type": "Ready", "status": "False"}]), false)]
    #[case::nobody_knows(json!([{"type": "Ready", "status": "Unknown"}]), false)]
    #[case::never_reported(json!([{"type": "DiskPressure", "status": "True"}]), false)]
    fn readiness(#[case] conditions: serde_json::Value, #[case] want: bool) {
        let node = json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
        assert_eq!(NodeFacts::of(serde_json::from_value(node).unwrap()).ready, want);
    }

    #[rstest]
    #[case::runs(json!({"spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Running"}}), Some("a"))]
    #[case::not_bound(json!({"spec": {"containers": []}}), None)]
    #[case::done(json!({"spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Succeeded"}}), None)]
    #[case::failed(json!({"spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Failed"}}), None)]
    #[case::leaves(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "a", "containers": []}}), None)]
    fn where_a_pod_runs(#[case] pod: serde_json::Value, #[case] want: Option<&str>) {
        assert_eq!(PodFacts::of(serde_json::from_value(pod).unwrap()).node.as_deref(), want);
    }

    #[test]
    fn a_virtual_kubelet_is_told_by_its_label() {
        let node = |kind: &str| json!({"metadata": {"name": "a", "labels": {"type": kind}}});
        let facts = |kind| NodeFacts::of(serde_json::from_value(node(kind)).unwrap());
        assert!(facts("virtual-kubelet").is_virtual);
        assert!(!facts("metal").is_virtual);
    }
}
