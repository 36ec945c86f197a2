//! Pace: who is served when, by tables; and what must hold whatever happens, by properties.

mod refresh;
mod windows;

use jiff::SignedDuration;
use larder_api::contract::Answer;
use larder_model::Reason;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::campaign::Ending;
use crate::view::Heard;
use crate::view::samples::{able, at, blocked, campaign, node, ordered};

fn fleet(parallelism: usize, nodes: usize) -> Progress {
    let mut progress = Progress::new(campaign(parallelism), at(0));
    for number in 0..nodes {
        progress.node_changed(&node(number), able(), at(0));
    }
    progress
}

fn handed_out(steps: &[Step]) -> Vec<usize> {
    let number = |name: &NodeKey| name[5..].parse().unwrap();
    steps
        .iter()
        .filter_map(|step| match step {
            Step::HandOut(name) => Some(number(name)),
            Step::Withdraw(_) => None,
        })
        .collect()
}

/// The write of a hand-out came back, and the node answers.
fn take_up(progress: &mut Progress, number: usize, answer: Answer, seconds: i64) {
    progress.node_changed(&node(number), ordered(at(seconds), answer), at(seconds));
    progress.settle(&node(number), OrderResult::Done, at(seconds));
}

#[rstest]
#[case::one(1, usize::MAX, &[0])]
#[case::several(3, usize::MAX, &[0, 1, 2])]
#[case::more_than_there_are(100, usize::MAX, &[0, 1, 2, 3, 4])]
#[case::paused(0, usize::MAX, &[])]
#[case::the_fleet_allows_fewer(3, 2, &[0, 1])]
#[case::the_fleet_allows_none(3, 0, &[])]
fn hands_out_by_name_up_to_the_limit(#[case] parallelism: usize, #[case] allowance: usize, #[case] want: &[usize]) {
    let mut progress = fleet(parallelism, 5);
    assert_eq!(handed_out(&progress.decide(allowance, at(0))), want);
}

#[test]
fn a_slot_is_taken_until_the_outcome_of_the_write_is_known() {
    let mut progress = fleet(1, 3);
    assert_eq!(handed_out(&progress.decide(9, at(0))), [0]);
    // The watch still shows the node without the order.
    progress.node_changed(
        &node(0),
        NodeView {
            heard: Heard {
                writes: 1,
                ..Heard::default()
            },
            ..able()
        },
        at(1),
    );
    assert!(progress.decide(9, at(100)).is_empty());
    take_up(&mut progress, 0, Answer::Pulling, 101);
    assert!(progress.decide(9, at(101)).is_empty());
    progress.node_changed(&node(0), ordered(at(101), Answer::Succeeded), at(102));
    assert_eq!(handed_out(&progress.decide(9, at(102))), [1]);
}

#[test]
fn a_refused_write_frees_the_slot_and_the_node_comes_later() {
    let mut progress = fleet(1, 2);
    assert_eq!(handed_out(&progress.decide(9, at(0))), [0]);
    progress.settle(&node(0), OrderResult::Refused(Reason::Internal), at(1));
    assert_eq!(handed_out(&progress.decide(9, at(1))), [1]);
    take_up(&mut progress, 1, Answer::Succeeded, 2);
    assert!(progress.decide(9, at(60)).is_empty());
    assert_eq!(progress.next_wake(), Some(at(61)));
    assert_eq!(handed_out(&progress.decide(9, at(61))), [0]);
}

#[test]
fn an_order_that_nobody_takes_up_passes_its_slot_on() {
    let mut progress = fleet(1, 2);
    progress.decide(9, at(0));
    take_up(&mut progress, 0, Answer::Unanswered, 0);
    assert_eq!(progress.next_wake(), Some(at(30)));
    assert!(progress.decide(9, at(29)).is_empty());
    assert_eq!(progress.decide(9, at(30)), [Step::Withdraw(node(0))]);
    // Still visible in the API until the write is known.
    assert_eq!(progress.counts().slots, 1);
    progress.node_changed(&node(0), able(), at(31));
    progress.settle(&node(0), OrderResult::Done, at(31));
    assert_eq!(handed_out(&progress.decide(9, at(31))), [1]);
    assert_eq!(progress.counts().reasons, [(Reason::Unresponsive, 1)].into());
}

#[test]
fn a_silent_node_comes_again_after_the_others_and_fails_after_the_response_time() {
    let mut progress = fleet(1, 1);
    let mut tries = 0;
    for second in 0..700 {
        for step in progress.decide(9, at(second)) {
            match step {
                Step::HandOut(_) => {
                    tries += 1;
                    take_up(&mut progress, 0, Answer::Unanswered, second);
                }
                Step::Withdraw(_) => {
                    progress.node_changed(&node(0), able(), at(second));
                    progress.settle(&node(0), OrderResult::Done, at(second));
                }
            }
        }
    }
    assert_eq!(tries, 4);
    assert_eq!((progress.counts().failed, progress.counts().slots), (1, 0));
    assert!(progress.end(at(700)).is_some());
}

