//! An ImagePrePullJob on a bad line, and with a new leader in the middle.

use larder_api::ImagePrePullJob;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::world::{Faults, World};

fn job(concurrency: usize) -> ImagePrePullJob {
    let template = json!({"images": ["redis:7", "nginx:1"], "labelSelector": {}, "concurrency": concurrency});
    let object = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": "job", "uid": "job-uid", "generation": 1},
        "spec": {"imagePrePullTemplate": template},
    });
    serde_json::from_value(object).unwrap()
}

fn named(concurrency: usize, nodes: &[String]) -> ImagePrePullJob {
    let mut job = job(concurrency);
    job.spec.image_pre_pull_template.label_selector = None;
    job.spec.image_pre_pull_template.node_names = nodes.to_vec();
    job
}

fn outcome(world: &World) -> (Option<String>, i32) {
    let status = world.prepull_status();
    (status.phase, status.succeeded)
}

#[test]
fn without_faults_a_node_costs_one_write_whatever_the_number_of_images() {
    let mut world = World::new(40, 1, Faults::default());
    world.submit_prepull(job(8));
    world.run_until_over(4_000);
    assert_eq!(outcome(&world), (Some("Completed".to_owned()), 40));
    assert_eq!(world.pulls(), vec![2; 40]);
    assert_eq!((world.spec_writes, world.most_at_once), (40, 8));
}

#[rstest]
#[case::answers_get_lost(Faults { lost_answers: 30, ..Faults::default() })]
#[case::requests_get_lost(Faults { lost_requests: 30, ..Faults::default() })]
#[case::requests_arrive_late(Faults { late_requests: 30, ..Faults::default() })]
#[case::somebody_else_writes(Faults { foreign_writes: 30, ..Faults::default() })]
#[case::the_watch_is_slow(Faults { watch_delay: 3_000, chatter: 50, ..Faults::default() })]
fn a_bad_line_changes_nothing_but_the_time(#[case] faults: Faults) {
    for seed in 1..20 {
        let mut world = World::new(12, seed, faults);
        world.submit_prepull(job(3));
        world.run_until_over(20_000);
        assert_eq!(outcome(&world), (Some("Completed".to_owned()), 12), "seed {seed}");
        assert_eq!(world.pulls(), vec![2; 12], "seed {seed}");
        assert!(world.most_at_once <= 3, "seed {seed}: {} at once", world.most_at_once);
    }
}

#[test]
fn nodes_that_leave_the_list_hold_their_slot_until_their_order_is_gone() {
    let names: Vec<String> = (0..12).map(|number| format!("node-{number:03}")).collect();
    for seed in 1..40 {
        let faults = Faults {
            lost_answers: 20,
            watch_delay: 1_500,
            ..Faults::default()
        };
        let mut world = World::new(12, seed, faults);
        world.submit_prepull(named(2, &names[6..]));
        world.run_steps(usize::try_from(seed).unwrap());
        world.rename_nodes(&names[..8]);
        world.run_until_over(20_000);
        assert!(world.most_at_once <= 2, "seed {seed}: {} at once", world.most_at_once);
        let (phase, succeeded) = outcome(&world);
        assert_eq!((phase.as_deref(), succeeded), (Some("Completed"), 8), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Nothing is pulled twice, nothing is exceeded, and the status of the old leader is gone on with.
    #[test]
    fn a_new_leader_goes_on_where_the_last_one_stopped(seed in 1u64.., nodes in 2usize..15, concurrency in 1usize..5, steps in 1usize..120) {
        let faults = Faults { lost_answers: 10, late_requests: 10, chatter: 20, watch_delay: 1_500, ..Faults::default() };
        let mut world = World::new(nodes, seed, faults);
        world.submit_prepull(job(concurrency));
        world.run_steps(steps);
        world.change_leader();
        world.run_until_over(30_000);
        let (phase, succeeded) = outcome(&world);
        prop_assert_eq!(phase.as_deref(), Some("Completed"));
        prop_assert_eq!(usize::try_from(succeeded).unwrap(), nodes);
        prop_assert_eq!(world.pulls(), vec![2; nodes]);
        prop_assert!(world.most_at_once <= concurrency);
    }
}
