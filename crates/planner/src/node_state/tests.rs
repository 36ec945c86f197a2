//! Where a node stands, case by case.

use super::*;
use crate::campaign::Ending;
use crate::view::samples::{able, at, blocked, campaign, ordered};
use rstest::rstest;

fn derive(view: NodeView, seconds: i64) -> Derived {
    let state = NodeState {
        view,
        ..NodeState::default()
    };
    state.derive(&campaign(1), "node-1", at(seconds))
}

#[rstest]
#[case::may_be_taken(able(), Bucket::Waiting(None), Some(QueueClass::First), false)]
#[case::not_ready(
    blocked(Reason::NodeNotReady, at(0)),
    Bucket::Waiting(Some(Reason::NodeNotReady)),
    None,
    false
)]
#[case::full(
    blocked(Reason::NodeFull, at(0)),
    Bucket::Waiting(Some(Reason::NodeFull)),
    None,
    false
)]
#[case::agent_never_answered(
    blocked(Reason::Unresponsive, at(0)),
    Bucket::Waiting(Some(Reason::Unresponsive)),
    None,
    false
)]
#[case::just_ordered(ordered(at(0), Answer::Unanswered), Bucket::Active, None, true)]
#[case::queued_on_the_node(ordered(at(0), Answer::Waiting(None)), Bucket::Active, None, true)]
#[case::pulls(ordered(at(0), Answer::Pulling), Bucket::Active, None, true)]
#[case::succeeded(ordered(at(0), Answer::Succeeded), Bucket::Succeeded, None, false)]
#[case::failed(
    ordered(at(0), Answer::Failed(Reason::NotFound)),
    Bucket::Failed(Reason::NotFound),
    None,
    false
)]
#[case::not_selected(NodeView::default(), Bucket::Outside, None, false)]
fn stands(#[case] view: NodeView, #[case] bucket: Bucket, #[case] turn: Option<QueueClass>, #[case] slot: bool) {
    let derived = derive(view, 1);
    assert_eq!((derived.bucket, derived.turn, derived.slot), (bucket, turn, slot));
}

#[rstest]
#[case::just_before(29, None)]
#[case::at_the_limit(30, Some(Reason::Unresponsive))]
fn an_order_that_nobody_takes_up_is_taken_back(#[case] seconds: i64, #[case] want: Option<Reason>) {
    assert_eq!(derive(ordered(at(0), Answer::Unanswered), seconds).recall, want);
}

#[test]
fn a_pull_may_take_its_time() {
    let derived = derive(ordered(at(0), Answer::Pulling), 86_000);
    assert_eq!((derived.recall, derived.wake), (None, None));
}

#[rstest]
#[case::runtime_is_down(Some(Reason::RuntimeDown), Some(Reason::RuntimeDown))]
#[case::queued(None, None)]
#[case::backs_off(Some(Reason::RateLimited), None)]
fn a_node_that_cannot_begin_gives_its_slot_back(#[case] reason: Option<Reason>, #[case] want: Option<Reason>) {
    assert_eq!(derive(ordered(at(0), Answer::Waiting(reason)), 31).recall, want);
}

#[test]
fn a_node_that_leaves_while_it_pulls_gives_its_slot_back() {
    let mut view = ordered(at(0), Answer::Pulling);
    view.block = blocked(Reason::NodeNotReady, at(100)).block;
    assert_eq!(derive(view.clone(), 129).recall, None);
    assert_eq!(derive(view.clone(), 129).wake, Some(at(130)));
    assert_eq!(derive(view, 130).recall, Some(Reason::NodeNotReady));
}

#[test]
fn a_node_that_cannot_take_part_fails_with_its_own_reason_after_the_response_time() {
    let view = blocked(Reason::NodeNotReady, at(0));
    assert_eq!(derive(view.clone(), 599).wake, Some(at(600)));
    let late = derive(view, 600);
    assert_eq!(late.bucket, Bucket::Failed(Reason::NodeNotReady));
    assert!(late.gives_up);
}

fn heard(seconds: i64, writes: u32) -> Heard {
    Heard {
        last_seen: Some(at(seconds)),
        writes,
    }
}

fn silent(tries: u32, now: i64) -> NodeState {
    let mut state = NodeState {
        view: able(),
        ..NodeState::default()
    };
    for _ in 0..tries {
        state.no_response = Some(Box::new(NoResponse::after(
            &state,
            Reason::Unresponsive,
            at(0),
            at(now),
        )));
    }
    state
}

