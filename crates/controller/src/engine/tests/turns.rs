//! Decisions that take several turns of the main loop.

use super::*;

const NODES: usize = 600;

fn name(number: usize) -> String {
    format!("node-{number:03}")
}

/// The NodeImage of a node that was given the order of job a, and has come this far with it.
fn ordered(name: &str, phase: &str) -> NodeImage {
    let spec = json!({"images": {"a": {"tags": [{
        "tag": "1", "createdAt": at(0).to_string(), "pullPolicy": {"ttlSecondsAfterFinished": 9},
        "ownerReferences": [{"uid": "a", "kind": "ImagePullJob", "apiVersion": "apps.kruise.io/v1beta1"}],
        "claims": [{"uid": "a", "version": 0}],
    }]}}});
    let status = json!({"imageStatuses": {"a": {"tags": [{"tag": "1", "version": 0, "phase": phase}]}}});
    node_image(name, &spec, &status)
}

/// A fleet too large for one turn, and its jobs.
fn large_fleet(limits: Limits, image: impl Fn(&str) -> WatchEvent, jobs: Vec<WatchEvent>) -> Engine {
    let mut engine = Engine::new(limits);
    let names = (0..NODES).map(name);
    let mut events: Vec<WatchEvent> = names.flat_map(|name| [node(&name), image(&name)]).collect();
    events.extend(jobs);
    engine.show_all(events, at(0));
    engine
}

/// Decides turn by turn until everything is decided, with a look at what is there after each.
fn decide_all(engine: &mut Engine, mut after_turn: impl FnMut(&mut Engine)) {
    let mut turns = 0;
    while engine.is_undecided() {
        engine.decide(at(0));
        after_turn(engine);
        turns += 1;
        assert!(turns < 100);
    }
    assert!(2 < turns, "{turns}");
}

fn for_all(image: &str) -> Value {
    json!({"image": format!("{image}:1"), "parallelism": NODES})
}

#[test]
fn a_job_is_decided_when_it_has_seen_all_nodes() {
    let jobs = ["a", "b"].map(|name| pull_job(name, &for_all(name), &Value::Null));
    let mut engine = large_fleet(serving(), idle, jobs.into());
    let orders = |engine: &Engine, uid: &str| {
        let id = engine.id(uid);
        let records = engine.nodes.records().values();
        records.filter(|record| record.orders.contains_key(&id)).count()
    };
    decide_all(&mut engine, |engine| {
        for uid in ["a", "b"] {
            assert!([0, NODES].contains(&orders(engine, uid)));
        }
        while let Some((_, JobWrite::Status(patch))) = engine.next_job_write(at(0)) {
            assert_eq!(patch[1]["value"]["desired"], NODES);
        }
    });
    assert_eq!(["a", "b"].map(|uid| orders(&engine, uid)), [NODES; 2]);
}

#[test]
fn a_node_is_not_written_before_its_jobs_have_seen_it() {
    let job = pull_job("a", &for_all("a"), &Value::Null);
    let mut engine = large_fleet(serving(), |name| shown(ordered(name, "Pulling")), vec![job]);
    let keeps_order = |engine: &mut Engine| {
        while let Some((node, write)) = engine.next_node_write(at(0)) {
            let NodeWrite::Patch(patch) = write else {
                panic!("only patches are due");
            };
            let object = nodes::patched(&ordered(&node, "Pulling"), patch, 2);
            assert!(object.spec.images.contains_key("a"), "{node}");
        }
    };
    decide_all(&mut engine, keeps_order);
}

#[rstest::rstest]
#[case::under_way("Pulling", [1, 0])]
#[case::ended("Succeeded", [0, 1])]
fn orders_that_a_new_leader_finds_count_before_they_are_seen(#[case] phase: &str, #[case] want: [usize; 2]) {
    let last = name(NODES - 1);
    let image = |name: &str| {
        if name == last {
            shown(ordered(name, phase))
        } else {
            idle(name)
        }
    };
    let of_last = json!({"image": "a:1", "selector": {"names": [last]}});
    let jobs = vec![
        pull_job("b", &json!({"image": "b:1", "parallelism": 1}), &Value::Null),
        pull_job("a", &of_last, &Value::Null),
    ];
    let limits = Limits {
        max_active_pulls: NonZeroUsize::new(1),
        ..serving()
    };
    let mut engine = large_fleet(limits, image, jobs);
    let slots = |engine: &Engine| ["a", "b"].map(|uid| engine.fleet_limit.slots(engine.id(uid)));
    decide_all(&mut engine, |engine| {
        let taken = slots(engine).iter().sum::<usize>();
        assert!(taken <= 1, "{taken}");
    });
    assert_eq!(slots(&engine), want);
}

#[test]
fn one_turn_looks_at_a_limited_number_of_nodes() {
    let mut engine = large_fleet(serving(), idle, Vec::new());
    let mut turns = 0;
    while engine.has_queued_nodes() {
        engine.decide(at(0));
        for _ in 0..2 {
            assert_eq!(engine.next_node_write(at(0)), None, "nothing is to be written");
        }
        turns += 1;
        assert!(turns < 100);
    }
    assert!(2 < turns, "asking again is no new turn: {turns}");
}
