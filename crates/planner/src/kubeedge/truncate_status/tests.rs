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

/// Whom a status names in such a phase, with an entry or without.
fn names(status: &ImagePrePullJobStatus, which: fn(NodePhase) -> bool) -> BTreeSet<String> {
    let nodes = recorded::nodes(status).filter(|node| node.phase.is_some_and(which));
    nodes.map(|node| node.name.to_owned()).collect()
}

fn failed_names(status: &ImagePrePullJobStatus) -> BTreeSet<String> {
    names(status, NodePhase::is_failed)
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
fn left(status: &ImagePrePullJobStatus) -> [bool; 10] {
    let node = |phase: NodePhase| status.node_status.iter().find(|node| super::phase(node) == Some(phase));
    let has_images = |phase| node(phase).is_some_and(|node| !node.image_status.is_empty());
    let has_names = |which| !names(status, which).is_empty();
    [
        has_images(NodePhase::Successful),
        has_images(NodePhase::Failure),
        !status.status.is_empty(),
        node(NodePhase::Successful).is_some(),
        node(NodePhase::Failure).is_some_and(|node| node.reason.is_some()),
        node(NodePhase::Pending).is_some(),
        node(NodePhase::Failure).is_some(),
        has_names(|phase| phase == NodePhase::Successful),
        has_names(|phase| phase == NodePhase::Pending),
        has_names(NodePhase::is_failed),
    ]
}

#[test]
fn what_is_needed_least_goes_first() {
    let phases = [NodePhase::Successful, NodePhase::Failure, NodePhase::Pending].repeat(3);
    let whole = status(&phases, 3, MESSAGE, |number| format!("node-{number}"));
    let mut seen = vec![left(&whole)];
    let mut shorter = whole.clone();
    while recorded::nodes(&shorter).next().is_some() {
        let room = size(&shorter) - 1;
        shorter.clone_from(&whole);
        fit(&mut shorter, ALL, room + RESERVED);
        assert!(size(&shorter) <= room);
        seen.push(left(&shorter));
    }
    seen.dedup();
    let step = |gone: usize| std::array::from_fn(|index| gone <= index);
    assert_eq!(seen, (0..=10).map(step).collect::<Vec<[bool; 10]>>());
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
    /// Never beyond its room, and no failed node's name is lost as long as these names fit. Whoever is not named is counted.
    #[test]
    fn stays_within_its_room_and_names_who_failed(phases in phases(), images in 0_usize..4, room in 500_usize..40_000) {
        let mut status = status(&phases, images, 100, |number| format!("node-{number:03}"));
        let failed = failed_names(&status);
        let mut bare = status.clone();
        legacy(&mut bare);
        omit(&mut bare, |_| true);
        for group in bare.omitted_nodes.iter_mut().filter(|group| group.cause.is_none()) {
            group.nodes.clear();
        }
        let failed_names_fit = size(&bare) <= room;
        let note = fit(&mut status, ALL, room + RESERVED);
        prop_assert!(size(&status) <= room);
        if failed_names_fit {
            prop_assert_eq!(failed_names(&status), failed);
        }
        let named = recorded::nodes(&status).count();
        let unnamed = phases.len() - named;
        let told = format!("names of {unnamed} nodes");
        prop_assert_eq!(note.is_some_and(|note| note.contains(&told)), 0 < unnamed);
        let omitted: i32 = status.omitted_nodes.iter().map(|group| group.count).sum();
        prop_assert_eq!(usize::try_from(omitted).unwrap() + status.node_status.len(), phases.len());
        let others_are_named = names(&status, |phase| phase != NodePhase::Successful).len()
            == phases.iter().filter(|phase| **phase != NodePhase::Successful).count();
        prop_assert_eq!(recorded::is_complete(&status), others_are_named);
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
