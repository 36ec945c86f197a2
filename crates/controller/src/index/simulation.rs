//! The index against a world in virtual time: an API whose answers get lost, watches that are late, agents that take their
//! time, and writers beside us. One seed is one run.
//!
//! Whatever happens, the API never shows more nodes at work than the job allows, every node pulls once, and the job ends.

mod days;
mod prepulls;
mod world;

use jiff::{SignedDuration, Timestamp};
use larder_api::ImagePullJob;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use self::world::{Faults, World};

fn job(spec: &Value) -> ImagePullJob {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": "team", "uid": "job-uid", "generation": 1},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

#[test]
fn without_faults_a_node_costs_one_write() {
    let mut world = World::new(40, 1, Faults::default());
    world.submit(job(&json!({"image": "nginx:1", "parallelism": 8})));
    world.run_until_over(4_000);
    assert_eq!(world.pulls(), vec![1; 40]);
    assert_eq!(world.spec_writes, 40);
    assert_eq!(world.most_at_once, 8);
}

#[test]
fn a_watch_that_is_behind_costs_no_write() {
    for seed in 1..20 {
        let faults = Faults {
            chatter: 50,
            watch_delay: 3_000,
            ..Faults::default()
        };
        let mut world = World::new(12, seed, faults);
        world.submit(job(&json!({"image": "nginx:1", "parallelism": 3})));
        world.run_until_over(20_000);
        assert_eq!((world.spec_writes, world.refusals), (12, 0), "seed {seed}");
    }
}

#[test]
fn a_node_image_that_is_refused_stops_nobody_and_is_not_tried_all_the_time() {
    let mut world = World::new(5, 1, Faults::default());
    world.refused = Some("node-000".into());
    world.submit(job(&json!({"image": "nginx:1", "parallelism": 1})));
    world.run_until_over(4_000);
    assert_eq!(world.pulls(), [0, 1, 1, 1, 1]);
    assert!((2..=20).contains(&world.refusals), "{} refusals", world.refusals);
    let status = world.status_of("job");
    assert_eq!(
        (status.succeeded, status.failed_nodes),
        (4, vec!["node-000".to_owned()])
    );
}

#[test]
fn the_clean_up_of_several_jobs_costs_one_write() {
    let mut world = World::new(5, 1, Faults::default());
    for (number, image) in ["nginx:1", "redis:7", "busybox:1"].into_iter().enumerate() {
        let mut job = job(&json!({"image": image, "parallelism": 5}));
        job.metadata.name = Some(format!("job-{number}"));
        job.metadata.uid = Some(format!("uid-{number}"));
        world.submit(job);
    }
    world.run_until_over(4_000);
    let before = world.spec_writes;
    world.run_for(SignedDuration::from_hours(2));
    assert!(world.is_clean());
    assert_eq!(world.spec_writes - before, 5);
}

#[rstest]
#[case::answers_get_lost(Faults { lost_answers: 30, ..Faults::default() })]
#[case::requests_get_lost(Faults { lost_requests: 30, ..Faults::default() })]
#[case::requests_arrive_late(Faults { late_requests: 30, ..Faults::default() })]
#[case::somebody_else_writes(Faults { foreign_writes: 30, ..Faults::default() })]
#[case::the_watch_is_slow(Faults { watch_delay: 3_000, chatter: 50, ..Faults::default() })]
#[case::everything(Faults { lost_answers: 10, lost_requests: 10, late_requests: 10, foreign_writes: 10, chatter: 20, watch_delay: 2_000 })]
fn a_bad_line_changes_nothing_but_the_time(#[case] faults: Faults) {
    for seed in 1..20 {
        let mut world = World::new(12, seed, faults);
        world.submit(job(&json!({"image": "nginx:1", "parallelism": 3})));
        world.run_until_over(20_000);
        assert_eq!(world.pulls(), vec![1; 12], "seed {seed}");
        assert!(world.most_at_once <= 3, "seed {seed}: {} at once", world.most_at_once);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_line_any_size(
        seed in 1u64.., nodes in 1usize..20, parallelism in 1usize..6,
        lost_answers in 0u64..25, lost_requests in 0u64..25, late_requests in 0u64..25, foreign_writes in 0u64..25,
        watch_delay in 0u64..4_000, chatter in 0u64..60,
    ) {
        let faults = Faults { lost_answers, lost_requests, late_requests, foreign_writes, chatter, watch_delay };
        let mut world = World::new(nodes, seed, faults);
        world.submit(job(&json!({"image": "nginx:1", "parallelism": parallelism})));
        world.run_until_over(30_000);
        prop_assert_eq!(world.pulls(), vec![1; nodes]);
        prop_assert!(world.most_at_once <= parallelism);
    }

    /// A new leader in the middle of everything: nothing is pulled twice, nothing is exceeded.
    #[test]
    fn a_new_leader_goes_on_where_the_last_one_stopped(seed in 1u64.., nodes in 2usize..15, parallelism in 1usize..5, steps in 1usize..120) {
        let faults = Faults { lost_answers: 10, late_requests: 10, chatter: 20, watch_delay: 1_500, ..Faults::default() };
        let mut world = World::new(nodes, seed, faults);
        world.submit(job(&json!({"image": "nginx:1", "parallelism": parallelism})));
        world.run_steps(steps);
        world.change_leader();
        world.run_until_over(30_000);
        prop_assert_eq!(world.pulls(), vec![1; nodes]);
        prop_assert!(world.most_at_once <= parallelism);
    }

    /// The whole fleet's limit is never exceeded, and every job ends, whoever leads.
    #[test]
    fn jobs_share_the_fleets_limit(
        seed in 1u64.., nodes in 1usize..10, jobs in 2usize..5, parallelism in 1usize..6, max in 1usize..5, steps in 1usize..120,
    ) {
        let faults = Faults { lost_answers: 10, late_requests: 10, chatter: 20, watch_delay: 1_500, ..Faults::default() };
        let mut world = World::new(nodes, seed, faults);
        world.limit(max);
        for number in 0..jobs {
            let mut job = job(&json!({"image": format!("app-{number}:1"), "parallelism": parallelism}));
            job.metadata.name = Some(format!("job-{number}"));
            job.metadata.uid = Some(format!("uid-{number}"));
            world.submit(job);
        }
        world.run_steps(steps);
        world.change_leader();
        world.run_until_over(60_000);
        prop_assert_eq!(world.pulls(), vec![jobs; nodes]);
        prop_assert!(world.most_at_once <= parallelism);
        prop_assert!(world.most_together <= max, "{} at once", world.most_together);
    }
}
