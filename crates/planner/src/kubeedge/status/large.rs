//! A status of a large fleet, made by the same way as every other.

use std::collections::BTreeSet;

use larder_api::contract::{Answer, MESSAGE_BYTES_MAX};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::kubeedge::samples::job;
use crate::report::{ImageReport, NodeReport};
use crate::view::NodeView;
use crate::view::samples::at;

const NODES: usize = 5_000;
const IMAGES: usize = 5;

fn name(number: usize) -> NodeKey {
    format!("edge-node-{number:05}.region-west.example.internal").into()
}

fn report(answer: Answer) -> NodeReport {
    let failed = matches!(answer, Answer::Failed(_));
    let image = ImageReport {
        answer,
        message: failed.then(|| "x".repeat(MESSAGE_BYTES_MAX)),
        started: Some(at(1)),
        ended: Some(at(2)),
        bytes_total: Some(1_000),
        bytes_done: Some(1_000),
        loss: None,
    };
    NodeReport {
        handed_out: at(0),
        images: vec![image; IMAGES],
    }
}

#[rstest]
#[case::all_succeeded(|_| Answer::Succeeded, 0)]
#[case::half_failed(|number| if number % 2 == 0 { Answer::Succeeded } else { Answer::Failed(Reason::NotFound) }, NODES / 2)]
#[case::all_failed(|_| Answer::Failed(Reason::AuthDenied), NODES)]
#[case::one_failed(|number| if number == 77 { Answer::Failed(Reason::Dns) } else { Answer::Succeeded }, 1)]
fn stays_below_800_kb_and_names_every_failed_node(#[case] answer: fn(usize) -> Answer, #[case] failed: usize) {
    let images: Vec<String> = (0..IMAGES)
        .map(|number| format!("registry.example.com:5000/team/application-{number}:v1.0.0"))
        .collect();
    let job = job(&json!({"images": images, "labelSelector": {}}), &json!([]));
    let plan = PrePull::of(&job).unwrap();
    let chosen = |number| Chosen {
        name: name(number),
        unfit: None,
    };
    let choice = Choice {
        nodes: (0..NODES).map(chosen).collect(),
        ..Choice::default()
    };
    let task = std::sync::Arc::new(NodeTask::new(
        plan.overriders.resolve(&plan.images, &[]).unwrap(),
        Vec::new(),
    ));
    let tasks: Tasks = (0..NODES).map(|number| (name(number), task.clone())).collect();
    let reports: Reports = (0..NODES)
        .map(|number| (name(number), report(answer(number))))
        .collect();
    let mut progress = Progress::new(plan.campaign(&choice, tasks), at(0));
    for node in choice.fit() {
        let report = reports.get(node).unwrap();
        let view = NodeView {
            selected: true,
            claim: Some(report.claim_view()),
            ..NodeView::default()
        };
        progress.node_changed(node, view, at(2));
    }
    let run = PrePullRun { plan, choice, reports };
    let end = progress.end(at(3));
    assert_eq!(end, Some(End::AllDone));
    let status = status(&run, &job, &mut progress, &UnusableSecrets::default(), end, at(3));

    let text = serde_json::to_string(&status).unwrap();
    assert!(text.len() < 800_000, "{} bytes", text.len());
    let named = status
        .node_status
        .iter()
        .filter(|node| node.phase.as_deref() == Some("Failure"));
    let named: BTreeSet<&str> = named.filter_map(|node| node.node_name.as_deref()).collect();
    let failed_nodes: Vec<NodeKey> = (0..NODES)
        .filter(|number| matches!(answer(*number), Answer::Failed(_)))
        .map(name)
        .collect();
    assert_eq!(named, failed_nodes.iter().map(|node| &**node).collect());
    assert_eq!(
        (status.desired, usize::try_from(status.failed).unwrap()),
        (5_000, failed)
    );
    let condition: Value = serde_json::to_value(&status.progress.conditions[0]).unwrap();
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("left out to keep this status small: details of images")
    );
}
