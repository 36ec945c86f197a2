use rstest::rstest;
use serde_json::Value;

use super::*;

fn all(settings: &Settings) -> Vec<Value> {
    manifests(settings)
        .into_iter()
        .flat_map(|manifest| manifest.objects)
        .collect()
}

fn rules_of(settings: &Settings, kind: &str, name: &str) -> Vec<Value> {
    let found: Vec<Value> = all(settings)
        .into_iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .collect();
    let [role] = found.as_slice() else {
        panic!("{} roles {name}", found.len());
    };
    role["rules"].as_array().unwrap().clone()
}

fn verbs_on(rules: &[Value], resource: &str) -> Vec<String> {
    let about = |rule: &&Value| rule["resources"].as_array().unwrap().iter().any(|one| one == resource);
    rules
        .iter()
        .filter(about)
        .flat_map(|rule| rule["verbs"].as_array().unwrap().clone())
        .map(|verb| verb.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_agent_has_two_rules_and_no_more() {
    let rules = rules_of(&Settings::default(), "ClusterRole", AGENT);
    assert_eq!(rules.len(), 2);
    assert_eq!(verbs_on(&rules, "nodeimages"), ["get", "list", "watch"]);
    assert_eq!(verbs_on(&rules, "nodeimages/status"), ["patch"]);
}

#[test]
fn workloads_are_read_only_where_they_are_followed() {
    let usual = rules_of(&Settings::default(), "ClusterRole", CONTROLLER);
    for resource in ["deployments", "statefulsets", "cronjobs", "namespaces"] {
        assert_eq!(verbs_on(&usual, resource), Vec::<String>::new(), "{resource}");
    }
    let optional = warm_workloads(&Settings::default());
    let rules = optional[0]["rules"].as_array().unwrap();
    assert_eq!(verbs_on(rules, "deployments"), ["get", "list", "watch"]);
    assert_eq!(verbs_on(rules, "serviceaccounts"), ["get"]);
    assert_eq!(verbs_on(rules, "imagelistpulljobs"), ["create"]);
    assert_eq!(optional[1]["subjects"][0]["name"], CONTROLLER);
    assert!(!rules.iter().any(|rule| rule.to_string().contains('*')));
}

#[test]
fn nodes_are_written_only_where_they_are_gated() {
    let usual = rules_of(&Settings::default(), "ClusterRole", CONTROLLER);
    assert_eq!(verbs_on(&usual, "nodes"), ["get", "list", "watch"]);
    assert_eq!(verbs_on(&usual, "nodes/status"), Vec::<String>::new());
    let optional = node_gate(&Settings::default());
    let rules = optional[0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(verbs_on(rules, "nodes"), ["patch"]);
    assert_eq!(verbs_on(rules, "nodes/status"), ["patch"]);
    assert_eq!(optional[1]["subjects"][0]["name"], CONTROLLER);
}

#[rstest]
#[case::gate_on(true, &["get"])]
#[case::gate_off(false, &[])]
fn secrets_are_read_by_name_and_only_for_jobs(#[case] image_pull_jobs: bool, #[case] verbs: &[&str]) {
    let settings = Settings {
        image_pull_jobs,
        ..Settings::default()
    };
    assert_eq!(
        verbs_on(&rules_of(&settings, "ClusterRole", CONTROLLER), "secrets"),
        verbs
    );
}

#[rstest]
#[case::absent(KubeEdge::Absent)]
#[case::node_identity(KubeEdge::NodeIdentity)]
#[case::cloud_core(KubeEdge::CloudCore)]
fn nothing_is_granted_by_wildcard(#[case] kube_edge: KubeEdge) {
    let settings = Settings {
        kube_edge,
        ..Settings::default()
    };
    for object in all(&settings) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            assert!(!rule.to_string().contains('*'), "{rule}");
        }
    }
}

#[rstest]
#[case::absent(KubeEdge::Absent, false)]
#[case::node_identity(KubeEdge::NodeIdentity, false)]
#[case::cloud_core(KubeEdge::CloudCore, true)]
fn cloud_core_writes_only_where_it_was_accepted(#[case] kube_edge: KubeEdge, #[case] accepted: bool) {
    let settings = Settings {
        kube_edge,
        ..Settings::default()
    };
    let policy = policy::objects(&settings).remove(0);
    let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    assert_eq!(expression.contains("isCloudCore"), accepted);
}

/// Otherwise an agent could pass the policy as an administrator.
#[rstest]
#[case::absent(KubeEdge::Absent)]
#[case::node_identity(KubeEdge::NodeIdentity)]
#[case::cloud_core(KubeEdge::CloudCore)]
fn nobody_is_granted_the_verb_of_administrators(#[case] kube_edge: KubeEdge) {
    let settings = Settings {
        kube_edge,
        ..Settings::default()
    };
    let hooks = installer(&settings).into_iter().chain(uninstaller(&settings));
    for object in all(&settings).into_iter().chain(hooks) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            assert!(!rule["verbs"].to_string().contains(BYPASS_VERB), "{rule}");
        }
    }
    let policy = policy::objects(&settings).remove(0);
    assert!(
        policy.to_string().contains(&format!("check('{BYPASS_VERB}')")),
        "{policy}"
    );
}

#[test]
fn every_object_is_in_the_namespace_of_the_settings() {
    let settings = Settings {
        namespace: "elsewhere".into(),
        ..Settings::default()
    };
    let text = serde_json::to_string(&all(&settings)).unwrap();
    assert!(text.contains("system:serviceaccount:elsewhere:larder-controller"));
    assert!(!text.contains("larder-system"));
}
