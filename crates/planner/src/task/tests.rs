use larder_api::node_image::ImageTagStatus;
use larder_model::{Phase, Reason};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::kubeedge::Before;
use crate::kubeedge::samples::{Fleet, edge_nodes, job};
use crate::view::samples::at;

fn two_images() -> Fleet {
    let job = job(&json!({"images": ["a:1", "b:1"], "nodeNames": ["node"]}), &json!([]));
    Fleet::start(&job, edge_nodes(&[("node", "east")]), &Before::default())
}

#[test]
fn a_task_is_claimed_in_one_write_and_released_in_one() {
    let mut fleet = two_images();
    assert_eq!(fleet.report("node"), None);
    assert_eq!(fleet.step(0), ["node"]);
    let (task, object) = (fleet.task("node").clone(), fleet.nodes["node"].object.clone());
    let claimed = |name: &str| object.entry(name, "1").unwrap().claim_version("job-uid");
    assert_eq!((claimed("a"), claimed("b")), (Some(0), Some(0)));
    assert_eq!(fleet.report("node").unwrap().answer(), Answer::Unanswered);
    let mut spec = object.spec.clone();
    task.release(&mut spec, "job-uid");
    assert!(spec.images.is_empty());
}

#[rstest]
#[case::failed(Phase::Failed, Some(Reason::Dns))]
#[case::kept_silent(Phase::Pulling, None)]
fn what_is_there_is_not_asked_for_again(#[case] phase: Phase, #[case] reason: Option<Reason>) {
    let mut fleet = two_images();
    fleet.step(0);
    fleet.say("node", "a:1", Phase::Succeeded, None, 1);
    fleet.say("node", "b:1", phase, reason, 1);
    let object = fleet.nodes["node"].object.clone();
    let mut spec = object.spec.clone();
    fleet
        .task("node")
        .claim(&mut spec, &object, &fleet.run.plan.owner, at(2));
    let version = |name: &str| spec.images[name].tags[0].version;
    assert_eq!((version("a"), version("b")), (0, 1));
}

#[test]
fn an_image_that_an_edit_added_is_claimed_beside_what_runs() {
    let mut fleet = two_images();
    fleet.step(0);
    fleet.say("node", "a:1", Phase::Pulling, None, 1);
    let object = fleet.nodes["node"].object.clone();
    let mut images = fleet.task("node").images().to_vec();
    let added = ImageRef::parse("c:1").unwrap();
    images.push(TaskImage::new(added, Vec::new()));
    let edited = NodeTask::new(images, Vec::new());
    assert_eq!(edited.report(&object, "job-uid"), None, "it has to be handed out");
    let mut spec = object.spec.clone();
    edited.claim(&mut spec, &object, &fleet.run.plan.owner, at(2));
    let versions: Vec<i64> = ["a", "b", "c"].map(|name| spec.images[name].tags[0].version).into();
    assert_eq!(versions, [0, 0, 0]);
}

#[test]
fn what_was_said_to_an_earlier_order_is_not_shown() {
    let mut object = two_images().nodes.remove("node").unwrap().object;
    let old = ImageTagStatus {
        tag: "1".into(),
        version: Some(0),
        phase: "Failed".into(),
        message: Some("old".into()),
        ..ImageTagStatus::default()
    };
    let all = object.status.get_or_insert_default();
    all.image_statuses.entry("a".into()).or_default().tags.push(old);
    let mut fleet = two_images();
    fleet.nodes.get_mut("node").unwrap().object = object;
    fleet.step(0);
    let report = fleet.report("node").unwrap();
    assert_eq!(
        (report.answer(), report.images[0].message.as_deref()),
        (Answer::Unanswered, None)
    );
}

#[test]
fn a_task_that_the_node_has_is_claimed_anew_when_it_is_refreshed() {
    let mut fleet = two_images();
    fleet.step(0);
    fleet.succeed("node", 1);
    let object = fleet.nodes["node"].object.clone();
    let mut spec = object.spec.clone();
    fleet
        .task("node")
        .claim(&mut spec, &object, &fleet.run.plan.owner, at(2));
    let version = |name: &str| spec.images[name].tags[0].version;
    assert_eq!((version("a"), version("b")), (1, 1));
}
