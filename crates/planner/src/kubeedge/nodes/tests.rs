use larder_api::image_pre_pull_job::NodeTaskStatus;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// edge-1 and edge-2 are edge nodes of the east; down is not ready; cloud is no edge node; odd has the label with a value.
fn with_fleet<T>(look: impl FnOnce(&BTreeMap<NodeKey, Candidate<'_>>) -> T) -> T {
    let edge = labels(&[(EDGE_NODE_LABEL, ""), ("region", "east")]);
    let cloud = labels(&[("region", "east")]);
    let odd = labels(&[(EDGE_NODE_LABEL, "true"), ("region", "east")]);
    let ready = |labels| Candidate {
        labels,
        ready: true,
        no_agent: None,
    };
    let fleet = [
        ("edge-1", ready(&edge)),
        ("edge-2", ready(&edge)),
        (
            "down",
            Candidate {
                labels: &edge,
                ready: false,
                no_agent: None,
            },
        ),
        ("cloud", ready(&cloud)),
        ("odd", ready(&odd)),
        (
            "odd-and-down",
            Candidate {
                labels: &odd,
                ready: false,
                no_agent: None,
            },
        ),
    ];
    look(&fleet.map(|(name, node)| (NodeKey::from(name), node)).into())
}

fn rule(template: &Value) -> Result<NodeRule, NodeRuleError> {
    let mut whole = json!({"images": ["nginx"]});
    whole
        .as_object_mut()
        .unwrap()
        .extend(template.as_object().unwrap().clone());
    NodeRule::parse(&serde_json::from_value(whole).unwrap())
}

/// Nodes with what their entries say, and who was left out.
type Picture = (Vec<(String, Option<String>)>, LeftOut);

fn chosen(template: &Value, waits: bool, before: &Before) -> Result<Picture, NoNodes> {
    let rule = rule(template).unwrap();
    let choice = with_fleet(|fleet| choose(&rule, fleet, waits, before))?;
    let text = |node: &Chosen| {
        (
            node.name.to_string(),
            node.unfit.as_ref().map(|unfit| unfit.text(&node.name)),
        )
    };
    Ok((choice.nodes.iter().map(text).collect(), choice.left_out))
}

#[rstest]
#[case::fit("edge-1", false, None)]
#[case::missing("gone", false, Some("failed to get node, err: nodes \"gone\" not found"))]
#[case::not_edge("cloud", false, Some("the node is not an edge node"))]
#[case::label_with_a_value("odd", false, Some("the node is not an edge node"))]
#[case::not_ready("down", false, Some("the node is not ready"))]
#[case::edge_comes_before_ready("odd-and-down", false, Some("the node is not an edge node"))]
#[case::waited_for("down", true, None)]
#[case::a_deadline_makes_no_edge_node("cloud", true, Some("the node is not an edge node"))]
#[case::a_deadline_makes_no_node("gone", true, Some("failed to get node, err: nodes \"gone\" not found"))]
fn a_named_node_is_recorded_with_the_known_text(#[case] name: &str, #[case] waits: bool, #[case] want: Option<&str>) {
    let (nodes, left_out) = chosen(&json!({"nodeNames": [name]}), waits, &Before::default()).unwrap();
    assert_eq!(nodes, [(name.to_owned(), want.map(str::to_owned))]);
    assert_eq!(left_out, LeftOut::default());
}

#[rstest]
#[case::node_names("nodeNames")]
#[case::the_guides_first_sample("nodes")]
fn names_count_once_and_keep_their_order(#[case] field: &str) {
    let template = json!({field: ["edge-2", "gone", "edge-1", "edge-2", "gone"]});
    let (nodes, _) = chosen(&template, false, &Before::default()).unwrap();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["edge-2", "gone", "edge-1"]);
}

#[rstest]
#[case::without_a_deadline(false, &["edge-1", "edge-2"], LeftOut { not_edge: 3, not_ready: 1, ..LeftOut::default() })]
#[case::with_a_deadline(true, &["down", "edge-1", "edge-2"], LeftOut { not_edge: 3, ..LeftOut::default() })]
fn labelled_nodes_that_do_not_qualify_are_left_out(
    #[case] waits: bool,
    #[case] want: &[&str],
    #[case] left_out: LeftOut,
    #[values(json!({}), json!({"matchLabels": {"region": "east"}}))] selector: Value,
) {
    let (nodes, counted) = chosen(&json!({"labelSelector": selector}), waits, &Before::default()).unwrap();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names.as_slice(), counted), (want, left_out));
    assert!(nodes.iter().all(|(_, unfit)| unfit.is_none()));
}

