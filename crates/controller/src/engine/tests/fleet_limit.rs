//! How jobs share the pulls of the whole fleet.

use larder_model::Reason;
use larder_planner::node_spec::Order;
use larder_planner::progress::OrderResult;

use super::*;

/// Three jobs for all of twelve nodes, and at most so many pulls at once.
fn three_jobs(max: usize) -> (Engine, Timestamp) {
    let mut engine = limited_to(max);
    let mut events = Vec::new();
    for number in 0..12 {
        let name = format!("node-{number:02}");
        events.extend([node(&name), idle(&name)]);
    }
    for name in ["a", "b", "c"] {
        events.push(pull_job(name, &json!({"image": name, "parallelism": 8}), &Value::Null));
    }
    engine.show_all(events, at(0));
    engine.decide(at(0));
    (engine, at(0))
}

fn limited_to(max: usize) -> Engine {
    Engine::new(Limits {
        max_active_pulls: NonZeroUsize::new(max),
        ..serving()
    })
}

/// Slots of the jobs with these uids.
fn slots<const N: usize>(engine: &Engine, uids: [&str; N]) -> [usize; N] {
    uids.map(|uid| engine.fleet_limit.slots(engine.id(uid)))
}

/// One order of a job is refused: its slot is free again, and the node is tried much later.
fn give_back(engine: &mut Engine, uid: &str, now: Timestamp) {
    let job = engine.id(uid);
    let holds = |order: &Order| matches!(order, Order::Claim { .. });
    let mut nodes = engine.nodes.records().iter();
    let (node, _) = nodes
        .find(|(_, record)| record.orders.get(&job).is_some_and(holds))
        .unwrap();
    let node = node.clone();
    engine.settle(&node, &[job], OrderResult::Refused(Reason::Internal), now);
    engine.decide(now);
}

#[test]
fn slots_that_come_free_go_to_the_job_with_the_fewest() {
    let (mut engine, now) = three_jobs(6);
    let all = ["a", "b", "c"];
    assert_eq!(slots(&engine, all), [6, 0, 0], "the first job took what was free");
    for _ in 0..4 {
        give_back(&mut engine, "a", now);
        assert_eq!(slots(&engine, all).iter().sum::<usize>(), 6);
    }
    assert_eq!(slots(&engine, all), [2, 2, 2]);
    give_back(&mut engine, "b", now);
    assert_eq!(
        slots(&engine, all),
        [2, 2, 2],
        "it has the fewest now, and gets it back"
    );
}

