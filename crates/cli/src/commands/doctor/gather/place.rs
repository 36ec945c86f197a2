//! Where Larder is: in which namespaces a controller was installed, by chart or by manifests.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use larder_api::names::LARDER_NAMESPACE;

use super::see;

/// What the controller's Deployment is labelled with, whatever its namespace.
const CONTROLLER: &str = "app.kubernetes.io/name=larder,app.kubernetes.io/component=controller";

/// The namespace to look at and the others. Whoever may not list Deployments is taken to the usual one.
pub(super) async fn find(client: &Client, given: Option<&str>) -> (String, Vec<String>) {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let labelled = ListParams::default().labels(CONTROLLER);
    let found = see(deployments.list(&labelled)).await.map(|list| list.items);
    let found = found.unwrap_or_default();
    choose(given, found.iter().filter_map(ResourceExt::namespace).collect())
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
