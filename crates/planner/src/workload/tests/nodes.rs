//! Which nodes a job gets for what pods ask for.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::*;
use super::{deployment, list, named};

fn asking(mut more: Value) -> Value {
    more["containers"] = json!([{"name": "c", "image": "a:1"}]);
    more
}

fn affinity(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn zone(values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]})
}

#[rstest]
#[case::anywhere(json!({}), Value::Null, true)]
#[case::labels(json!({"nodeSelector": {"disk": "ssd", "zone": "a"}}), json!({"matchLabels": {"disk": "ssd", "zone": "a"}}), true)]
#[case::affinity(json!({"affinity": affinity(&json!([zone(&["a", "b"])]))}),
                 json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}), true)]
#[case::both(json!({"nodeSelector": {"zone": "a"}, "affinity": affinity(&json!([{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]))}),
             json!({"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}), true)]
#[case::one_of_two_zones(json!({"affinity": affinity(&json!([zone(&["b"]), zone(&["a"])]))}),
                         json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}), true)]
#[case::one_of_two_labels(json!({"nodeSelector": {"pool": "big"}, "affinity": affinity(&json!([zone(&["a"]), {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]))}),
                          json!({"matchLabels": {"pool": "big"}}), false)]
#[case::a_term_within_another(json!({"affinity": affinity(&json!([zone(&["a"]), {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}, {"key": "gpu", "operator": "Exists"}]}]))}),
                              json!({"matchLabels": {"zone": "a"}}), true)]
#[case::number(json!({"nodeSelector": {"zone": "a"}, "affinity": affinity(&json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}]))}),
               json!({"matchLabels": {"zone": "a"}}), false)]
#[case::empty_terms_match_nothing(json!({"affinity": affinity(&json!([{}, zone(&["a"])]))}), json!({"matchLabels": {"zone": "a"}}), true)]
#[case::node_names(json!({"affinity": affinity(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]))}),
                   json!({"names": ["n1", "n2"]}), true)]
#[case::node_name_and_label(json!({"nodeSelector": {"zone": "a"}, "affinity": affinity(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]))}),
                            json!({"names": ["n2"]}), false)]
#[case::all_nodes_but_one(json!({"affinity": affinity(&json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]}]))}),
                          Value::Null, false)]
#[case::preferred_is_not_required(json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": zone(&["a"])}]}}}),
                                  Value::Null, true)]
#[case::one_node(json!({"nodeName": "n1", "nodeSelector": {"zone": "a"}}), json!({"names": ["n1"]}), true)]
fn selectors(#[case] pods: Value, #[case] want: Value, #[case] is_exact: bool) {
    let list = list(&[deployment(&asking(pods))]);
    let selector = serde_json::to_value(&list.selector).unwrap();
    assert_eq!((selector, list.nodes_are_exact), (want, is_exact));
}

#[test]
fn a_pod_that_exists_says_nothing_about_its_node() {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": asking(json!({"nodeName": "n1"}))});
    let planned = read(&pod, "default").unwrap().unwrap();
    assert!(list(&[planned]).selector.is_some());
    pod["status"] = json!({"phase": "Running"});
    let running = read(&pod, "default").unwrap().unwrap();
    assert_eq!(list(&[running]).selector, None);
}

fn keys(list: &ImageList) -> Vec<&str> {
    let keys = list
        .tolerations
        .iter()
        .map(|one| one.key.as_deref().unwrap_or_default());
    keys.collect()
}

#[test]
fn nodes_with_other_taints_are_left_out() {
    let plain = list(&[deployment(&asking(json!({})))]);
    let by_all = [
        "larder.dev/warming",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ];
    assert_eq!(keys(&plain), by_all, "a job without tolerations ignores taints");
    assert_eq!(plain.spec().template.tolerations, Some(plain.tolerations.clone()));

    let own = json!({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "cores", "operator": "Gt", "value": "8"}]});
    let own = list(&[deployment(&asking(own))]);
    assert_eq!(keys(&own)[0], "gpu");
    assert_eq!(keys(&own)[1..], by_all, "an operator that jobs do not know is left out");

    let mut daemon_set = deployment(&asking(json!({})));
    daemon_set.kind = "DaemonSet".to_owned();
    assert!(keys(&list(&[daemon_set])).contains(&"node.kubernetes.io/unschedulable"));
}

#[test]
fn workloads_on_different_nodes_are_said() {
    let zones = |zones: &[&str]| -> Vec<Workload> {
        let one = |zone: &&str| named(zone, "shop", &asking(json!({"nodeSelector": {"zone": zone}})));
        zones.iter().map(one).collect()
    };
    assert_eq!(list(&zones(&["a", "a"])).notes, []);
    let two = list(&zones(&["a", "b"]));
    assert_eq!((two.notes, two.nodes_are_exact), (vec![Note::NodesDiffer], true));
    let mut with_all = zones(&["a", "b"]);
    with_all.push(deployment(&asking(json!({}))));
    let all = list(&with_all);
    assert_eq!((all.selector, all.nodes_are_exact), (None, true));

    let nowhere = named("lost", "shop", &asking(json!({"affinity": affinity(&json!([{}]))})));
    let mut with_lost = zones(&["a"]);
    with_lost.push(nowhere.clone());
    let workload = "Deployment lost".to_owned();
    assert_eq!(list(&with_lost).notes, [Note::NoNodes { workload }]);
    let refused = image_list(&[nowhere], &Accounts::new());
    assert!(matches!(refused, Err(Refusal::NoNodes)), "{refused:?}");
}

#[test]
fn an_operator_that_kubernetes_does_not_know_is_refused() {
    let pods = json!({"affinity": affinity(&json!([{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]))});
    let refused = image_list(&[deployment(&asking(pods))], &Accounts::new());
    assert!(matches!(refused, Err(Refusal::Operator(_))), "{refused:?}");
}
