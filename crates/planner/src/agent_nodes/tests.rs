use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

fn agents(daemon_sets: Value) -> AgentNodes {
    let daemon_sets: Vec<AgentPods> = serde_json::from_value(daemon_sets).unwrap();
    AgentNodes::new(&daemon_sets).unwrap()
}

/// What the chart renders without any values, and one more label.
fn chart() -> AgentNodes {
    agents(json!([{
        "nodeSelector": {"kubernetes.io/os": "linux", "pool": "big"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [
                {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
                {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]},
            ]},
        ]}}},
        "tolerations": [{"operator": "Exists"}],
    }]))
}

const LINUX: (&str, &str) = ("kubernetes.io/os", "linux");
const BIG: (&str, &str) = ("pool", "big");

#[rstest]
#[case::linux(&[LINUX, BIG], None)]
#[case::windows(&[("kubernetes.io/os", "windows"), BIG], Some(NoAgent::OperatingSystem))]
#[case::virtual_kubelet(&[LINUX, BIG, ("type", "virtual-kubelet")], Some(NoAgent::Virtual))]
#[case::fargate(&[LINUX, BIG, ("eks.amazonaws.com/compute-type", "fargate")], Some(NoAgent::Virtual))]
#[case::outside_the_selector(&[LINUX, ("pool", "small")], Some(NoAgent::NotSelected))]
fn by_the_charts_definition(#[case] node: &[(&str, &str)], #[case] want: Option<NoAgent>) {
    assert_eq!(chart().without_agent("a", &labels(node), &[]), want);
}

#[rstest]
#[case::nothing_is_known_of_it(&[], None)]
#[case::linux(&[LINUX], None)]
#[case::windows(&[("kubernetes.io/os", "windows")], Some(NoAgent::OperatingSystem))]
#[case::virtual_kubelet(&[("type", "virtual-kubelet")], Some(NoAgent::Virtual))]
#[case::fargate(&[("eks.amazonaws.com/compute-type", "fargate")], Some(NoAgent::Virtual))]
fn by_default(#[case] node: &[(&str, &str)], #[case] want: Option<NoAgent>) {
    let taints = [taint("gpu", "NoSchedule")];
    assert_eq!(AgentNodes::default().without_agent("a", &labels(node), &taints), want);
}

#[rstest]
#[case::in_list("In", &["x", "y"], true)]
#[case::not_in("NotIn", &["x"], false)]
#[case::exists("Exists", &[], true)]
#[case::does_not_exist("DoesNotExist", &[], false)]
#[case::above("Gt", &["3"], false)]
#[case::below("Lt", &["3"], false)]
fn expressions_on_a_label(#[case] operator: &str, #[case] values: &[&str], #[case] want: bool) {
    assert_eq!(
        required("zone", operator, values)
            .without_agent("a", &labels(&[("zone", "x")]), &[])
            .is_none(),
        want
    );
}

#[rstest]
#[case::above("Gt", "3", true)]
#[case::not_above("Gt", "4", false)]
#[case::below("Lt", "5", true)]
#[case::not_below("Lt", "4", false)]
fn expressions_on_a_number(#[case] operator: &str, #[case] limit: &str, #[case] want: bool) {
    let nodes = required("cores", operator, &[limit]);
    assert_eq!(
        nodes.without_agent("a", &labels(&[("cores", "4")]), &[]).is_none(),
        want
    );
    assert!(nodes.without_agent("a", &BTreeMap::new(), &[]).is_some());
}

fn required(key: &str, operator: &str, values: &[&str]) -> AgentNodes {
    terms(&json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
}

fn terms(terms: &Value) -> AgentNodes {
    agents(json!([{"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}}]))
}

#[rstest]
#[case::an_empty_term_matches_nothing(json!([{}]), false)]
#[case::no_term_matches_nothing(json!([]), false)]
#[case::terms_are_alternatives(json!([{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]), true)]
#[case::another_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}]), false)]
fn affinity_terms(#[case] given: Value, #[case] want: bool) {
    assert_eq!(terms(&given).without_agent("a", &BTreeMap::new(), &[]).is_none(), want);
}

#[rstest]
#[case::tolerated("gpu", "NoSchedule", None)]
#[case::not_tolerated("other", "NoSchedule", Some(NoAgent::Taint))]
#[case::evicting("other", "NoExecute", Some(NoAgent::Taint))]
#[case::soft("other", "PreferNoSchedule", None)]
#[case::cordoned("node.kubernetes.io/unschedulable", "NoSchedule", None)]
#[case::not_ready("node.kubernetes.io/not-ready", "NoExecute", None)]
fn taints(#[case] key: &str, #[case] effect: &str, #[case] want: Option<NoAgent>) {
    let nodes = agents(json!([{"tolerations": [{"key": "gpu", "operator": "Exists"}]}]));
    assert_eq!(nodes.without_agent("a", &BTreeMap::new(), &[taint(key, effect)]), want);
}

#[test]
fn several_daemon_sets_cover_the_nodes_together() {
    let nodes = agents(json!([{"nodeSelector": {"edge": "no"}}, {"nodeSelector": {"edge": "yes"}}]));
    for edge in ["no", "yes"] {
        assert_eq!(nodes.without_agent("a", &labels(&[("edge", edge)]), &[]), None);
    }
    assert_eq!(
        nodes.without_agent("a", &BTreeMap::new(), &[]),
        Some(NoAgent::NotSelected)
    );
}

#[test]
fn what_is_left_out_is_counted_and_named() {
    let mut left_out = WithoutAgent::default();
    assert_eq!(left_out.sentence(), None);
    for (node, why) in [
        ("win-1", NoAgent::OperatingSystem),
        ("far-1", NoAgent::Virtual),
        ("far-2", NoAgent::Virtual),
        ("small", NoAgent::NotSelected),
    ] {
        assert!(left_out.set(&node.into(), Some(why)));
        assert!(!left_out.set(&node.into(), Some(why)), "nothing new");
    }
    assert_eq!(
        left_out.sentence().unwrap(),
        "4 nodes are left out because no agent runs there: 2 virtual, 1 not running Linux, 1 outside the agents' \
         nodeSelector or affinity (far-1, far-2, small, …)"
    );
    assert!(left_out.set(&"far-1".into(), None));
    assert!(!left_out.set(&"far-1".into(), None));
}
