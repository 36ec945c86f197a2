use std::time::Duration;

use larder_api::node_image::{AgentStatus, ImageStatus};
use larder_planner::node::TimedStatus;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn tag(name: &str, phase: &str, done: i64) -> ImageTagStatus {
    ImageTagStatus {
        tag: name.into(),
        phase: phase.into(),
        bytes_done: Some(done),
        ..ImageTagStatus::default()
    }
}

fn status(tags: &[ImageTagStatus]) -> NodeImageStatus {
    NodeImageStatus {
        desired: i32::try_from(tags.len()).unwrap(),
        image_statuses: [("app".to_owned(), ImageStatus { tags: tags.to_vec() })].into(),
        ..NodeImageStatus::default()
    }
}

fn wanted(status: &NodeImageStatus, due: u64) -> DesiredStatus {
    let keys: Vec<Key> = tags(status).into_keys().collect();
    DesiredStatus {
        uid: "uid".into(),
        generation: 1,
        entries: TimedStatus {
            status: status.clone(),
            due: keys.iter().map(|key| (key.clone(), at(due))).collect(),
            progress: keys.iter().map(|key| (key.clone(), at(10))).collect(),
        },
        runtime: None,
        image_fs: None,
    }
}

fn observed(version: &str, status: Option<&NodeImageStatus>) -> ObservedNodeImage {
    ObservedNodeImage {
        uid: "uid".into(),
        resource_version: version.into(),
        rest_bytes: 0,
        status: status.cloned(),
    }
}

fn schedule(status: Option<&NodeImageStatus>) -> WriteSchedule {
    let mut schedule = WriteSchedule::default();
    schedule.take_observed(Some(observed("5", status)));
    schedule
}

#[test]
fn what_the_api_shows_already_is_not_written() {
    let status = status(&[tag("1", "Succeeded", 5)]);
    assert_eq!(schedule(Some(&status)).due(&wanted(&status, 0), &status, at(9)), None);
}

#[test]
fn a_new_phase_is_due_when_the_board_says() {
    let before = status(&[tag("1", "Waiting", 0)]);
    let after = status(&[tag("1", "Pulling", 0)]);
    assert_eq!(
        schedule(Some(&before)).due(&wanted(&after, 7), &after, at(6)),
        Some(at(7))
    );
}

#[test]
fn bytes_wait_for_their_turn_and_go_along_with_anything_else() {
    let before = status(&[tag("1", "Pulling", 1)]);
    let after = status(&[tag("1", "Pulling", 2)]);
    let mut schedule = schedule(None);
    schedule.written(&wanted(&before, 0), observed("6", Some(&before)), at(100));
    let due = schedule.due(&wanted(&after, 0), &after, at(101)).unwrap();
    assert!((at(108)..=at(112)).contains(&due), "{due:?}");
    assert_eq!(
        schedule.due(&wanted(&after, 0), &after, at(102)),
        Some(due),
        "the moment does not move"
    );
    let more = status(&[tag("1", "Pulling", 2), tag("2", "Failed", 0)]);
    assert_eq!(schedule.due(&wanted(&more, 101), &more, at(101)), Some(at(101)));
}

#[test]
fn entries_that_leave_are_gathered() {
    let before = status(&[tag("1", "Succeeded", 1), tag("2", "Succeeded", 1)]);
    let after = status(&[]);
    let mut schedule = schedule(Some(&before));
    assert_eq!(schedule.due(&wanted(&after, 0), &after, at(10)), Some(at(12)));
    assert_eq!(schedule.due(&wanted(&after, 0), &after, at(11)), Some(at(12)));
}

#[test]
fn the_key_is_published_soon_and_the_time_of_day_never_by_itself() {
    let mut with_key = NodeImageStatus {
        agent: Some(AgentStatus {
            public_key: Some("key".into()),
            ..AgentStatus::default()
        }),
        ..NodeImageStatus::default()
    };
    let mut schedule = schedule(None);
    let due = schedule.due(&wanted(&with_key, 0), &with_key, at(10)).unwrap();
    assert_eq!(due, at(10) + GATHER_AGENT);
    schedule.written(&wanted(&with_key, 0), observed("6", Some(&with_key)), at(11));
    with_key.agent.as_mut().unwrap().last_seen = Some(crate::clock::Clock::of_this_machine().wall());
    assert_eq!(schedule.due(&wanted(&with_key, 0), &with_key, at(99)), None);
}

#[test]
fn an_event_from_before_our_own_write_is_old_news() {
    let before = status(&[tag("1", "Pulling", 0)]);
    let after = status(&[tag("1", "Succeeded", 0)]);
    let mut schedule = schedule(Some(&before));
    schedule.written(&wanted(&after, 0), observed("9", Some(&after)), at(1));
    schedule.take_observed(Some(observed("8", Some(&before))));
    assert_eq!(schedule.due(&wanted(&after, 0), &after, at(2)), None);
    schedule.take_observed(Some(observed("10", Some(&before))));
    assert!(
        schedule.due(&wanted(&after, 0), &after, at(2)).is_some(),
        "another client changed it: it is put right"
    );
}

#[test]
fn another_object_is_seen_as_it_is() {
    let after = status(&[tag("1", "Succeeded", 0)]);
    let mut schedule = schedule(None);
    schedule.written(&wanted(&after, 0), observed("9", Some(&after)), at(1));
    let mut fresh = observed("2", None);
    fresh.uid = "made anew".into();
    schedule.take_observed(Some(fresh.clone()));
    assert_eq!(schedule.observed(), Some(&fresh));
}

#[test]
fn an_order_that_came_and_went_is_answered_by_a_sign_of_life() {
    let status = status(&[tag("1", "Succeeded", 5)]);
    let at_generation = |generation: i64| DesiredStatus {
        generation,
        ..wanted(&status, 0)
    };
    let mut schedule = schedule(Some(&status));
    assert_eq!(
        schedule.due(&at_generation(4), &status, at(1)),
        None,
        "this is where it begins"
    );
    assert_eq!(
        schedule.due(&at_generation(5), &status, at(2)),
        None,
        "a change that asks for nothing"
    );
    let due = schedule.due(&at_generation(6), &status, at(3));
    assert_eq!(due, Some(at(3) + GATHER_MISSED));
    schedule.written(&at_generation(6), observed("9", Some(&status)), at(4));
    assert_eq!(
        schedule.due(&at_generation(6), &status, at(5)),
        None,
        "one write is enough"
    );
    assert_eq!(
        schedule.due(&at_generation(2), &status, at(6)),
        None,
        "etcd was restored"
    );
    assert_eq!(schedule.due(&at_generation(3), &status, at(7)), None);
    assert!(schedule.due(&at_generation(4), &status, at(8)).is_some());
}
