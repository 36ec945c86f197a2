use larder_api::image_pre_pull_job::{ActionFlowEntry, ImagePullResult, LegacyImageStatus, LegacyTaskStatus};
use proptest::prelude::*;
use rstest::rstest;
use std::collections::BTreeSet;

use super::*;

/// As long as an agent's message may be.
const MESSAGE: usize = 1_024;

const ALL: Details = Details {
    of_done_nodes: true,
    of_others: true,
};

fn image(number: usize) -> String {
    format!("registry.example.com:5000/team/application-{number}:v1.0.0")
}

/// A status of nodes in these phases with five images each, every failure with its own long message.
fn status(
    phases: &[NodePhase],
    images: usize,
    message: usize,
    name: impl Fn(usize) -> String,
) -> ImagePrePullJobStatus {
    let mut status = ImagePrePullJobStatus {
        phase: Some("InProgress".into()),
        ..ImagePrePullJobStatus::default()
    };
    for (number, phase) in phases.iter().enumerate() {
        let reason = phase.is_failed().then(|| "x".repeat(message));
        let truth = if phase.is_failed() { "False" } else { "True" };
        let action = |action: &str| ActionFlowEntry {
            action: Some(action.into()),
            status: Some(truth.into()),
            reason: reason.clone(),
            time: Some("2027-01-15T08:00:00Z".into()),
        };
        let result = |number| ImagePullResult {
            image: Some(image(number)),
            status: Some(truth.into()),
            reason: reason.clone(),
            resolved_image: Some(image(number)),
        };
        status.node_status.push(NodeTaskStatus {
            node_name: Some(name(number)),
            phase: Some(phase.as_str().into()),
            cause: phase.is_failed().then(|| "NotFound".into()),
            reason: reason.clone(),
            action_flow: vec![action("Check"), action("Pull")],
            image_status: (0..images).map(result).collect(),
        });
        let state = if phase.is_failed() { "Failed" } else { "Successful" };
        let old = |number| LegacyImageStatus {
            image: Some(image(number)),
            state: Some(state.into()),
            reason: reason.clone(),
            resolved_image: None,
        };
        status.status.push(LegacyNodeStatus {
            node_status: Some(LegacyTaskStatus {
                node_name: Some(name(number)),
                state: Some(state.into()),
                reason: reason.clone(),
                ..LegacyTaskStatus::default()
            }),
            image_status: (0..images).map(old).collect(),
        });
    }
    status
}

fn failed_names(status: &ImagePrePullJobStatus) -> BTreeSet<String> {
    let failed = status.node_status.iter().filter(|node| is_failed(node));
    failed.filter_map(|node| node.node_name.clone()).collect()
}

#[rstest]
#[case::all_succeeded(|_| NodePhase::Successful)]
#[case::half_failed(|number| if number % 2 == 0 { NodePhase::Failure } else { NodePhase::Successful })]
#[case::all_failed(|_| NodePhase::Failure)]
#[case::all_silent(|_| NodePhase::Unknown)]
fn five_thousand_nodes_with_five_images_each(#[case] phase: fn(usize) -> NodePhase) {
    let phases: Vec<NodePhase> = (0..5_000).map(phase).collect();
    let mut status = status(&phases, 5, MESSAGE, |number| {
        format!("edge-node-{number:05}.region-west.example.internal")
    });
    let failed = failed_names(&status);
    let note = fit(&mut status, ALL, BUDGET);
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < 800_000, "{bytes}");
    assert_eq!(failed_names(&status), failed, "every failed node is named");
    assert!(note.unwrap().contains("details of images"));
}

#[test]
fn what_fits_is_left_as_it_is() {
    let mut small = status(&[NodePhase::Successful, NodePhase::Failure], 2, MESSAGE, |number| {
        number.to_string()
    });
    let before = small.clone();
    assert_eq!(fit(&mut small, ALL, BUDGET), None);
    assert_eq!(small, before);
}

