//! The CRDs, other software that serves the same kinds, and the policy.

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use larder_access::POLICY;
use larder_api::names::{KRUISE_DAEMON, KRUISE_GROUP, KUBEEDGE_GROUP};
use larder_controller::crd_check::shortcoming;
use larder_controller::policy_probe::{self, try_policy};
use tokio::time::timeout;

use super::{REQUEST, see};
use crate::commands::doctor::facts::{Accounts, Binding, Crd, FoundCrd, Policy, Probe, Rivals, Seen};

/// Which Helm release an object belongs to.
const RELEASE: &str = "meta.helm.sh/release-name";

/// With the value `keep` Helm leaves an object alone that its release no longer has.
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

pub(super) async fn crds(client: &Client) -> Vec<Crd> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let look = async |ours: CustomResourceDefinition| {
        let name = ours.name_any();
        let theirs = see(api.get_opt(&name)).await;
        Crd {
            found: theirs.map(|theirs| found(&ours, theirs.as_ref())),
            name,
        }
    };
    join_all(larder_api::crds().into_iter().map(look)).await
}

fn found(ours: &CustomResourceDefinition, theirs: Option<&CustomResourceDefinition>) -> FoundCrd {
    match theirs {
        None => FoundCrd::Missing,
        Some(theirs) => {
            let notes = theirs.annotations();
            let kept = notes.get(RESOURCE_POLICY).is_some_and(|policy| policy == "keep");
            FoundCrd::Installed {
                shortcoming: shortcoming(ours, Some(theirs)),
                release: notes.get(RELEASE).filter(|_| !kept).cloned(),
            }
        }
    }
}

pub(super) async fn rivals(client: &Client) -> Seen<Rivals> {
    let daemons: Api<DaemonSet> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let all = ListParams::default();
    let named = ListParams::default().fields(&format!("metadata.name={KRUISE_DAEMON}"));
    let (daemons, mutating, validating) = futures::join!(
        see(daemons.list(&named)),
        see(mutating.list(&all)),
        see(validating.list(&all))
    );
    let daemon = |daemon: &DaemonSet| {
        let nodes = daemon
            .status
            .as_ref()
            .map_or(0, |status| status.desired_number_scheduled);
        let name = format!("{}/{}", daemon.namespace().unwrap_or_default(), daemon.name_any());
        (0 < nodes).then_some((name, nodes))
    };
    let mut webhooks = Vec::new();
    for configuration in mutating? {
        let rules = configuration
            .webhooks
            .iter()
            .flatten()
            .flat_map(|hook| hook.rules.iter().flatten());
        webhooks.extend(ours(rules).map(|resources| (configuration.name_any(), resources)));
    }
    for configuration in validating? {
        let rules = configuration
            .webhooks
            .iter()
            .flatten()
            .flat_map(|hook| hook.rules.iter().flatten());
        webhooks.extend(ours(rules).map(|resources| (configuration.name_any(), resources)));
    }
    Ok(Rivals {
        daemons: daemons?.iter().filter_map(daemon).collect(),
        webhooks,
    })
}

/// Those of our resources that these rules are about; none if there are none. A rule about all groups is somebody's
/// general policy, and no rival.
fn ours<'a>(rules: impl Iterator<Item = &'a RuleWithOperations>) -> Option<String> {
    let kinds = [
        (KRUISE_GROUP, "imagepulljobs"),
        (KRUISE_GROUP, "imagelistpulljobs"),
        (KRUISE_GROUP, "nodeimages"),
        (KUBEEDGE_GROUP, "imageprepulljobs"),
    ];
    let rules: Vec<&RuleWithOperations> = rules.collect();
    let is_judged = |(group, resource): &&(&str, &str)| {
        rules.iter().any(|rule| {
            let groups = rule.api_groups.iter().flatten();
            let mut resources = rule.resources.iter().flatten();
            groups.into_iter().any(|judged| judged == group)
                && resources
                    .any(|judged| judged == "*" || judged == "*/*" || judged.split('/').next() == Some(resource))
        })
    };
    let judged: Vec<&str> = kinds.iter().filter(is_judged).map(|(_, resource)| *resource).collect();
    (!judged.is_empty()).then(|| judged.join(", "))
}

/// `node`: one that has a NodeImage, on whose status it is tried.
pub(super) async fn policy(client: &Client, node: Option<&str>, namespace: &str, accounts: &Accounts) -> Seen<Policy> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let all = ListParams::default();
    let (policy, bindings) = futures::join!(see(policies.get_opt(POLICY)), see(bindings.list(&all)));
    let ours = |binding: &&ValidatingAdmissionPolicyBinding| {
        binding.spec.as_ref().and_then(|spec| spec.policy_name.as_deref()) == Some(POLICY)
    };
    let denies = |binding: &ValidatingAdmissionPolicyBinding| {
        let spec = binding.spec.as_ref();
        let mut actions = spec
            .and_then(|spec| spec.validation_actions.as_ref())
            .into_iter()
            .flatten();
        actions.any(|action| action == "Deny")
    };
    let bindings = bindings?;
    let bound: Vec<&ValidatingAdmissionPolicyBinding> = bindings.iter().filter(ours).collect();
    let bound = match bound.as_slice() {
        [] => Binding::Missing,
        some if some.iter().any(|binding| denies(binding)) => Binding::Denies,
        _ => Binding::Toothless,
    };
    Ok(Policy {
        installed: policy?.is_some(),
        bound,
        probe: match node {
            Some(node) => probe(client, node, namespace, accounts).await,
            None => Probe::NotTried,
        },
    })
}

/// Tries it as the agents' account, because an administrator passes the policy.
pub(super) async fn probe(client: &Client, node: &str, namespace: &str, accounts: &Accounts) -> Probe {
    let agent = format!("system:serviceaccount:{namespace}:{}", accounts.agent);
    match timeout(REQUEST, try_policy(client, node, &agent)).await {
        Ok((policy_probe::Probe::Accepted, _)) => Probe::Accepted,
        Ok((policy_probe::Probe::Refused, _)) => Probe::Refused,
        // The current user may not impersonate the account, or the account may write no status.
        Ok((policy_probe::Probe::Inconclusive | policy_probe::Probe::NoAnswer, _)) | Err(_) => Probe::NotTried,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::kruise(&["apps.kruise.io"], &["imagepulljobs", "nodeimages/status"], Some("imagepulljobs, nodeimages"))]
    #[case::everything_of_the_group(&["apps.kruise.io"], &["*"], Some("imagepulljobs, imagelistpulljobs, nodeimages"))]
    #[case::its_other_kinds(&["apps.kruise.io"], &["clonesets"], None)]
    #[case::other_group(&["apps"], &["*"], None)]
    #[case::general_policy(&["*"], &["*"], None)]
    fn whom_webhooks_judge(#[case] groups: &[&str], #[case] resources: &[&str], #[case] want: Option<&str>) {
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let rule = RuleWithOperations {
            api_groups: texts(groups),
            resources: texts(resources),
            ..RuleWithOperations::default()
        };
        assert_eq!(ours([&rule].into_iter()).as_deref(), want);
    }
}