#[test]
fn a_single_slot_goes_round() {
    let (mut engine, now) = three_jobs(1);
    let all = ["a", "b", "c"];
    let mut turns = Vec::new();
    for _ in 0..6 {
        let holder = slots(&engine, all).iter().position(|slots| *slots == 1).unwrap();
        turns.push(holder);
        give_back(&mut engine, all[holder], now);
    }
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_stream_of_new_jobs_does_not_overtake_those_that_wait() {
    let (mut engine, now) = three_jobs(1);
    let mut uids: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
    let mut turns = Vec::new();
    for number in 0..8 {
        let name = format!("new-{number}");
        engine.show_event(pull_job(&name, &json!({"image": name}), &Value::Null), now);
        uids.push(name);
        engine.decide(now);
        let holds = |uid: &String| engine.fleet_limit.slots(engine.id(uid)) == 1;
        let holder = uids.iter().position(holds).unwrap();
        turns.push(holder);
        give_back(&mut engine, &uids[holder].clone(), now);
    }
    assert_eq!(turns, [0, 1, 2, 3, 0, 4, 1, 5]);
}

#[test]
fn what_a_job_leaves_behind_is_given_to_the_next_ones() {
    let (mut engine, now) = three_jobs(6);
    engine.remove_job(engine.id("a"), now);
    engine.decide(now);
    assert_eq!(slots(&engine, ["b", "c"]), [3, 3]);
}

/// An engine with two jobs that want more than it may hand out: `low` with priority 0, and `high`.
fn two_priorities(max: usize) -> Engine {
    let mut engine = limited_to(max);
    let mut events = Vec::new();
    for number in 0..40 {
        let name = format!("node-{number:02}");
        events.extend([node(&name), idle(&name)]);
    }
    let spec = |priority: i32| json!({"image": "a", "parallelism": 40, "priority": priority});
    events.push(pull_job("low", &spec(0), &Value::Null));
    events.push(pull_job("high", &spec(7), &Value::Null));
    engine.show_all(events, at(0));
    engine.decide(at(0));
    engine
}

#[test]
fn of_jobs_that_start_together_the_higher_priority_is_first() {
    let engine = two_priorities(3);
    assert_eq!(slots(&engine, ["high", "low"]), [3, 0]);
}

#[test]
fn of_ten_slots_one_is_for_the_lower_priority() {
    let mut engine = two_priorities(1);
    let mut turns = String::new();
    for _ in 0..21 {
        let is_high = slots(&engine, ["high"]) == [1];
        turns.push(if is_high { 'h' } else { 'l' });
        give_back(&mut engine, if is_high { "high" } else { "low" }, at(0));
    }
    assert_eq!(turns, "hhhhhhhhhhlhhhhhhhhhl");
}

#[test]
fn an_edit_of_the_priority_counts_for_the_next_slot() {
    let mut engine = two_priorities(3);
    let spec = json!({"image": "a", "parallelism": 40, "priority": 8});
    engine.show_event(pull_job("low", &spec, &Value::Null), at(0));
    engine.decide(at(0));
    assert_eq!(slots(&engine, ["high", "low"]), [3, 0], "what runs is not stopped");
    give_back(&mut engine, "high", at(0));
    assert_eq!(slots(&engine, ["high", "low"]), [2, 1]);
}

/// A NodeImage with the order of job a, which the node has come this far with.
fn ordered(phase: &str) -> WatchEvent {
    let spec = json!({"images": {"a": {"tags": [{
        "tag": "1", "createdAt": at(0).to_string(), "pullPolicy": {"ttlSecondsAfterFinished": 9},
        "ownerReferences": [{"uid": "a", "kind": "ImagePullJob", "apiVersion": "apps.kruise.io/v1beta1"}],
        "claims": [{"uid": "a", "version": 0}],
    }]}}});
    let status = json!({"imageStatuses": {"a": {"tags": [{"tag": "1", "version": 0, "phase": phase}]}}});
    shown(node_image("node", &spec, &status))
}

/// One slot. A new leader finds an order of job a, which selects by pods that are not known yet; job b wants another node.
fn unknown_pods() -> Engine {
    let mut engine = limited_to(1);
    let by_pods = json!({"image": "a:1", "podSelector": {"matchLabels": {"app": "web"}}});
    let by_name = json!({"image": "b:1", "selector": {"names": ["other"]}});
    let events = vec![
        node("node"),
        node("other"),
        ordered("Pulling"),
        idle("other"),
        pull_job("a", &by_pods, &Value::Null),
        pull_job("b", &by_name, &Value::Null),
    ];
    engine.show_all(events, at(0));
    engine.decide(at(0));
    engine
}

#[test]
fn orders_of_a_job_that_waits_for_its_pods_count() {
    let mut engine = unknown_pods();
    assert_eq!(slots(&engine, ["a", "b"]), [1, 0]);
    assert!(
        engine.nodes.get("node").unwrap().image.is_compressed(),
        "counting leaves it compressed"
    );
    // None of its pods runs any more: it leaves the node, and holds its slot until the order is gone.
    let pods = WatchKind::Pods("team".to_owned());
    for event in [WatchEvent::ListBegins, WatchEvent::ListComplete] {
        engine.observe(&pods, event, at(0));
    }
    engine.decide(at(0));
    assert_eq!(slots(&engine, ["a", "b"]).iter().sum::<usize>(), 1);
}

#[test]
fn an_order_that_ends_while_its_job_waits_for_pods_makes_room() {
    let mut engine = unknown_pods();
    engine.show_event(ordered("Succeeded"), at(0));
    engine.decide(at(0));
    assert_eq!(slots(&engine, ["a", "b"]), [0, 1]);
}
