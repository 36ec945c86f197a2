//! Where Larder is, and which ServiceAccounts it uses: chart and manifests label their objects, whatever the names are.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use larder_access::{AGENT, CONTROLLER};
use larder_api::names::LARDER_NAMESPACE;

use super::see;
use crate::commands::doctor::facts::Accounts;

/// Labels of the controller's Deployment and of the agents' DaemonSet.
const CONTROLLERS: &str = "app.kubernetes.io/part-of=larder,app.kubernetes.io/component=controller";
const AGENTS: &str = "app.kubernetes.io/part-of=larder,app.kubernetes.io/component=agent";

/// An installation.
pub(super) struct Place {
    pub(super) namespace: String,
    /// Namespaces of other installations.
    pub(super) elsewhere: Vec<String>,
    pub(super) accounts: Accounts,
}

/// The installation to look at. Without the right to list Deployments it is the usual one.
pub(super) async fn find(client: &Client, given: Option<&str>) -> Place {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let labelled = ListParams::default().labels(CONTROLLERS);
    let found = see(deployments.list(&labelled)).await.map(|list| list.items);
    let found = found.unwrap_or_default();
    let (namespace, elsewhere) = choose(given, found.iter().filter_map(ResourceExt::namespace).collect());
    let controller = found
        .iter()
        .find(|one| one.namespace().as_deref() == Some(&namespace))
        .and_then(|one| account(&one.spec.as_ref()?.template));
    let agents: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    let agents = see(agents.list(&ListParams::default().labels(AGENTS))).await;
    let agent = agents
        .iter()
        .flatten()
        .find_map(|one| account(&one.spec.as_ref()?.template));
    Place {
        namespace,
        elsewhere,
        accounts: Accounts {
            controller: controller.unwrap_or_else(|| CONTROLLER.to_owned()),
            agent: agent.unwrap_or_else(|| AGENT.to_owned()),
        },
    }
}

fn account(pods: &PodTemplateSpec) -> Option<String> {
    pods.spec.as_ref()?.service_account_name.clone()
}

/// What was given counts; else the usual one, if it is there or if there is none; else the first.
fn choose(given: Option<&str>, mut found: Vec<String>) -> (String, Vec<String>) {
    found.sort();
    found.dedup();
    let usual = || found.iter().find(|name| *name == LARDER_NAMESPACE).or(found.first());
    let namespace = match (given, usual()) {
        (Some(given), _) => given.to_owned(),
        (None, Some(usual)) => usual.clone(),
        (None, None) => LARDER_NAMESPACE.to_owned(),
    };
    found.retain(|name| *name != namespace);
    (namespace, found)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nowhere(None, &[], "larder-system", &[])]
    #[case::usual(None, &["larder-system"], "larder-system", &[])]
    #[case::another(None, &["pantry"], "pantry", &[])]
    #[case::two(None, &["cellar", "larder-system"], "larder-system", &["cellar"])]
    #[case::two_unusual(None, &["pantry", "cellar"], "cellar", &["pantry"])]
    #[case::given(Some("pantry"), &["pantry"], "pantry", &[])]
    #[case::given_and_wrong(Some("kitchen"), &["pantry"], "kitchen", &["pantry"])]
    fn where_larder_is(
        #[case] given: Option<&str>,
        #[case] found: &[&str],
        #[case] namespace: &str,
        #[case] elsewhere: &[&str],
    ) {
        let found = found.iter().map(|name| (*name).to_owned()).collect();
        let elsewhere = elsewhere.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(choose(given, found), (namespace.to_owned(), elsewhere));
    }
}