#[test]
fn no_node_left_is_upstreams_text() {
    let nobody = chosen(
        &json!({"labelSelector": {"matchLabels": {"region": "west"}}}),
        false,
        &Before::default(),
    );
    assert_eq!(nobody.unwrap_err().to_string(), "no nodes were matched with selector");
}

#[rstest]
#[case::both(json!({"nodeNames": ["a"], "labelSelector": {}}), "nodeNames and nodeSelector cannot be specified at the same time")]
#[case::both_by_the_other_name(json!({"nodes": ["a"], "labelSelector": {}}), "nodeNames and nodeSelector cannot be specified at the same time")]
#[case::neither(json!({}), "nodeNames and nodeSelector cannot both be empty")]
#[case::empty_names(json!({"nodeNames": []}), "nodeNames and nodeSelector cannot both be empty")]
#[case::both_names(json!({"nodeNames": ["a"], "nodes": ["a"]}), "nodes is another name of nodeNames; give only one of them")]
#[case::operator(json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}), "nodeSelector is invalid, err: the label selector's operator \"Near\" is unknown; use In, NotIn, Exists or DoesNotExist")]
fn old_objects_are_refused_with_upstreams_texts(#[case] template: Value, #[case] want: &str) {
    assert_eq!(rule(&template).unwrap_err().to_string(), want);
}

#[test]
fn empty_names_beside_labels_are_not_given() {
    let read = rule(&json!({"nodeNames": [], "nodes": [], "labelSelector": {}}));
    assert_eq!(read, Ok(NodeRule::Labels(LabelRule::default())));
}

/// Nodes with their phase and the word for why they failed.
fn status(entries: &[(&str, &str, Option<&str>)]) -> ImagePrePullJobStatus {
    let entry = |(name, phase, cause): &(&str, &str, Option<&str>)| NodeTaskStatus {
        node_name: Some((*name).to_owned()),
        phase: Some((*phase).to_owned()),
        cause: cause.map(str::to_owned),
        ..NodeTaskStatus::default()
    };
    ImagePrePullJobStatus {
        node_status: entries.iter().map(entry).collect(),
        ..ImagePrePullJobStatus::default()
    }
}

#[test]
fn a_restarted_controller_comes_to_the_same_choice() {
    let status = status(&[("down", "InProgress", None), ("cloud", "Failure", Some("NotEdgeNode"))]);
    let before = Before::of(Some(&status), ["gone".into()]);
    let by_name = json!({"nodeNames": ["cloud", "gone", "down", "edge-1"]});
    let (nodes, _) = chosen(&by_name, false, &before).unwrap();
    let unfit: Vec<bool> = nodes.iter().map(|(_, unfit)| unfit.is_some()).collect();
    assert_eq!(unfit, [true, false, false, false]);
    let (nodes, _) = chosen(&json!({"labelSelector": {}}), false, &before).unwrap();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["cloud", "down", "gone"],
        "nodes that match only now are not taken in"
    );
}

/// The node of this name qualifies now; what was decided about it stays.
#[rstest]
#[case::refused("Failure", Some("NotReadyAtStart"), "any text", Some("the node is not ready"))]
#[case::refused_and_the_text_left_out("Failure", Some("NotEdgeNode"), "", Some("the node is not an edge node"))]
#[case::went_down_later("Failure", Some("NodeNotReady"), "the node is not ready", None)]
#[case::left_later(
    "Failure",
    Some("NodeUnsuitable"),
    "failed to get node, err: nodes \"edge-1\" not found",
    None
)]
#[case::waits_and_is_gone("Pending", None, "failed to get node, err: nodes \"edge-1\" not found", None)]
#[case::no_valid_image("Failure", Some("InvalidReference"), "any text", None)]
fn the_word_says_whether_a_node_was_refused(
    #[case] phase: &str,
    #[case] cause: Option<&str>,
    #[case] text: &str,
    #[case] want: Option<&str>,
    #[values(json!({"nodeNames": ["edge-1"]}), json!({"labelSelector": {}}))] template: Value,
) {
    let mut status = status(&[("edge-1", phase, cause)]);
    status.node_status[0].reason = Some(text.to_owned());
    let (nodes, _) = chosen(&template, false, &Before::of(Some(&status), [])).unwrap();
    assert_eq!(nodes, [("edge-1".to_owned(), want.map(str::to_owned))]);
}