/// Software that was here before handed it out, or a controller before this one; the agent is only starting.
#[test]
fn an_order_of_long_ago_does_not_make_a_node_fail_at_once() {
    let mut progress = fleet(1, 1);
    let long_after = 1_000_000;
    progress.decide(9, at(0));
    take_up(&mut progress, 0, Answer::Unanswered, 0);
    assert_eq!(progress.decide(9, at(long_after)), [Step::Withdraw(node(0))]);
    progress.node_changed(&node(0), able(), at(long_after + 1));
    progress.settle(&node(0), OrderResult::Done, at(long_after + 1));
    assert_eq!(progress.counts().failed, 0);
    assert_eq!(progress.counts().reasons, [(Reason::Unresponsive, 1)].into());
    assert!(progress.end(at(long_after + 1)).is_none());
}

#[test]
fn nodes_that_cannot_take_part_do_not_stand_in_the_way() {
    let mut progress = fleet(2, 0);
    for (number, reason) in [
        (0, Reason::NodeNotReady),
        (1, Reason::Unresponsive),
        (2, Reason::NodeFull),
    ] {
        progress.node_changed(&node(number), blocked(reason, at(0)), at(0));
    }
    for number in 3..6 {
        progress.node_changed(&node(number), able(), at(0));
    }
    assert_eq!(handed_out(&progress.decide(9, at(0))), [3, 4]);
    assert_eq!(progress.counts().slots, 2);
    progress.node_changed(&node(0), able(), at(5));
    take_up(&mut progress, 3, Answer::Succeeded, 6);
    assert_eq!(handed_out(&progress.decide(9, at(6))), [0]);
}

#[test]
fn parallelism_takes_effect_at_once_in_both_directions() {
    let mut progress = fleet(1, 6);
    assert_eq!(progress.decide(9, at(0)).len(), 1);
    progress.edit(campaign(4), at(1));
    assert_eq!(progress.decide(9, at(1)).len(), 3);
    progress.edit(campaign(2), at(2));
    take_up(&mut progress, 0, Answer::Succeeded, 3);
    take_up(&mut progress, 1, Answer::Succeeded, 3);
    assert!(progress.decide(9, at(3)).is_empty());
    take_up(&mut progress, 2, Answer::Succeeded, 4);
    assert_eq!(progress.decide(9, at(4)).len(), 1);
}

#[test]
fn an_edit_of_the_pull_rules_tries_failed_nodes_again_and_leaves_the_others_alone() {
    let mut progress = fleet(9, 2);
    progress.decide(9, at(0));
    take_up(&mut progress, 0, Answer::Failed(Reason::Timeout), 1);
    take_up(&mut progress, 1, Answer::Succeeded, 1);
    let mut edited = campaign(9);
    edited.rules.timeout_seconds = 1_200;
    progress.edit(edited, at(2));
    assert_eq!(handed_out(&progress.decide(9, at(2))), [0]);
    take_up(&mut progress, 0, Answer::Failed(Reason::Timeout), 3);
    assert!(progress.decide(9, at(3)).is_empty());
    assert_eq!(progress.counts().failed, 1);
}

#[test]
fn a_hold_stops_handing_out_and_nothing_else() {
    let mut progress = fleet(1, 2);
    progress.decide(9, at(0));
    take_up(&mut progress, 0, Answer::Unanswered, 0);
    progress.hold(Some(Hold::FleetPaused));
    assert_eq!(progress.decide(9, at(30)), [Step::Withdraw(node(0))]);
    progress.node_changed(&node(0), able(), at(30));
    progress.settle(&node(0), OrderResult::Done, at(30));
    assert!(progress.decide(9, at(31)).is_empty());
    progress.hold(None);
    assert_eq!(handed_out(&progress.decide(9, at(31))), [1]);
}

fn endless(nodes: usize) -> Progress {
    let mut never = campaign(2);
    never.ending = Ending::Never;
    let mut progress = Progress::new(never, at(0));
    for number in 0..nodes {
        progress.node_changed(&node(number), able(), at(0));
    }
    progress
}

