//! What a cluster is started with.

use serde_json::Value;

/// The nodes of a cluster and the flags of its programs.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How many nodes there are.
    pub nodes: usize,
    /// Objects that are there before the controller starts, such as more rights.
    pub objects: Vec<Value>,
    /// More flags for the controller.
    pub controller: Vec<String>,
    /// More flags for every agent.
    pub agent: Vec<String>,
    /// Whether the calls of the agents to their runtimes are written down, see
    /// [`TestNode::recorder`](crate::TestNode::recorder).
    pub recorded: bool,
}

impl Setup {
    /// This many nodes, and nothing special.
    pub fn nodes(nodes: usize) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }
}
