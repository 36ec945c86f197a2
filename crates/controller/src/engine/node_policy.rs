//! What is known of the node policy, and what follows from it for credentials.

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::node_policy::{NodePolicy, Probe};

use super::Engine;

impl Engine {
    /// Whether it matters that the policy is enforced: without jobs no Secret is read.
    fn needs_policy(&self) -> bool {
        self.limits.not_served.is_none() && !self.limits.accept_unenforced_node_policy
    }

    /// Whether the policy lets credentials be sealed.
    pub(super) fn policy_lets_seal(&self) -> bool {
        self.limits.accept_unenforced_node_policy || self.policy.found() == NodePolicy::Enforced
    }

    /// Whether nodes are sent no credentials because the policy is not known to be enforced.
    pub fn withholds_credentials(&self) -> bool {
        self.needs_policy() && self.policy.was_tried() && self.policy.found() != NodePolicy::Enforced
    }

    /// When the policy is to be tried next.
    pub fn next_policy_probe_at(&self) -> Option<Timestamp> {
        let needed = self.is_complete() && self.needs_policy();
        needed.then(|| self.policy.next()).flatten()
    }

    /// The node on whose NodeImage the policy is to be tried now.
    pub fn next_policy_probe(&mut self, now: Timestamp) -> Option<NodeKey> {
        if !self.is_complete() || !self.needs_policy() {
            return None;
        }
        let records = self.nodes.records().iter();
        let nodes = records.filter(|(_, record)| record.living_metadata().is_some());
        self.policy.begin(nodes.map(|(node, _)| node), now)
    }

    /// Takes in what came of a try.
    pub fn policy_probed(&mut self, probe: Probe, now: Timestamp) {
        if !self.policy.end(probe, now) {
            return;
        }
        for job in self.jobs.running_ids() {
            if !self.secrets_of(job).is_empty() {
                self.reselect_job(job, now);
                self.queue.job(job);
            }
        }
        // Hand-written entries are given their credentials when their node is looked at.
        for node in self.nodes.keys() {
            self.queue.node(&node);
        }
    }

    /// The policy or its binding changed.
    pub fn policy_changed(&mut self) {
        self.policy.changed();
    }
}
