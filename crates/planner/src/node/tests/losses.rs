//! Images that somebody else removes.

use super::*;

/// An inventory without images, on a filesystem with room for so many bytes.
fn empty(taken: u64, room: u64) -> NodeInventory {
    NodeInventory {
        room: Some(ByteSize(room)),
        ..inventory_of(taken, &[])
    }
}

#[test]
fn an_image_that_vanished_is_pulled_again_and_stays_a_success_for_its_job() {
    let mut limited = tag("1");
    limited.pull_policy.active_deadline_seconds = Some(5);
    let mut scheduler = done(&[limited]);
    scheduler.take_inventory(inventory_of(100, &[]), at(100));
    let steps = scheduler.decide(at(100), &wall());
    assert_eq!(
        pulls(&steps).len(),
        1,
        "its deadline is over, but it was answered before"
    );
    assert!(shown(&scheduler, "1").last_succeeded.is_some());
    scheduler.ended(2, pulled("1"), at(101), &wall());
    scheduler.take_inventory(inventory_of(102, &[]), at(102));
    assert!(
        pulls(&scheduler.decide(at(102), &wall())).is_empty(),
        "the second time it waits"
    );
    assert_eq!(scheduler.wake_at(), Some(at(162)));
}

#[test]
fn an_inventory_from_before_the_pull_ended_takes_nothing_back() {
    let mut scheduler = scheduler(1, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, pulled("1"), at(10), &wall());
    scheduler.take_inventory(inventory_of(9, &[]), at(11));
    assert_eq!(phase(&scheduler, "1"), Phase::Succeeded);
}

#[test]
fn without_room_it_waits_until_an_inventory_shows_some() {
    let mut scheduler = done(&[if_not_present(tag("1"))]);
    scheduler.looked(1, Found::Present(Image::default()), at(1), &wall());
    scheduler.take_inventory(empty(10, 0), at(10));
    assert!(scheduler.decide(at(10), &wall()).is_empty());
    let waits = shown(&scheduler, "1");
    assert_eq!((waits.phase(), waits.reason()), (Phase::Waiting, Some(Reason::NoSpace)));
    assert_eq!(scheduler.wake_at(), None, "time alone makes no room");
    scheduler.take_inventory(empty(20, 1_000), at(20));
    assert!(matches!(scheduler.decide(at(20), &wall())[..], [NodeStep::Look { .. }]));
}

#[test]
fn after_a_restart_it_waits_until_the_room_is_known() {
    let mut first = done(&[tag("1")]);
    first.take_inventory(empty(10, 0), at(10));
    first.decide(at(10), &wall());
    let states = first.states().iter();
    let resumed = states.map(|(key, state)| (key.clone(), state.clone().resumed(at(11), true, at(12))));
    let mut second = NodeScheduler::new(1);
    second.resume(resumed.collect());
    second.take_orders(entries(&spec(&[tag("1")])), None, at(12));
    assert!(second.decide(at(12), &wall()).is_empty());
    second.take_inventory(empty(13, 0), at(13));
    assert!(second.decide(at(13), &wall()).is_empty());
    second.take_inventory(empty(14, 1_000), at(14));
    assert_eq!(pulls(&second.decide(at(14), &wall())).len(), 1);
}
