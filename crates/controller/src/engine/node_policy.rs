//! Which nodes may be sent credentials, and what is known of the node policy, on which that depends.

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_planner::NodeKey;
use larder_planner::node_policy::{NodePolicy, PolicyCheck, Probe};

use super::credentials::SealTarget;
use super::{Engine, Limits};

/// Whether a node may be sent credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sealing {
    Allowed,
    /// An identity writes for the node that other nodes share: any of these may have published the key.
    SharedWriter,
    /// The node policy is not known to be enforced: any node may have published the key.
    PolicyNotEnforced,
}

/// Decides which nodes may be sent credentials. A key is worth nothing where another identity may have published it.
pub(super) struct SealingRules {
    check: PolicyCheck,
    accept_unenforced: bool,
    /// Without jobs no Secret is read.
    serves_jobs: bool,
    shared_writer_label: Option<&'static str>,
}

impl SealingRules {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            check: PolicyCheck::default(),
            accept_unenforced: limits.accept_unenforced_node_policy,
            serves_jobs: limits.not_served.is_none(),
            shared_writer_label: limits.shared_writer_label,
        }
    }

    /// Whether it matters that the policy is enforced.
    fn need_policy(&self) -> bool {
        self.serves_jobs && !self.accept_unenforced
    }

    /// Whether nodes are sent no credentials because the policy is not known to be enforced.
    fn withhold_credentials(&self) -> bool {
        self.need_policy() && self.check.was_tried() && self.check.found() != NodePolicy::Enforced
    }

    /// The policy is tried anew as soon as possible.
    pub(super) fn policy_changed(&mut self) {
        self.check.changed();
    }

    /// Whether a node may be sent credentials.
    pub(super) fn sealing_for(&self, object: &NodeImage) -> Sealing {
        let labels = object.metadata.labels.as_ref();
        let shared = self.shared_writer_label;
        if shared.is_some_and(|label| labels.is_some_and(|labels| labels.contains_key(label))) {
            return Sealing::SharedWriter;
        }
        if self.accept_unenforced || self.check.found() == NodePolicy::Enforced {
            Sealing::Allowed
        } else {
            Sealing::PolicyNotEnforced
        }
    }

    /// What sealing to a node needs. None while the node has published no usable key, or may be sent nothing.
    pub(super) fn target(&self, node: &NodeKey, object: &NodeImage) -> Option<SealTarget> {
        match self.sealing_for(object) {
            Sealing::Allowed => SealTarget::of(node, object),
            Sealing::SharedWriter | Sealing::PolicyNotEnforced => None,
        }
    }
}

impl Engine {
    /// Whether nodes are sent no credentials because the policy is not known to be enforced.
    pub fn withholds_credentials(&self) -> bool {
        self.sealing.withhold_credentials()
    }

    /// When the policy is to be tried next.
    pub fn next_policy_probe_at(&self) -> Option<Timestamp> {
        let needed = self.is_complete() && self.sealing.need_policy();
        needed.then(|| self.sealing.check.next()).flatten()
    }

    /// The node on whose NodeImage the policy is to be tried now.
    pub fn next_policy_probe(&mut self, now: Timestamp) -> Option<NodeKey> {
        if !self.is_complete() || !self.sealing.need_policy() {
            return None;
        }
        let records = self.nodes.records().iter();
        let nodes = records.filter(|(_, record)| record.living_metadata().is_some());
        self.sealing.check.begin(nodes.map(|(node, _)| node), now)
    }

    /// Takes in what came of a try.
    pub fn policy_probed(&mut self, probe: Probe, now: Timestamp) {
        if !self.sealing.check.end(probe, now) {
            return;
        }
        for job in self.jobs.running_ids() {
            if !self.jobs.secrets_of(job).is_empty() {
                self.rescan(job, now);
            }
        }
        // Hand-written entries are given their credentials when their node is looked at.
        self.queue.nodes(&self.nodes.keys());
    }

    /// The policy or its binding changed.
    pub fn policy_changed(&mut self) {
        self.sealing.policy_changed();
    }
}
