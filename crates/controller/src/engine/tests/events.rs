//! What is worth an Event, and what is not.

use k8s_openapi::api::core::v1::ObjectReference;
use larder_planner::NodeKey;
use rstest::rstest;

use super::*;

fn recorded(engine: &mut Engine) -> Vec<NewEvent> {
    std::iter::from_fn(|| engine.events().pop()).collect()
}

/// A node with an entry for nginx:1, or without one, and what it says about it.
fn answered(dry_run: Option<bool>, tags: &Value) -> NodeImage {
    let entry =
        |dry_run| json!({"tag": "1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 9}, "dryRun": dry_run});
    let entries: Vec<Value> = dry_run.into_iter().map(entry).collect();
    let spec = json!({"images": {"nginx": {"tags": entries}}});
    let status = json!({"desired": 1, "imageStatuses": {"nginx": {"tags": tags}}});
    node_image("a", &spec, &status)
}

#[rstest]
#[case::order(Some(false), Some(false), 1)]
#[case::question(Some(true), Some(true), 0)]
#[case::question_taken_back(Some(true), None, 0)]
fn events_tell_of_pulls_and_not_of_questions(
    #[case] before: Option<bool>,
    #[case] after: Option<bool>,
    #[case] want: usize,
) {
    let mut engine = Engine::new(serving());
    let key = NodeKey::from("a");
    engine.observe_image(&key, answered(before, &json!([])), false, at(0));
    let failed = json!([{"tag": "1", "version": 1, "phase": "Failed", "reason": "Unreachable"}]);
    engine.observe_image(&key, answered(after, &failed), false, at(0));
    assert_eq!(recorded(&mut engine).len(), want);
}

#[test]
fn an_object_that_cannot_be_read_is_told_so_and_stays_known() {
    let mut engine = Engine::new(serving());
    let event = pull_job("job", &json!({"image": "nginx"}), &Value::Null);
    let kind = event.kind();
    engine.show_event(event, at(0));
    let object = ObjectReference {
        kind: Some("ImagePullJob".to_owned()),
        namespace: Some("team".to_owned()),
        name: Some("job".to_owned()),
        uid: Some("job".to_owned()),
        ..ObjectReference::default()
    };
    let unreadable = || WatchEvent::Unreadable(Box::new(object.clone()), "invalid type".to_owned());
    for _ in 0..20 {
        for event in [WatchEvent::ListBegins, unreadable(), WatchEvent::ListComplete] {
            engine.observe(&kind, event, at(0));
        }
    }
    let events = recorded(&mut engine);
    assert_eq!(events.len(), 5);
    assert!(events.iter().all(|event| event.subject == object && event.warning));
    let text = &events[0].text;
    assert!(text.ends_with("it cannot be read: invalid type"), "{text}");
    assert_eq!(engine.jobs.records().len(), 1, "a job that cannot be read is not gone");

    let gone = WatchEvent::Gone {
        namespace: "team".to_owned(),
        name: "job".to_owned(),
    };
    engine.events.may_record("job", "PullImageFailed");
    engine.observe(&kind, gone, at(0));
    assert!(engine.events.is_forgotten("job"));
    engine.observe(&kind, unreadable(), at(0));
    assert_eq!(recorded(&mut engine).len(), 1, "another of its name is told anew");
    for event in [WatchEvent::ListBegins, WatchEvent::ListComplete] {
        engine.observe(&kind, event, at(0));
    }
    assert!(engine.events.is_forgotten("job"), "what no list shows is forgotten");
}

#[test]
fn a_second_agent_of_a_node_is_told_once() {
    let mut engine = Engine::new(serving());
    let key = NodeKey::from("a");
    let shown = |other: Option<&str>| {
        let status = json!({"desired": 0, "agent": {"version": "0.1.0", "conflictsWith": other}});
        node_image("a", &json!({}), &status)
    };
    for other in [None, Some("host_1"), Some("host_2"), Some("host_1")] {
        engine.observe_image(&key, shown(other), false, at(0));
    }
    let events = recorded(&mut engine);
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].reason, events[0].warning), ("DuplicateAgent", true));
    assert!(events[0].text.contains("host_1"), "{}", events[0].text);
    for _ in 0..20 {
        engine.observe_image(&key, shown(None), false, at(0));
        engine.observe_image(&key, shown(Some("host_1")), false, at(0));
    }
    assert_eq!(recorded(&mut engine).len(), 4, "a node cannot flood the Events");
}
