//! A controller that takes over a job with a large status comes to the choice of nodes that was made before.

use larder_api::image_pre_pull_job::NodeTaskStatus;
use larder_api::names::EDGE_NODE_LABEL;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dialect::Candidate;
use crate::kubeedge::Before;
use crate::kubeedge::nodes::{NodeRule, Unfit, choose};
use crate::kubeedge::recorded;
use crate::kubeedge::samples::job;
use crate::select::LabelRule;
use crate::view::NodeView;
use crate::view::samples::at;

/// Names of 44 characters.
fn name(number: usize) -> NodeKey {
    format!("edge-node-{number:05}.region-west.example.internal").into()
}

fn names(count: usize) -> Vec<NodeKey> {
    (0..count).map(name).collect()
}

fn labels(edge: bool) -> BTreeMap<String, String> {
    edge.then(|| (EDGE_NODE_LABEL.to_owned(), String::new()))
        .into_iter()
        .collect()
}

fn chosen(job: &ImagePrePullJob, nodes: &[(&NodeKey, bool)], before: &Before) -> Choice {
    let (edge, cloud) = (labels(true), labels(false));
    let candidate = |is_edge: bool| Candidate {
        labels: if is_edge { &edge } else { &cloud },
        ready: true,
        no_agent: None,
    };
    let fleet = nodes
        .iter()
        .map(|(name, is_edge)| ((*name).clone(), candidate(*is_edge)));
    choose(&PrePull::of(job).unwrap().nodes, &fleet.collect(), false, before).unwrap()
}

/// The status of a job whose nodes wait, except that `done` have succeeded.
fn status_of(job: &ImagePrePullJob, choice: &Choice, done: &[NodeKey]) -> ImagePrePullJobStatus {
    let plan = PrePull::of(job).unwrap();
    let mut progress = Progress::new(plan.campaign(choice, Tasks::default()), at(0));
    for node in done {
        progress.node_changed(node, NodeView::succeeded_before(at(0)), at(1));
    }
    let run = PrePullRun {
        plan,
        choice: choice.clone(),
        reports: Reports::default(),
    };
    let status = status(&run, job, &mut progress, &UnusableSecrets::default(), None, at(1));
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < BUDGET, "{bytes}");
    let message = &status.progress.conditions[0].message;
    assert!(message.contains("left out to keep this status small"), "{message}");
    status
}

fn by_labels() -> ImagePrePullJob {
    job(&json!({"labelSelector": {}}), &json!([]))
}

#[test]
fn nodes_that_wait_are_neither_lost_nor_joined_by_others() {
    let (job, names) = (by_labels(), names(12_000));
    let fleet: Vec<(&NodeKey, bool)> = names.iter().map(|name| (name, true)).collect();
    let choice = chosen(&job, &fleet, &Before::default());
    let done = &names[..100];
    let said = status_of(&job, &choice, done);
    let joined = name(12_000);
    let fleet: Vec<(&NodeKey, bool)> = names.iter().chain([&joined]).map(|name| (name, true)).collect();
    assert!(chosen(&job, &fleet, &Before::of(Some(&said), done.iter().cloned())) == choice);
}

#[test]
fn a_named_node_that_was_refused_stays_refused() {
    let names = names(10_000);
    let template = json!({"nodeNames": names.iter().map(|name| &**name).collect::<Vec<_>>(), "failureTolerate": "1"});
    let job = job(&template, &json!([]));
    let is_cloud = |number: usize| number.is_multiple_of(5);
    let fleet: Vec<(&NodeKey, bool)> = names
        .iter()
        .zip(0..)
        .map(|(name, number)| (name, !is_cloud(number)))
        .collect();
    let choice = chosen(&job, &fleet, &Before::default());
    assert_eq!(choice.unfit(), 2_000);
    let said = status_of(&job, &choice, &[]);
    let fleet: Vec<(&NodeKey, bool)> = names.iter().map(|name| (name, true)).collect();
    assert!(chosen(&job, &fleet, &Before::of(Some(&said), [])) == choice);
}

#[test]
fn a_success_on_a_node_that_left_is_still_counted() {
    let (job, names) = (by_labels(), names(10_000));
    let fleet: Vec<(&NodeKey, bool)> = names.iter().map(|name| (name, true)).collect();
    let choice = chosen(&job, &fleet, &Before::default());
    let said = status_of(&job, &choice, &names[..6_000]);
    let (left, here) = names.split_at(100);
    let claimed = here[..5_900].iter().cloned();
    let fleet: Vec<(&NodeKey, bool)> = here.iter().map(|name| (name, true)).collect();
    assert!(chosen(&job, &fleet, &Before::of(Some(&said), claimed)) == choice);
    let departed = Reports::of_departed(Some(&said), |node| !left.iter().any(|name| &**name == node));
    assert!(departed.nodes().eq(left));
}

/// Where a node may stand, with the word for why it failed.
fn standings() -> impl Strategy<Value = Vec<(NodePhase, Option<&'static str>)>> {
    let standing = proptest::sample::select(vec![
        (NodePhase::Pending, None),
        (NodePhase::InProgress, None),
        (NodePhase::Successful, None),
        (NodePhase::Failure, Some(Reason::NotFound.as_str())),
        (NodePhase::Unknown, Some(Reason::Unresponsive.as_str())),
        (NodePhase::Failure, Some(Unfit::NotEdge.word())),
        (NodePhase::Failure, Some(Unfit::NotReady.word())),
    ]);
    proptest::collection::vec(standing, 1..40)
}

proptest! {
    /// However little room there is: as long as names fit, it is known again who was chosen and who was refused.
    #[test]
    fn the_choice_outlives_every_cut(standings in standings(), budget in 4_600_usize..12_000) {
        let named: Vec<(NodeKey, NodePhase, Option<&str>)> =
            standings.iter().zip(0..).map(|((phase, cause), number)| (name(number), *phase, *cause)).collect();
        let entry = |(name, phase, cause): &(NodeKey, NodePhase, Option<&str>)| NodeTaskStatus {
            node_name: Some(name.to_string()),
            phase: Some(phase.as_str().to_owned()),
            cause: cause.map(str::to_owned),
            reason: cause.map(|_| "x".repeat(100)),
            ..NodeTaskStatus::default()
        };
        let mut status = ImagePrePullJobStatus {
            node_status: named.iter().map(entry).collect(),
            ..ImagePrePullJobStatus::default()
        };
        fit(&mut status, Details { of_done_nodes: true, of_others: true }, budget);
        prop_assume!(recorded::is_complete(&status));
        let done = named.iter().filter(|(_, phase, _)| *phase == NodePhase::Successful);
        let before = Before::of(Some(&status), done.map(|(name, ..)| name.clone()));
        let choice = choose(&NodeRule::Labels(LabelRule::default()), &BTreeMap::new(), false, &before).unwrap();
        let found: Vec<_> = choice.nodes.iter().map(|node| (&node.name, node.unfit.clone())).collect();
        let want: Vec<_> = named.iter().map(|(name, _, cause)| (name, cause.and_then(Unfit::parse))).collect();
        prop_assert_eq!(found, want);
    }
}