#[rstest]
#[case::once(1, 60)]
#[case::twice(2, 120)]
#[case::four_times(4, 480)]
#[case::for_ever(50, 3_600)]
fn a_silent_node_rests_longer_each_time(#[case] tries: u32, #[case] rest: i64) {
    assert_eq!(silent(tries, 30).no_response.unwrap().retry_at, at(30 + rest));
}

#[test]
fn a_silent_node_is_tried_after_all_others_and_fails_in_the_end() {
    let state = silent(1, 30);
    let campaign = campaign(1);
    assert_eq!(state.derive(&campaign, "n", at(89)).turn, None);
    assert_eq!(
        state.derive(&campaign, "n", at(90)).turn,
        Some(QueueClass::AfterNoResponse)
    );
    assert_eq!(
        state.derive(&campaign, "n", at(600)).bucket,
        Bucket::Failed(Reason::Unresponsive)
    );
}

#[rstest]
#[case::later(heard(35, 1))]
#[case::with_a_clock_that_stands_still(heard(20, 2))]
fn a_silent_node_that_speaks_again_is_tried_at_once(#[case] now_heard: Heard) {
    let mut state = silent(2, 30);
    state.no_response.as_mut().unwrap().heard = heard(20, 1);
    state.see(NodeView {
        heard: now_heard,
        ..able()
    });
    assert_eq!(
        state.derive(&campaign(1), "n", at(36)).turn,
        Some(QueueClass::AfterNoResponse)
    );
}

#[test]
fn a_node_whose_runtime_is_down_is_not_tried_faster_because_its_agent_talks() {
    let mut state = silent(1, 30);
    state.no_response.as_mut().unwrap().reason = Reason::RuntimeDown;
    state.see(NodeView {
        heard: heard(35, 1),
        ..able()
    });
    assert_eq!(state.derive(&campaign(1), "n", at(36)).turn, None);
}

/// The order of a node that became unready was taken back.
#[rstest]
#[case::ready_again(able(), Some(QueueClass::AfterNoResponse))]
#[case::still_not_ready(blocked(Reason::NodeNotReady, at(10)), None)]
fn a_node_that_can_take_part_again_is_tried_at_once(#[case] view: NodeView, #[case] turn: Option<QueueClass>) {
    let mut state = silent(2, 30);
    state.no_response.as_mut().unwrap().reason = Reason::NodeNotReady;
    state.view = blocked(Reason::NodeNotReady, at(0));
    state.see(view);
    assert_eq!(state.derive(&campaign(1), "n", at(36)).turn, turn);
}

#[test]
fn an_endless_job_goes_on_trying_a_silent_node() {
    let mut endless = campaign(1);
    endless.ending = Ending::Never;
    let state = silent(1, 30);
    let derived = state.derive(&endless, "n", at(601));
    assert_eq!(derived.bucket, Bucket::Failed(Reason::Unresponsive));
    assert_eq!(derived.turn, Some(QueueClass::AfterNoResponse));
}

#[test]
fn an_endless_job_tries_a_failure_again_after_an_hour() {
    let mut endless = campaign(1);
    endless.ending = Ending::Never;
    let state = NodeState {
        view: ordered(at(0), Answer::Failed(Reason::NotFound)),
        ..NodeState::default()
    };
    assert_eq!(state.derive(&endless, "n", at(3_599)).wake, Some(at(3_600)));
    assert_eq!(state.derive(&endless, "n", at(3_600)).turn, Some(QueueClass::Refresh));
}

#[test]
fn an_ended_failure_is_given_again_when_credentials_or_the_job_changed() {
    let mut view = ordered(at(0), Answer::Failed(Reason::AuthDenied));
    view.claim.as_mut().unwrap().again = true;
    assert_eq!(derive(view, 1).turn, Some(QueueClass::First));
    let edited = NodeState {
        view: ordered(at(0), Answer::Failed(Reason::AuthDenied)),
        redo: true,
        ..NodeState::default()
    };
    assert_eq!(edited.derive(&campaign(1), "n", at(1)).turn, Some(QueueClass::First));
}

#[test]
fn a_node_that_left_the_selection_holds_its_slot_until_its_order_is_gone() {
    let mut view = ordered(at(0), Answer::Pulling);
    view.selected = false;
    let derived = derive(view, 1);
    assert_eq!((derived.bucket, derived.slot), (Bucket::Outside, true));
}
