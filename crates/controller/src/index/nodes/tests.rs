//! Answers and watch events that overtake each other.

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::index::Limits;

fn object(revision: u64, phase: Option<&str>) -> NodeImage {
    let tags: Vec<_> = phase
        .map(|phase| json!({"tag": "1", "version": 1, "phase": phase}))
        .into_iter()
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": revision.to_string()},
        "spec": {"images": {"nginx": {"tags": [{"tag": "1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 9}}]}}},
        "status": {"desired": 1, "imageStatuses": {"nginx": {"tags": tags}}},
    }))
    .unwrap()
}

#[test]
fn an_object_is_measured_however_few_tags_it_has() {
    let mut index = Index::new(Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    });
    let (node, now) = (NodeKey::from("a"), Timestamp::UNIX_EPOCH);
    let small = object(1, Some("Succeeded"));
    index.take_in_image(&node, small.clone(), false, now);
    let is_full = |index: &Index| {
        let record = &index.nodes[&node];
        let room = record.has_room_for([("redis", "7".to_owned())]);
        assert_eq!(room, record.full_since.is_none());
        !room
    };
    assert!(!is_full(&index));
    let mut large = small;
    let agent = large.status.as_mut().unwrap().agent.get_or_insert_default();
    agent.version = Some("1".repeat(NODE_IMAGE_BYTES_MAX));
    index.take_in_image(&node, large, false, now);
    assert!(is_full(&index));
}

#[rstest]
#[case::the_answer_of_a_write_comes_after_the_result(false, true, "Succeeded")]
#[case::the_watch_is_behind_a_write(true, false, "Succeeded")]
#[case::a_restored_api_server_counts_anew(false, false, "")]
fn what_is_older_is_no_news(#[case] known_from_write: bool, #[case] from_write: bool, #[case] want: &str) {
    let mut index = Index::new(Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    });
    let (node, now) = (NodeKey::from("a"), Timestamp::UNIX_EPOCH);
    index.take_in_image(&node, object(10, Some("Succeeded")), known_from_write, now);
    index.take_in_image(&node, object(9, None), from_write, now);
    let shown = index.nodes[&node].image.as_ref().unwrap();
    let phase = shown.result("nginx", "1").map_or("", |result| &result.phase);
    assert_eq!(phase, want);
}
