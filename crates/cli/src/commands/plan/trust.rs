//! Whether a login may be sealed to an edge node.
//!
//! Where the policy on writers of NodeImage status accepts KubeEdge's CloudCore for all edge nodes, a compromised
//! CloudCore can publish a key for any of them. The controller seals no credentials to such nodes, and neither does a plan.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{Api, Client};
use larder_access::POLICY;

/// The words in the policy's rule by which it accepts CloudCore.
const ACCEPTS_CLOUD_CORE: &str = "variables.isCloudCore";

/// Whether the keys of edge nodes can be trusted. Without the right to read the policy, none is trusted.
pub(super) async fn in_edge_nodes(client: &Client) -> bool {
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