#[test]
fn an_endless_job_serves_a_new_node_at_once_even_while_others_are_due() {
    let mut progress = endless(0);
    for number in 0..5 {
        progress.node_changed(&node(number), ordered(at(-200_000), Answer::Succeeded), at(0));
    }
    progress.node_changed(&node(9), able(), at(0));
    assert_eq!(handed_out(&progress.decide(1, at(0))), [9]);
    assert_eq!(handed_out(&progress.decide(9, at(0))), [0]);
    // A node that is due still has the image: it counts as succeeded until it is asked again.
    assert_eq!(progress.counts().succeeded, 4);
}

#[test]
fn an_endless_job_looks_at_every_node_once_a_day() {
    let mut progress = endless(40);
    let mut served = vec![0; 40];
    let step = 600;
    for second in (0i64..3 * 86_400).step_by(step) {
        for number in handed_out(&progress.decide(99, at(second))) {
            served[number] += 1;
            take_up(&mut progress, number, Answer::Succeeded, second);
        }
    }
    assert!(served.iter().all(|times| (3..=4).contains(times)), "{served:?}");
}

/// Everything that may happen to one node.
#[derive(Clone, Copy, Debug)]
enum Happening {
    View(usize, u8),
    Settle(usize, bool),
    Decide(usize),
    Pass(i64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        4 => (0usize..8, 0u8..12).prop_map(|(node, view)| Happening::View(node, view)),
        3 => (0usize..8, any::<bool>()).prop_map(|(node, ok)| Happening::Settle(node, ok)),
        3 => (0usize..6).prop_map(Happening::Decide),
        2 => (1i64..400).prop_map(Happening::Pass),
    ];
    proptest::collection::vec(one, 1..80)
}

fn view(kind: u8, now: i64) -> NodeView {
    match kind {
        0 => NodeView::default(),
        1 | 2 => able(),
        3 => blocked(Reason::NodeNotReady, at(now)),
        4 => blocked(Reason::NodeFull, at(now - 300)),
        5 => ordered(at(now), Answer::Unanswered),
        6 => ordered(at(now), Answer::Waiting(None)),
        7 => ordered(at(now), Answer::Waiting(Some(Reason::RuntimeDown))),
        8 => {
            let mut view = ordered(at(now), Answer::Pulling);
            let claim = view.claim.as_mut().unwrap();
            (claim.bytes_total, claim.bytes_done) = (Some(1_000), Some(now % 1_000));
            view
        }
        9 => ordered(at(now), Answer::Succeeded),
        10 => ordered(at(now), Answer::Failed(Reason::NotFound)),
        _ => NodeView {
            selected: false,
            ..ordered(at(now), Answer::Pulling)
        },
    }
}

fn happen(progress: &mut Progress, happening: Happening, now: &mut i64) {
    match happening {
        Happening::View(number, kind) => drop(progress.node_changed(&node(number), view(kind, *now), at(*now))),
        Happening::Settle(number, true) => progress.settle(&node(number), OrderResult::Done, at(*now)),
        Happening::Settle(number, false) => {
            progress.settle(&node(number), OrderResult::Refused(Reason::Internal), at(*now));
        }
        Happening::Decide(allowance) => drop(progress.decide(allowance, at(*now))),
        Happening::Pass(seconds) => *now += seconds,
    }
}

/// What the counts, queues and timers should be, from the states of the nodes alone.
fn recomputed(progress: &Progress, now: Timestamp) -> Progress {
    let mut fresh = Progress::new(progress.campaign.clone(), progress.started);
    fresh.empty_since = progress.empty_since;
    fresh.stopped = progress.stopped;
    for (name, indexed) in &progress.nodes {
        let state = indexed.state.clone();
        fresh.nodes.insert(
            name.clone(),
            Box::new(IndexedNode {
                state,
                ..IndexedNode::default()
            }),
        );
        fresh.reindex(name, now);
    }
    fresh
}

fn assert_same(progress: &Progress, fresh: &Progress) {
    assert_eq!(progress.counts, fresh.counts);
    assert_eq!(progress.queue, fresh.queue);
    assert_eq!(progress.failed, fresh.failed);
    assert_eq!(progress.recalls, fresh.recalls);
    assert_eq!(progress.timers, fresh.timers);
}