/// What is still there of a status that was given less and less room.
fn left(status: &ImagePrePullJobStatus) -> [bool; 7] {
    let node = |phase: NodePhase| {
        status
            .node_status
            .iter()
            .find(|node| super::phase(node) == phase.as_str())
    };
    let has_images = |phase| node(phase).is_some_and(|node| !node.image_status.is_empty());
    [
        has_images(NodePhase::Successful),
        has_images(NodePhase::Failure),
        !status.status.is_empty(),
        node(NodePhase::Successful).is_some(),
        node(NodePhase::Failure).is_some_and(|node| node.reason.is_some()),
        node(NodePhase::Pending).is_some(),
        node(NodePhase::Failure).is_some(),
    ]
}

#[test]
fn what_is_needed_least_goes_first() {
    let phases = [
        NodePhase::Successful,
        NodePhase::Failure,
        NodePhase::Pending,
        NodePhase::Successful,
    ];
    let whole = status(&phases, 3, MESSAGE, |number| format!("node-{number}"));
    let mut seen = vec![left(&whole)];
    let mut shorter = whole.clone();
    while !shorter.node_status.is_empty() {
        let room = size(&shorter) - 1;
        shorter.clone_from(&whole);
        fit(&mut shorter, ALL, room + RESERVED);
        assert!(size(&shorter) <= room);
        seen.push(left(&shorter));
    }
    seen.dedup();
    let step = |gone: usize| std::array::from_fn(|index| gone <= index);
    assert_eq!(seen, (0..=7).map(step).collect::<Vec<[bool; 7]>>());
}

fn phases() -> impl Strategy<Value = Vec<NodePhase>> {
    let phase = proptest::sample::select(vec![
        NodePhase::Pending,
        NodePhase::InProgress,
        NodePhase::Successful,
        NodePhase::Failure,
        NodePhase::Unknown,
    ]);
    proptest::collection::vec(phase, 0..40)
}

proptest! {
    /// Never beyond its room, and no failed node's name is lost as long as names alone fit.
    #[test]
    fn stays_within_its_room_and_names_who_failed(phases in phases(), images in 0_usize..4, room in 400_usize..40_000) {
        let mut status = status(&phases, images, 100, |number| format!("node-{number:03}"));
        let failed = failed_names(&status);
        let bare = ImagePrePullJobStatus {
            node_status: status.node_status.iter().filter(|node| is_failed(node)).map(|node| NodeTaskStatus {
                node_name: node.node_name.clone(),
                phase: node.phase.clone(),
                cause: node.cause.clone(),
                ..NodeTaskStatus::default()
            }).collect(),
            phase: status.phase.clone(),
            ..ImagePrePullJobStatus::default()
        };
        let names_fit = size(&bare) <= room;
        let note = fit(&mut status, ALL, room + RESERVED);
        prop_assert!(size(&status) <= room);
        if names_fit {
            prop_assert_eq!(failed_names(&status), failed);
        } else {
            let missing = failed.len() - failed_names(&status).len();
            let told = format!("{missing} failed nodes");
            prop_assert!(note.unwrap().contains(&told));
        }
    }
}

#[rstest]
#[case::small(100, 100, 5, true, true)]
#[case::many_are_done(5_000, 100, 5, false, true)]
#[case::many_failed(100, 5_000, 5, false, false)]
#[case::no_overflow(usize::MAX / 2, usize::MAX / 2, 255, false, false)]
fn what_cannot_fit_is_not_gathered(
    #[case] done: usize,
    #[case] others: usize,
    #[case] images: usize,
    #[case] of_done_nodes: bool,
    #[case] of_others: bool,
) {
    let want = Details {
        of_done_nodes,
        of_others,
    };
    assert_eq!(Details::that_may_fit(done, others, images), want);
}

#[test]
fn what_was_not_gathered_is_told_too() {
    let gathered = Details {
        of_done_nodes: false,
        of_others: true,
    };
    let note = fit(&mut ImagePrePullJobStatus::default(), gathered, BUDGET).unwrap();
    assert_eq!(
        note,
        "left out to keep this status small: details of images on nodes that are done"
    );
}
