//! Which nodes have an agent. A job is only for those: it neither waits for a node that never gets one nor fails because of
//! it, and says how many it leaves out and why.
//!
//! [`AgentNodes`] is made of what the agents' DaemonSets say of their pods: `nodeSelector`, required node affinity and
//! tolerations. The chart renders the DaemonSets and the controller's setting from one definition.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Taint, Toleration};
use larder_api::names::{NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE};
use serde::Deserialize;
use thiserror::Error;

use crate::pod_nodes::PodNodes;
use crate::select::{LabelRule, UnknownOperator, tolerated};
use crate::view::NodeKey;

const OS_LABEL: &str = "kubernetes.io/os";

/// EKS labels Fargate's nodes so. They run one pod each, and no DaemonSet's.
const COMPUTE_TYPE_LABEL: &str = "eks.amazonaws.com/compute-type";
const FARGATE: &str = "fargate";

/// Taints that Kubernetes tolerates for the pods of every DaemonSet.
const TOLERATED_BY_DAEMON_SETS: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// Names of nodes that a sentence lists.
const NAMES_LISTED: usize = 3;

/// Why no agent runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoAgent {
    /// No machine: a virtual kubelet, or Fargate.
    Virtual,
    /// Another operating system than Linux.
    OperatingSystem,
    /// The agents' `nodeSelector` or node affinity does not match.
    NotSelected,
    /// The agents do not tolerate a taint.
    Taint,
}

/// What decides where the pods of one DaemonSet run, as in a pod's spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AgentPods {
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Of this, what node affinity requires.
    pub affinity: Option<Affinity>,
    /// Which taints do not matter.
    pub tolerations: Vec<Toleration>,
}

/// Which nodes have an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentNodes(Vec<Placement>);

/// Why a definition of the nodes with an agent cannot be used.
#[derive(Debug, Error)]
pub enum AgentNodesError {
    /// It is not the JSON that it should be.
    #[error("give a JSON list of objects with nodeSelector, affinity and tolerations: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// It would leave out every node of every job.
    #[error("the list is empty, so no node would have an agent; leave it out for all nodes that could have one")]
    Empty,
    /// An affinity's operator.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
}

/// The nodes of one DaemonSet.
#[derive(Clone, Debug, PartialEq)]
struct Placement {
    nodes: PodNodes,
    tolerations: Vec<Toleration>,
}

/// Nodes that a job would be for and that have no agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutAgent(BTreeMap<NodeKey, NoAgent>);

impl NoAgent {
    /// Every reason.
    pub(crate) const ALL: [Self; 4] = [Self::Virtual, Self::OperatingSystem, Self::NotSelected, Self::Taint];

    /// What such a node is, in a count.
    fn phrase(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::OperatingSystem => "not running Linux",
            Self::NotSelected => "outside the agents' nodeSelector or affinity",
            Self::Taint => "with a taint that agents do not tolerate",
        }
    }

    /// A sentence about one such node.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Virtual => "no agent runs on this node: it is a virtual node",
            Self::OperatingSystem => "no agent runs on this node: its operating system is not Linux",
            Self::NotSelected => "no agent runs on this node: the agents' nodeSelector or affinity does not match it",
            Self::Taint => "no agent runs on this node: it has a taint that the agents do not tolerate",
        }
    }
}

/// Every node of which nothing says that it has no agent: for controllers that are not told where the agents run.
impl Default for AgentNodes {
    fn default() -> Self {
        let labels = LabelRule::none_of([
            (OS_LABEL, "windows"),
            (NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE),
            (COMPUTE_TYPE_LABEL, FARGATE),
        ]);
        let everything = Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        Self(vec![Placement {
            nodes: PodNodes::matching(labels),
            tolerations: vec![everything],
        }])
    }
}

impl AgentNodes {
    /// The nodes of these DaemonSets together.
    pub fn new(daemon_sets: &[AgentPods]) -> Result<Self, UnknownOperator> {
        daemon_sets.iter().map(placement).collect::<Result<_, _>>().map(Self)
    }

    /// The same from JSON, as the controller is told it.
    pub fn parse(json: &str) -> Result<Self, AgentNodesError> {
        let daemon_sets: Vec<AgentPods> = serde_json::from_str(json)?;
        if daemon_sets.is_empty() {
            return Err(AgentNodesError::Empty);
        }
        Ok(Self::new(&daemon_sets)?)
    }

    /// Why a node has no agent; None if it has one.
    pub fn without_agent(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> Option<NoAgent> {
        let mut matching = self
            .0
            .iter()
            .filter(|placement| placement.nodes.matches(name, labels))
            .peekable();
        if matching.peek().is_none() {
            return Some(other_machine(labels).unwrap_or(NoAgent::NotSelected));
        }
        let tolerated = matching.any(|placement| placement.tolerates(taints));
        (!tolerated).then_some(NoAgent::Taint)
    }
}

/// Why no agent could run on a node, whatever the agents' selector is.
fn other_machine(labels: &BTreeMap<String, String>) -> Option<NoAgent> {
    let has = |key, value| labels.get(key).is_some_and(|known| known == value);
    if has(NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE) || has(COMPUTE_TYPE_LABEL, FARGATE) {
        return Some(NoAgent::Virtual);
    }
    let system = labels.get(OS_LABEL);
    system
        .is_some_and(|system| system != "linux")
        .then_some(NoAgent::OperatingSystem)
}

fn placement(pods: &AgentPods) -> Result<Placement, UnknownOperator> {
    Ok(Placement {
        nodes: PodNodes::new(&pods.node_selector, pods.affinity.as_ref())?,
        tolerations: pods.tolerations.clone(),
    })
}

impl Placement {
    fn tolerates(&self, taints: &[Taint]) -> bool {
        let hard = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let mut counting = hard.filter(|taint| !TOLERATED_BY_DAEMON_SETS.contains(&taint.key.as_str()));
        counting.all(|taint| self.tolerations.iter().any(|toleration| tolerated(taint, toleration)))
    }
}

impl WithoutAgent {
    /// Takes a node in, or out if it has an agent. True if that changed something.
    pub fn set(&mut self, node: &NodeKey, reason: Option<NoAgent>) -> bool {
        match reason {
            Some(reason) => self.0.insert(node.clone(), reason) != Some(reason),
            None => self.0.remove(node).is_some(),
        }
    }

    /// Why this node has no agent, if it is one of them.
    pub fn get(&self, node: &str) -> Option<NoAgent> {
        self.0.get(node).copied()
    }

    /// How many there are and why, for a job's status; None if there are none. The first few are named.
    pub fn sentence(&self) -> Option<String> {
        let counted = NoAgent::ALL.into_iter().filter_map(|reason| {
            let count = self.0.values().filter(|known| **known == reason).count();
            (0 < count).then(|| format!("{count} {}", reason.phrase()))
        });
        let counted: Vec<String> = counted.collect();
        let names: Vec<&str> = self.0.keys().take(NAMES_LISTED).map(|node| &**node).collect();
        let more = if NAMES_LISTED < self.0.len() { ", …" } else { "" };
        let noun = if self.0.len() == 1 { "node is" } else { "nodes are" };
        (!self.0.is_empty()).then(|| {
            let (total, why, names) = (self.0.len(), counted.join(", "), names.join(", "));
            format!("{total} {noun} left out because no agent runs there: {why} ({names}{more})")
        })
    }
}

#[cfg(test)]
mod tests;
