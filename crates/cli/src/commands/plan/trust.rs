//! Which nodes no login may be sealed to, by the rules of the controller.
//!
//! Where the policy on writers of NodeImage status is not seen to be enforced, any node's agent can publish a key in the name
//! of any other. Where it accepts KubeEdge's CloudCore for all edge nodes, a compromised CloudCore can do so for any of them.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{Api, Client};
use larder_access::POLICY;

use super::plan_targets::{NodeTarget, PlanTargets};
use crate::commands::doctor;
use crate::fleet::Fleet;

/// The nodes that are asked without the job's login, and why.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Withheld {
    pub(super) nodes: BTreeSet<String>,
    why: Why,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Why {
    #[default]
    NotEnforced,
    CloudCore,
}

impl Withheld {
    pub(super) async fn find(client: &Client, fleet: &Fleet, targets: &PlanTargets) -> Self {
        let needs_login = |target: &NodeTarget| target.images.iter().any(|target| !target.secrets.is_empty());
        let nodes = targets.nodes.iter().filter(|(_, target)| needs_login(target));
        let nodes: BTreeSet<String> = nodes.map(|(node, _)| node.clone()).collect();
        let Some(some_node) = nodes.first() else {
            return Self::default();
        };
        if !doctor::may_seal(client, some_node).await {
            return Self {
                nodes,
                why: Why::NotEnforced,
            };
        }
        let edge: BTreeSet<String> = nodes.into_iter().filter(|node| fleet.is_edge(node)).collect();
        if edge.is_empty() || in_edge_nodes(client).await {
            return Self::default();
        }
        Self {
            nodes: edge,
            why: Why::CloudCore,
        }
    }

    /// A sentence about these nodes.
    pub(super) fn problem(&self) -> Option<String> {
        let (noun, why) = match self.why {
            Why::NotEnforced => ("node", "was not seen to be enforced; larder doctor says more"),
            Why::CloudCore => ("edge node", "lets CloudCore publish their keys"),
        };
        let nodes = match self.nodes.len() {
            0 => return None,
            1 => format!("1 {noun} was"),
            many => format!("{many} {noun}s were"),
        };
        Some(format!(
            "{nodes} asked without the job's login: the policy {POLICY} {why}."
        ))
    }
}

/// The words in the policy's rule by which it accepts CloudCore.
const ACCEPTS_CLOUD_CORE: &str = "variables.isCloudCore";

/// Whether the keys of edge nodes can be trusted. Without the right to read the policy, none is trusted.
async fn in_edge_nodes(client: &Client) -> bool {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    match policies.get_opt(POLICY).await {
        Ok(policy) => !policy.as_ref().is_some_and(accepts_cloud_core),
        // The embedded API server knows no policies, and serves this machine alone.
        Err(kube::Error::Api(status)) => status.code == 404,
        Err(_) => false,
    }
}

fn accepts_cloud_core(policy: &ValidatingAdmissionPolicy) -> bool {
    let rules = policy.spec.as_ref().and_then(|spec| spec.validations.as_ref());
    let mut rules = rules.into_iter().flatten();
    rules.any(|rule| rule.expression.contains(ACCEPTS_CLOUD_CORE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_access::{KubeEdge, Settings, manifests};
    use rstest::rstest;

    #[rstest]
    #[case::none(&[], Why::NotEnforced, None)]
    #[case::one(
        &["a"], Why::CloudCore,
        Some("1 edge node was asked without the job's login: the policy larder-agent-own-node lets CloudCore publish their keys.")
    )]
    #[case::several(
        &["a", "b"], Why::NotEnforced,
        Some("2 nodes were asked without the job's login: the policy larder-agent-own-node was not seen to be enforced; \
              larder doctor says more.")
    )]
    fn what_is_withheld_is_said(#[case] nodes: &[&str], #[case] why: Why, #[case] says: Option<&str>) {
        let nodes = nodes.iter().copied().map(str::to_owned).collect();
        assert_eq!(Withheld { nodes, why }.problem().as_deref(), says);
    }

    #[rstest]
    #[case::no_edge_nodes(KubeEdge::Absent, false)]
    #[case::nodes_speak_for_themselves(KubeEdge::NodeIdentity, false)]
    #[case::cloud_core_speaks_for_all(KubeEdge::CloudCore, true)]
    fn the_installed_policy_says_it(#[case] kube_edge: KubeEdge, #[case] accepts: bool) {
        let settings = Settings {
            kube_edge,
            ..Settings::default()
        };
        let objects = manifests(&settings).into_iter().flat_map(|manifest| manifest.objects);
        let policy = objects
            .into_iter()
            .find(|object| object["kind"] == "ValidatingAdmissionPolicy");
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(policy.unwrap()).unwrap();
        assert_eq!(accepts_cloud_core(&policy), accepts);
    }
}
