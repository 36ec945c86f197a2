//! Jobs that stay, over several days: each node is asked once a day at a moment of its own, by a raised version of the
//! entry that it has, and the clean-up never takes that entry away.

use jiff::SignedDuration;
use serde_json::json;

use super::job;
use super::world::{Faults, World};

const NODES: usize = 12;

#[test]
fn every_node_is_asked_once_a_day_by_one_write() {
    let mut world = World::new(NODES, 1, Faults::default());
    let spec = json!({"image": "nginx:1", "parallelism": NODES, "completionPolicy": {"type": "Never"}});
    world.submit(job(&spec));
    world.run_for(SignedDuration::from_hours(1));
    assert_eq!((world.pulls(), world.spec_writes), (vec![1; NODES], NODES));
    // The first day of a node has 12 to 36 hours, every further one 24.
    world.run_for(SignedDuration::from_hours(36));
    assert!(
        world.pulls().iter().all(|pulls| (2..=3).contains(pulls)),
        "{:?}",
        world.pulls()
    );
    let (pulls, writes) = (world.pulls(), world.spec_writes);
    assert_eq!(writes, pulls.iter().sum::<usize>(), "writes beside one for each pull");
    let day = SignedDuration::from_hours(24);
    world.run_for(day);
    let more: Vec<usize> = world.pulls().iter().zip(&pulls).map(|(now, then)| now - then).collect();
    assert_eq!((more, world.spec_writes - writes), (vec![1; NODES], NODES));
    let status = world.status_of("job");
    assert_eq!((status.desired, status.failed, status.completion_time), (12, 0, None));
}

#[test]
fn the_day_is_spread_and_a_new_leader_keeps_to_it() {
    let mut world = World::new(NODES, 2, Faults::default());
    let spec = json!({"image": "nginx:1", "parallelism": NODES, "completionPolicy": {"type": "Never"}});
    world.submit(job(&spec));
    let mut most = 0;
    for hour in 0..60 {
        let before: usize = world.pulls().iter().sum();
        world.run_for(SignedDuration::from_hours(1));
        if hour % 20 == 10 {
            world.change_leader();
        }
        let asked = world.pulls().iter().sum::<usize>() - before;
        most = if hour == 0 { 0 } else { most.max(asked) };
    }
    assert!(most <= NODES / 3, "{most} of {NODES} nodes in one hour");
    // Sixty hours: the first pull, one after 12 to 36 hours, then one every 24.
    assert!(
        world.pulls().iter().all(|pulls| (2..=4).contains(pulls)),
        "{:?}",
        world.pulls()
    );
}
