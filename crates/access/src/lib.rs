//! What Larder's parts may do in a cluster, as the objects that grant and refuse it.
//!
//! | who | may |
//! |---|---|
//! | controller | read nodes, pods and the CRDs it lives on; write the four kinds as far as it has to; get a Secret by name; write Events; hold its Lease; act as the agents' account, to try the policy |
//! | controller with `--warm-workloads` | read namespaces and workloads, get a ServiceAccount by name, create list jobs |
//! | controller with `--node-gate` | patch Nodes and their status |
//! | agent | read NodeImages, patch the status of the one that bears its node's name |
//! | people with the cluster's roles `view`, `edit`, `admin` | read jobs and NodeImages; write jobs |
//! | the jobs around an install and before an uninstall | as long as they run: the CRDs; what is to be left behind in order |
//!
//! RBAC cannot restrict an agent to the NodeImage with its node's name: every agent has the same ServiceAccount. A
//! ValidatingAdmissionPolicy does, by the node claim in the agent's token. It applies to every writer of a NodeImage's
//! status, because the status contains the key for which the controller seals passwords. Administrators pass if RBAC grants
//! them [`BYPASS_VERB`], as it does to `cluster-admin`.
//!
//! Everything here is a function of [`Settings`]. `cargo xtask codegen` writes `deploy/rbac` from it, a chart writes its
//! templates from it, and a diagnosis compares a cluster with it. No client, no clock.

mod agent;
mod controller;
mod hooks;
mod names;
mod object;
mod policy;
mod users;

use serde_json::Value;

pub use names::{
    AGENT, BYPASS_VERB, CLOUD_CORE_USER, CONTROLLER, INSTALLER, NODE_CLAIM, NODE_GATE, POLICY, UNINSTALLER,
    WARM_WORKLOADS,
};

/// What differs from one installation to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the ServiceAccounts and the Lease live.
    pub namespace: String,
    /// The feature gate `ImagePullJobGate`. Without it no job is served, so no Secret needs to be read.
    pub image_pull_jobs: bool,
    /// How agents on KubeEdge's edge nodes reach the API.
    pub kube_edge: KubeEdge,
}

/// How agents on KubeEdge's edge nodes reach the API: their requests are made by CloudCore, in one of two names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeEdge {
    /// There are none.
    Absent,
    /// CloudHub's authorization is on: CloudCore acts as `system:node:NAME`, which is as good as a node claim.
    NodeIdentity,
    /// CloudCore acts in its own name. It can then write the status of every node, so the controller seals no
    /// credentials for such nodes.
    CloudCore,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: larder_api::names::LARDER_NAMESPACE.to_owned(),
            image_pull_jobs: true,
            kube_edge: KubeEdge::Absent,
        }
    }
}

/// Objects that stand together in one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The file's name. Files are applied in the order of their names, as `kubectl apply -f FOLDER` does.
    pub file: &'static str,
    /// The objects, in the order in which they are applied.
    pub objects: Vec<Value>,
}

/// Everything that an installation needs, in the order in which it is applied.
pub fn manifests(settings: &Settings) -> Vec<Manifest> {
    vec![
        Manifest {
            file: "00-namespace.yaml",
            objects: vec![object::namespace(settings)],
        },
        Manifest {
            file: "10-controller.yaml",
            objects: controller::objects(settings),
        },
        Manifest {
            file: "20-agent.yaml",
            objects: agent::objects(settings),
        },
        Manifest {
            file: "30-agent-own-node.yaml",
            objects: policy::objects(settings),
        },
        Manifest {
            file: "40-users.yaml",
            objects: users::objects(),
        },
    ]
}

/// What the controller may do beside that with `--warm-workloads`.
pub fn warm_workloads(settings: &Settings) -> Vec<Value> {
    controller::warm_workloads(settings)
}

/// What the controller may do beside that with `--node-gate`.
pub fn node_gate(settings: &Settings) -> Vec<Value> {
    controller::node_gate(settings)
}

/// What the job may do that applies the CRDs before an install or upgrade.
pub fn installer(settings: &Settings) -> Vec<Value> {
    hooks::installer(settings)
}

/// What the job may do that cleans up before an uninstall.
pub fn uninstaller(settings: &Settings) -> Vec<Value> {
    hooks::uninstaller(settings)
}

#[cfg(test)]
mod tests;
