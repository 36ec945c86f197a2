//! What a controller is started with, as it is meant; [`crate::args`] is as it is typed.

use std::num::NonZeroUsize;

use larder_access::AGENT;
use larder_api::names::LARDER_NAMESPACE;
use larder_planner::agent_nodes::AgentNodes;
use larder_planner::node_gate::GateRules;
use larder_planner::secret::SecretNamespaces;
use larder_planner::windows::Windows;

use crate::feature_gates::FeatureGates;

/// Everything that can be set. Nothing here is a secret.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Settings {
    /// Where its Lease is.
    pub namespace: String,
    /// Who it is among its replicas: another name for every process, restarts included.
    pub identity: String,
    /// Whether there may be other replicas. Without, this one always leads.
    pub leader_elect: bool,
    /// What is turned on.
    pub gates: FeatureGates,
    /// So many pulls at once in the whole fleet, over all jobs. None: as many as the jobs allow.
    pub max_active_pulls: Option<NonZeroUsize>,
    /// Hand out nothing new. What is handed out goes on, and status is written.
    pub pause: bool,
    /// Pulls start inside these windows alone, whatever the jobs say.
    pub windows: Windows,
    /// Keep jobs for labelled workloads and namespaces.
    pub warm_workloads: bool,
    /// New nodes wait for the images of jobs with `nodeGate`.
    pub node_gate: Option<GateRules>,
    /// CloudCore may write for all edge nodes. Nobody can tell then which of them speaks, and none is sent credentials.
    pub accept_cloudcore: bool,
    /// Send logins to nodes although the node policy is not enforced: any agent can then have those of other nodes sealed for
    /// a key of its own.
    pub accept_unenforced_node_policy: bool,
    /// The namespaces whose Secrets ImagePrePullJobs may use.
    pub pre_pull_secret_namespaces: SecretNamespaces,
    /// The ServiceAccount of the agents, in the same namespace: the node policy is tried in its name.
    pub agent_account: String,
    /// Which nodes have an agent. Jobs leave out the others.
    pub agent_nodes: AgentNodes,
}

impl Settings {
    /// The usual settings for a process of this name.
    pub fn new(identity: String) -> Self {
        Self {
            namespace: LARDER_NAMESPACE.to_owned(),
            identity,
            leader_elect: true,
            gates: FeatureGates::default(),
            max_active_pulls: None,
            pause: false,
            windows: Windows::default(),
            warm_workloads: false,
            node_gate: None,
            accept_cloudcore: false,
            accept_unenforced_node_policy: false,
            pre_pull_secret_namespaces: SecretNamespaces::All,
            agent_account: AGENT.to_owned(),
            agent_nodes: AgentNodes::default(),
        }
    }

    /// The agents' account, as the API server names it.
    pub fn agent_user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.agent_account)
    }
}
