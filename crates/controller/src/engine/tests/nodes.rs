//! NodeImages: objects that overtake each other, and writes that are refused.

use larder_api::contract::{NODE_IMAGE_BYTES_MAX, json_of};
use larder_planner::NodeKey;
use larder_planner::occupancy::claim_fits;
use rstest::rstest;

use super::*;

fn object(revision: u64, phase: Option<&str>) -> NodeImage {
    let tags: Vec<_> = phase
        .map(|phase| json!({"tag": "1", "version": 1, "phase": phase}))
        .into_iter()
        .collect();
    let spec = json!({"images": {"nginx": {"tags": [
        {"tag": "1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 9}},
    ]}}});
    let status = json!({"desired": 1, "imageStatuses": {"nginx": {"tags": tags}}});
    let mut object = node_image("a", &spec, &status);
    object.metadata.resource_version = Some(revision.to_string());
    object
}

#[test]
fn an_object_is_measured_however_few_tags_it_has() {
    let mut engine = Engine::new(serving());
    let key = NodeKey::from("a");
    engine.show_all(vec![pull_job("job", &json!({"image": "redis:7"}), &Value::Null)], at(0));
    engine.decide(at(0));
    let is_full = |engine: &Engine| {
        let record = engine.nodes.get("a").unwrap();
        let object = record.image.as_ref().unwrap();
        let campaign = engine.jobs.running(engine.id("job")).unwrap().progress.campaign();
        let task = campaign.tasks.of("a").unwrap();
        claim_fits(object, record.bytes, record.occupancy.as_deref(), campaign, task).is_err()
    };
    let small = object(1, Some("Succeeded"));
    engine.observe_image(&key, small.clone(), false, at(0));
    assert!(!is_full(&engine));
    let mut large = small;
    let agent = large.status.as_mut().unwrap().agent.get_or_insert_default();
    agent.version = Some("1".repeat(NODE_IMAGE_BYTES_MAX));
    engine.observe_image(&key, large, false, at(0));
    assert!(is_full(&engine));
}

#[rstest]
#[case::the_response_of_a_write_comes_after_the_result(false, true, "Succeeded")]
#[case::the_watch_is_behind_a_write(true, false, "Succeeded")]
#[case::a_restored_api_server_counts_anew(false, false, "")]
fn what_is_older_is_no_news(#[case] known_from_write: bool, #[case] from_write: bool, #[case] want: &str) {
    let mut engine = Engine::new(serving());
    let key = NodeKey::from("a");
    engine.observe_image(&key, object(10, Some("Succeeded")), known_from_write, at(0));
    engine.observe_image(&key, object(9, None), from_write, at(0));
    let shown = engine.nodes.get("a").unwrap().image.as_ref().unwrap();
    let phase = shown.result("nginx", "1").map_or("", |result| &result.phase);
    assert_eq!(phase, want);
}

/// Writes of one node within a minute, each ended by `end`.
fn writes_in_a_minute(engine: &mut Engine, end: impl Fn(&NodeWrite) -> NodeWriteResult) -> Vec<NodeWrite> {
    let mut writes = Vec::new();
    for second in 0..60 {
        for _ in 0..10 {
            engine.decide(at(second));
            let Some((node, write)) = engine.next_node_write(at(second)) else {
                break;
            };
            let result = end(&write);
            writes.push(write);
            engine.node_written(&node, result, at(second));
        }
    }
    writes
}

#[test]
fn a_node_image_that_cannot_be_created_is_not_tried_again_and_again() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![node("a")], at(0));
    let writes = writes_in_a_minute(&mut engine, |write| match write {
        NodeWrite::Create(_) => NodeWriteResult::Refused("422".to_owned()),
        _ => NodeWriteResult::Absent,
    });
    assert!((3..=30).contains(&writes.len()), "{}", writes.len());
}

#[test]
fn a_node_image_that_cannot_be_deleted_is_not_tried_again_and_again() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![idle("a")], at(0));
    let writes = writes_in_a_minute(&mut engine, |write| match write {
        NodeWrite::Delete { .. } => NodeWriteResult::Refused("403".to_owned()),
        _ => NodeWriteResult::Object(Box::new(node_image("a", &json!({}), &json!({"desired": 0})))),
    });
    assert!((3..=30).contains(&writes.len()), "{}", writes.len());
}

#[test]
fn a_job_that_begins_leaves_node_images_compressed() {
    let mut engine = Engine::new(Limits {
        pause: true,
        ..serving()
    });
    let mut image = node_image("node", &json!({}), &json!({"desired": 0}));
    image.metadata.labels = Some([("node-role.kubernetes.io/edge".to_owned(), String::new())].into());
    let template = json!({"images": ["nginx:1"], "nodeNames": ["node"]});
    let events = vec![node("node"), shown(image), prepull_job("job", &template)];
    engine.show_all(events, at(0));
    assert!(!engine.nodes.get("node").unwrap().image.is_compressed());
    engine.decide(at(0));
    assert_eq!(engine.sizes().running_jobs, 1);
    assert!(engine.nodes.get("node").unwrap().image.is_compressed());
}