#[rstest]
#[case::qualifies("edge-1", None)]
#[case::not_edge("cloud", Some("the node is not an edge node"))]
#[case::missing("gone", Some("failed to get node, err: nodes \"gone\" not found"))]
fn a_node_that_failed_under_other_software_is_looked_at_anew(
    #[case] name: &str,
    #[case] want: Option<&str>,
    #[values(true, false)] by_name: bool,
) {
    let template = if by_name {
        json!({"nodeNames": [name]})
    } else {
        json!({"labelSelector": {}})
    };
    let before = Before::of(Some(&status(&[(name, "Failure", None)])), []);
    let (nodes, _) = chosen(&template, false, &before).unwrap();
    assert_eq!(nodes, [(name.to_owned(), want.map(str::to_owned))]);
}

/// Where the status had no room for all names, those that it has stay, and the others are found by the selector again.
#[test]
fn without_all_names_the_labels_are_looked_at_anew() {
    let mut status = status(&[("gone", "Pending", None)]);
    status.omitted_nodes = serde_json::from_value(json!([
        {"phase": "Pending", "count": 2, "nodes": ["down"]},
        {"phase": "Failure", "cause": "NotFound", "count": 1, "nodes": ["cloud"]},
    ]))
    .unwrap();
    let names = |status: &ImagePrePullJobStatus| {
        let before = Before::of(Some(status), []);
        let (nodes, _) = chosen(&json!({"labelSelector": {}}), false, &before).unwrap();
        nodes.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&status), ["cloud", "down", "edge-1", "edge-2", "gone"]);
    status.omitted_nodes[0].count = 1;
    assert_eq!(names(&status), ["cloud", "down", "gone"]);
    let done = serde_json::from_value(json!({"phase": "Successful", "count": 7})).unwrap();
    status.omitted_nodes.push(done);
    assert_eq!(
        names(&status),
        ["cloud", "down", "gone"],
        "claims tell of nodes that are done"
    );
}

#[test]
fn an_edit_takes_others_in_and_keeps_who_is_still_named() {
    let before = Before::of(Some(&status(&[("down", "InProgress", None)])), []).edited();
    let (nodes, _) = chosen(
        &json!({"labelSelector": {"matchLabels": {"region": "east"}}}),
        false,
        &before,
    )
    .unwrap();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["down", "edge-1", "edge-2"]);
}

#[test]
fn what_was_left_out_is_said_in_a_sentence() {
    assert_eq!(LeftOut::default().sentence(), None);
    let left_out = LeftOut {
        not_edge: 2,
        not_ready: 1,
        ..LeftOut::default()
    };
    assert_eq!(
        left_out.sentence().unwrap(),
        "3 nodes with the right labels left out: 2 not edge nodes, 1 not ready"
    );
}

#[rstest]
#[case::by_label(&json!({"labelSelector": {"matchLabels": {"region": "east"}}}), &[("edge-1", None)])]
#[case::by_name(
    &json!({"nodeNames": ["edge-1", "windows"]}),
    &[("edge-1", None), ("windows", Some("no agent runs on this node: its operating system is not Linux"))]
)]
fn a_node_without_an_agent_is_left_out_unless_it_is_named(
    #[case] template: &Value,
    #[case] want: &[(&str, Option<&str>)],
) {
    let edge = labels(&[(EDGE_NODE_LABEL, ""), ("region", "east")]);
    let node = |no_agent| Candidate {
        labels: &edge,
        ready: true,
        no_agent,
    };
    let fleet = [
        (NodeKey::from("edge-1"), node(None)),
        (NodeKey::from("windows"), node(Some(NoAgent::OperatingSystem))),
    ];
    let rule = rule(template).unwrap();
    let choice = choose(&rule, &fleet.into(), false, &Before::default()).unwrap();
    let chosen: Vec<(&str, Option<String>)> = choice
        .nodes
        .iter()
        .map(|chosen| {
            (
                &*chosen.name,
                chosen.unfit.as_ref().map(|unfit| unfit.text(&chosen.name)),
            )
        })
        .collect();
    let chosen: Vec<(&str, Option<&str>)> = chosen.iter().map(|(name, text)| (*name, text.as_deref())).collect();
    assert_eq!(chosen, want);
    let left_out = choice.left_out.sentence();
    let said = "1 node is left out because no agent runs there: 1 not running Linux (windows)";
    assert_eq!(left_out.as_deref(), (want.len() == 1).then_some(said));
}

proptest! {
    #[test]
    fn no_node_is_chosen_twice(names in proptest::collection::vec("[a-c]{1,2}", 1..30), waits: bool) {
        let rule = rule(&json!({"nodeNames": names})).unwrap();
        let choice = with_fleet(|fleet| choose(&rule, fleet, waits, &Before::default())).unwrap();
        let once: BTreeSet<&NodeKey> = choice.nodes.iter().map(|node| &node.name).collect();
        prop_assert_eq!(once.len(), choice.total());
        prop_assert_eq!(choice.unfit() + choice.fit().count(), choice.total());
    }
}