proptest! {
    /// Kept as it goes equals counted from scratch, at every step of any history.
    #[test]
    fn incremental_equals_full_recomputation(history in happenings(), endless in any::<bool>(), parallelism in 0usize..5) {
        let mut asked = campaign(parallelism);
        if endless {
            asked.ending = Ending::Never;
        }
        let mut progress = Progress::new(asked, at(0));
        let mut now = 0;
        for happening in history {
            happen(&mut progress, happening, &mut now);
            progress.wake(at(now));
            assert_same(&progress, &recomputed(&progress, at(now)));
            let counts = progress.counts();
            prop_assert!(counts.active + counts.succeeded + counts.failed <= counts.desired);
            prop_assert!(counts.bytes_done <= counts.bytes_total);
            let waiting = counts.waiting() + counts.failed;
            prop_assert!(counts.reasons.values().sum::<usize>() <= waiting);
        }
    }

    /// Handing out never goes beyond the limit, whatever the API shows.
    #[test]
    fn never_above_parallelism(history in happenings(), parallelism in 0usize..5) {
        let mut progress = Progress::new(campaign(parallelism), at(0));
        let mut now = 0;
        for happening in history {
            match happening {
                // The API shows no order that was not handed out.
                Happening::View(number, kind) => {
                    let shown = view(kind, now);
                    let pending = progress.nodes.get(&node(number)).is_some_and(|indexed| indexed.derived.slot);
                    if shown.claim.is_none() && !pending || pending && shown.claim.is_some() {
                        progress.node_changed(&node(number), shown, at(now));
                    }
                }
                Happening::Settle(number, ok) => {
                    let outcome = if ok { OrderResult::Done } else { OrderResult::Refused(Reason::Internal) };
                    progress.settle(&node(number), outcome, at(now));
                }
                Happening::Decide(allowance) => {
                    let before = progress.counts().slots;
                    let steps = progress.decide(allowance, at(now));
                    let given = handed_out(&steps).len();
                    prop_assert!(given <= allowance);
                    prop_assert!(given == 0 || before + given <= parallelism);
                }
                Happening::Pass(seconds) => now += seconds,
            }
            prop_assert!(progress.counts().slots <= parallelism);
        }
    }

    /// Repeated and reordered views of different nodes lead to the same decision.
    #[test]
    fn the_order_in_which_nodes_are_seen_does_not_matter(
        kinds in proptest::collection::vec(0u8..12, 1..20),
        order in any::<proptest::sample::Index>(),
        repeat in any::<proptest::sample::Index>(),
    ) {
        let show = |numbers: Vec<usize>| {
            let mut progress = Progress::new(campaign(3), at(0));
            for number in numbers {
                progress.node_changed(&node(number), view(kinds[number], 0), at(0));
            }
            (progress.decide(9, at(1)), progress)
        };
        let plain: Vec<usize> = (0..kinds.len()).collect();
        let mut odd = plain.clone();
        odd.rotate_left(order.index(kinds.len()));
        odd.push(repeat.index(kinds.len()));
        let ((steps, one), (odd_steps, other)) = (show(plain), show(odd));
        prop_assert_eq!(steps, odd_steps);
        assert_same(&one, &other);
    }

    /// Every fleet ends: each node is served once, and the job is over.
    #[test]
    fn every_job_ends(nodes in 1usize..40, parallelism in 1usize..8, broken in proptest::collection::vec(0u8..4, 40)) {
        let mut progress = fleet(parallelism, nodes);
        let mut served = vec![0; nodes];
        let mut now = 0;
        while progress.end(at(now)).is_none() {
            prop_assert!(now < 40_000, "never ends: {:?}", progress.counts());
            for step in progress.decide(usize::MAX, at(now)) {
                match step {
                    Step::HandOut(name) => {
                        let number: usize = name[5..].parse().unwrap();
                        served[number] += 1;
                        let answer = match broken[number] {
                            0 => Answer::Failed(Reason::NotFound),
                            1 => Answer::Unanswered,
                            _ => Answer::Succeeded,
                        };
                        take_up(&mut progress, number, answer, now);
                    }
                    Step::Withdraw(name) => {
                        progress.node_changed(&name, able(), at(now));
                        progress.settle(&name, OrderResult::Done, at(now));
                    }
                }
            }
            let soon = at(now) + SignedDuration::from_secs(1);
            let next = progress.next_wake().map_or(soon, |wake| wake.max(soon));
            now += (next.as_second() - at(now).as_second()).min(30);
        }
        let answering = |number: &usize| broken[*number] != 1;
        prop_assert!((0..nodes).filter(answering).all(|number| served[number] == 1), "{served:?}");
        prop_assert_eq!(progress.counts().finished(), nodes);
    }
}

#[test]
fn a_node_that_may_wait_for_ever_does_not_fail() {
    let mut view = blocked(Reason::SecretMissing, at(0));
    view.block.as_mut().unwrap().since = None;
    let mut progress = Progress::new(campaign(1), at(0));
    progress.node_changed(&node(0), view, at(0));
    assert!(progress.decide(9, at(1_000_000)).is_empty());
    assert_eq!((progress.counts().failed, progress.counts().waiting()), (0, 1));
    assert_eq!(progress.counts().reasons.get(&Reason::SecretMissing), Some(&1));
}