#[test]
fn a_node_that_vanishes_with_an_unwritten_order_gives_its_slot_back() {
    let mut engine = Engine::new(serving());
    let job = pull_job("job", &json!({"image": "nginx", "parallelism": 1}), &Value::Null);
    engine.show_all(vec![node("a"), idle("a"), node("b"), idle("b"), job], at(0));
    engine.decide(at(0));
    assert_eq!(engine.nodes.get("a").unwrap().orders.len(), 1);
    for kind in [WatchKind::Node, WatchKind::NodeImage] {
        let gone = WatchEvent::Gone {
            namespace: String::new(),
            name: "a".to_owned(),
        };
        engine.observe(&kind, gone, at(0));
    }
    for _ in 0..3 {
        engine.next_node_write(at(0));
        engine.decide(at(0));
    }
    assert!(engine.nodes.get("a").is_none());
    assert_eq!(engine.nodes.get("b").unwrap().orders.len(), 1, "the slot is passed on");
}

#[test]
fn a_node_without_an_agent_gets_no_node_image_and_stays_known_to_jobs() {
    let mut engine = Engine::new(serving());
    let windows = WatchEvent::Node(NodeFacts {
        name: "win".to_owned(),
        labels: Some([("kubernetes.io/os".to_owned(), "windows".to_owned())].into()),
        ready: true,
        ..NodeFacts::default()
    });
    engine.show_all(vec![windows, node("a"), idle("a")], at(0));
    while engine.has_queued_nodes() {
        assert_eq!(engine.next_node_write(at(0)), None);
    }
    assert_eq!(engine.sizes().nodes, 1, "the alert counts nodes with an agent");
    engine.show_event(pull_job("job", &json!({"image": "nginx"}), &Value::Null), at(1));
    engine.decide(at(1));
    let Some((_, JobWrite::Status(patch))) = engine.next_job_write(at(1)) else {
        panic!("the status is written");
    };
    let status = &patch[1]["value"];
    let message = status["message"].as_str().unwrap();
    let want = "1 node is left out because no agent runs there: 1 not running Linux (win)";
    assert!(message.ends_with(want), "{message}");
    assert_eq!(status["desired"], 1);
}

#[test]
fn a_heartbeat_of_a_kubelet_queues_nothing() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![node("a"), idle("a")], at(0));
    while engine.has_queued_nodes() {
        engine.next_node_write(at(0));
    }
    engine.show_event(node("a"), at(1));
    assert!(!engine.has_queued_nodes());
}

/// A NodeImage after a patch.
pub(super) fn patched(before: &NodeImage, patch: Value, generation: i64) -> NodeImage {
    let mut object = json_of(before);
    let patch: json_patch::Patch = parsed(patch);
    json_patch::patch(&mut object, &patch).unwrap();
    let mut object: NodeImage = parsed(object);
    object.metadata.generation = Some(generation);
    object.metadata.resource_version = Some(generation.to_string());
    object
}

/// Sends what is to be written to the only node, and gives the result back to the engine; None if there is nothing.
fn write(engine: &mut Engine, object: &NodeImage, now: Timestamp) -> Option<NodeImage> {
    engine.decide(now);
    let (node, NodeWrite::Patch(patch)) = engine.next_node_write(now)? else {
        panic!("a NodeImage is neither created nor deleted here");
    };
    let object = patched(object, patch, object.metadata.generation.unwrap() + 1);
    engine.node_written(&node, NodeWriteResult::Object(Box::new(object.clone())), now);
    Some(object)
}

/// Its clock may stand still, and what it writes may say nothing.
#[test]
fn any_status_that_an_unresponsive_node_writes_has_it_tried_at_once() {
    let mut engine = Engine::new(serving());
    let fresh = node_image("a", &json!({}), &json!({"desired": 0}));
    let job = pull_job("job", &json!({"image": "nginx:1"}), &Value::Null);
    engine.show_all(vec![node("a"), shown(fresh.clone()), job], at(0));
    let ordered = write(&mut engine, &fresh, at(0)).unwrap();
    let mut withdrawn = write(&mut engine, &ordered, at(31)).unwrap();
    assert_eq!(withdrawn.spec.images.len(), 0, "the order is not withdrawn");
    assert_eq!(write(&mut engine, &withdrawn, at(40)), None, "it is not waited for");

    withdrawn.metadata.resource_version = Some("1000".to_owned());
    engine.show_event(shown(withdrawn.clone()), at(41));
    let again = write(&mut engine, &withdrawn, at(41)).unwrap();
    assert_eq!(again.spec.images.len(), 1, "the node is not tried");
}
