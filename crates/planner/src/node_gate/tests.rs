use larder_api::contract::Answer;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::campaign::{Campaign, Ending};
use crate::progress::Hold;
use crate::view::samples::{able, at, blocked, campaign, node, ordered};
use crate::view::{ClaimView, Loss, NodeView};

const TAINT: &str = "larder.dev/warming";
const MAX_WAIT: i64 = 900;

fn rules() -> GateRules {
    GateRules {
        taint: TAINT.to_owned(),
        max_wait: SignedDuration::from_secs(MAX_WAIT),
    }
}

fn job(name: &str, state: GatingState) -> GatingJob {
    GatingJob {
        name: name.to_owned(),
        images: vec!["nginx:1".to_owned()],
        state,
    }
}

fn waiting() -> GatingState {
    GatingState::Waiting("pulling".to_owned())
}

fn jobs(states: &[GatingState]) -> GatingJobs {
    GatingJobs {
        jobs: states.iter().map(|state| job("team/job", state.clone())).collect(),
        may_be_more: false,
    }
}

/// A node that has just registered with the taint.
fn new_node() -> GatedNode {
    GatedNode {
        condition: None,
        taints: vec!["other".to_owned(), TAINT.to_owned()],
    }
}

/// A node that was told to wait at a moment.
fn told(seconds: i64, message: &str) -> GatedNode {
    GatedNode {
        condition: Some(GateCondition {
            is_true: false,
            reason: "WaitingForImages".to_owned(),
            message: message.to_owned(),
            since: Some(at(seconds)),
        }),
        ..new_node()
    }
}

fn decided(node: &GatedNode, jobs: &GatingJobs, seconds: i64) -> GateDecision {
    decide(&rules(), node, jobs, (at(0), at(0)), at(seconds))
}

impl GateDecision {
    /// The condition to be written.
    fn condition(self) -> Option<NewCondition> {
        match self.step {
            Some(GateStep::Condition(condition)) => Some(condition),
            Some(GateStep::RemoveTaint) | None => None,
        }
    }

    /// Whether the node is released.
    fn releases(&self) -> bool {
        self.clone()
            .condition()
            .is_some_and(|condition| condition.reason.is_release())
    }
}

const NOT_FOUND: GatingState = GatingState::FailedForGood(Reason::NotFound);

#[rstest]
#[case::no_job(&[], GateReason::NoGatingJobs)]
#[case::done(&[GatingState::Done], GateReason::ImagesReady)]
#[case::one_waits(&[GatingState::Done, waiting()], GateReason::WaitingForImages)]
#[case::one_does_not_exist(&[GatingState::Done, NOT_FOUND], GateReason::ImagesFailed)]
#[case::one_does_not_exist_and_one_waits(&[NOT_FOUND, waiting()], GateReason::WaitingForImages)]
fn a_node_is_released_when_no_job_is_waited_for(#[case] states: &[GatingState], #[case] want: GateReason) {
    let decision = decided(&new_node(), &jobs(states), 5);
    assert_eq!(decision.next_look.is_none(), want.is_release());
    assert_eq!(decision.condition().unwrap().reason, want);
}

#[rstest]
#[case::before(MAX_WAIT - 1, None)]
#[case::at_the_limit(MAX_WAIT, Some(GateReason::WaitLimitReached))]
#[case::after(MAX_WAIT + 1_000, Some(GateReason::WaitLimitReached))]
fn a_node_waits_no_longer_than_it_may(#[case] seconds: i64, #[case] want: Option<GateReason>) {
    let node = told(0, "0 of 1 gating job is done; nginx:1 (team/job): pulling");
    let decision = decided(&node, &jobs(&[waiting()]), seconds);
    assert_eq!(decision.condition().map(|condition| condition.reason), want);
}

#[test]
fn what_is_done_in_time_is_no_matter_of_the_limit() {
    let decision = decided(&told(0, ""), &jobs(&[GatingState::Done]), MAX_WAIT + 1);
    assert_eq!(decision.condition().unwrap().reason, GateReason::ImagesReady);
}

#[test]
fn the_wait_began_when_the_node_was_told_so_by_whichever_replica() {
    // Told at 0, by a controller that was killed; this one has first seen the node at 600.
    let states = jobs(&[waiting()]);
    let decision = decide(&rules(), &told(0, ""), &states, (at(600), at(600)), at(MAX_WAIT));
    assert_eq!(decision.condition().unwrap().reason, GateReason::WaitLimitReached);
    // The other replica's clock was ahead.
    let ahead = told(5_000, "");
    let decision = decide(&rules(), &ahead, &states, (at(0), at(0)), at(MAX_WAIT));
    assert_eq!(decision.condition().unwrap().reason, GateReason::WaitLimitReached);
}

#[rstest]
#[case::jobs_not_all_seen(true, &[])]
#[case::set_up_by_the_cloud_provider(false, &["node.cloudprovider.kubernetes.io/uninitialized"])]
#[case::set_up_by_karpenter(false, &["karpenter.sh/unregistered"])]
fn no_job_is_no_reason_to_open_while_jobs_may_be_missing(#[case] may_be_more: bool, #[case] taints: &[&str]) {
    let mut node = new_node();
    node.taints.extend(taints.iter().map(ToString::to_string));
    for states in [vec![], vec![GatingState::Done]] {
        let known = GatingJobs {
            may_be_more,
            ..jobs(&states)
        };
        let decision = decided(&node, &known, 5);
        assert_eq!(decision.condition().unwrap().reason, GateReason::WaitingForImages);
        assert!(decided(&node, &known, MAX_WAIT).releases());
    }
}

#[rstest]
#[case::with_its_taint(vec![TAINT.to_owned()], Some(GateStep::RemoveTaint))]
#[case::without(vec!["other".to_owned()], None)]
fn a_released_node_is_never_closed_again(#[case] taints: Vec<String>, #[case] step: Option<GateStep>) {
    let condition = GateCondition {
        is_true: true,
        reason: "ImagesReady".to_owned(),
        message: String::new(),
        since: Some(at(0)),
    };
    let node = GatedNode {
        condition: Some(condition),
        taints,
    };
    let want = GateDecision { step, next_look: None };
    assert_eq!(decided(&node, &jobs(&[waiting()]), 5), want);
}

#[test]
fn progress_is_written_once_a_minute_and_what_stays_the_same_not_at_all() {
    let known = |text: &str| jobs(&[GatingState::Waiting(text.to_owned())]);
    let first = decided(&new_node(), &known("pulling, 1 MiB of 9 MiB"), 0)
        .condition()
        .unwrap();
    assert_eq!(
        first.message,
        "0 of 1 gating job is done; nginx:1 (team/job): pulling, 1 MiB of 9 MiB"
    );
    let node = told(0, &first.message);
    assert_eq!(decided(&node, &known("pulling, 1 MiB of 9 MiB"), 600).condition(), None);
    let further = known("pulling, 2 MiB of 9 MiB");
    let early = decided(&node, &further, 59);
    assert_eq!((early.step, early.next_look), (None, Some(at(60))));
    let written = decided(&node, &further, 60).condition().unwrap();
    assert_eq!(written.since, at(0), "it waits since the beginning");
}

#[test]
fn a_message_names_what_is_wrong_and_stays_short() {
    let failed = jobs(&[GatingState::Done, NOT_FOUND]);
    let message = decided(&new_node(), &failed, 0).condition().unwrap().message;
    assert_eq!(
        message,
        "1 of 2 gating jobs are done; nginx:1 (team/job): failed, NotFound: Check the image name and tag for typing \
         errors, and that the image has been pushed."
    );
    let many = jobs(&vec![GatingState::Waiting("ä".repeat(400)); 9]);
    let message = decided(&new_node(), &many, 0).condition().unwrap().message;
    assert!(message.len() <= MESSAGE && message.ends_with('…'), "{message}");
}

fn endless() -> Campaign {
    Campaign {
        ending: Ending::Never,
        gates_nodes: true,
        ..campaign(1)
    }
}

fn said(answer: Answer) -> NodeView {
    ordered(at(0), answer)
}

fn pulling(done: i64, total: i64) -> NodeView {
    let view = said(Answer::Pulling);
    let claim = view.claim.map(|claim| ClaimView {
        bytes_done: Some(done),
        bytes_total: Some(total),
        ..claim
    });
    NodeView { claim, ..view }
}

fn waits(text: &str) -> GatingState {
    GatingState::Waiting(text.to_owned())
}

fn lost(loss: Loss) -> NodeView {
    let mut view = said(Answer::Succeeded);
    view.claim.as_mut().unwrap().loss = Some(loss);
    view
}

#[rstest]
#[case::not_selected(NodeView::default(), None)]
#[case::removed_and_pulled_again(lost(Loss::Pulling), Some(waits("the image was removed, and is pulled again")))]
#[case::removed_and_no_room(
    lost(Loss::Waiting(Some(Reason::NoSpace))),
    Some(waits("waits, NoSpace: Free space on the node's image file system, or give it a larger disk."))
)]
#[case::removed_and_not_to_be_had(lost(Loss::Failed(Reason::NotFound)), Some(NOT_FOUND))]
#[case::succeeded(said(Answer::Succeeded), Some(GatingState::Done))]
#[case::does_not_exist(said(Answer::Failed(Reason::NotFound)), Some(NOT_FOUND))]
#[case::tried_again_later(
    said(Answer::Failed(Reason::Dns)),
    Some(waits("failed, Dns: Check the registry's host name, and that the node's DNS server can resolve it."))
)]
#[case::pulls(pulling(1 << 20, 9 << 20), Some(waits("pulling, 1.0 MiB of 9.0 MiB")))]
#[case::handed_out(said(Answer::Unanswered), Some(waits("pulling")))]
#[case::queued(able(), Some(waits("waits for its turn")))]
#[case::not_ready(
    blocked(Reason::NodeNotReady, at(0)),
    Some(waits("waits, NodeNotReady: Bring the node back, or take it out of the job's selector."))
)]
fn how_far_a_node_is(#[case] view: NodeView, #[case] want: Option<GatingState>) {
    let mut progress = Progress::new(endless(), at(0));
    progress.node_changed(&node(1), view, at(0));
    assert_eq!(progress.gating_state(&node(1)), want);
}

#[test]
fn a_node_waits_with_its_job() {
    let mut progress = Progress::new(endless(), at(0));
    progress.node_changed(&node(1), able(), at(0));
    progress.hold(Some(Hold::FleetPaused));
    let want = Some(waits("handing out is paused for the whole fleet"));
    assert_eq!(progress.gating_state(&node(1)), want);
}

#[test]
fn a_taint_that_keeps_the_agent_away_may_go() {
    let mut progress = Progress::new(endless(), at(0));
    for (reason, waits) in [
        (NoAgent::Taint, true),
        (NoAgent::OperatingSystem, false),
        (NoAgent::Virtual, false),
    ] {
        progress.leave_out(&node(1), Some(reason));
        assert_eq!(progress.gating_state(&node(1)).is_some(), waits, "{reason:?}");
    }
}

fn any_state() -> impl Strategy<Value = GatingState> {
    prop_oneof![
        Just(GatingState::Done),
        Just(NOT_FOUND),
        "[a-c]{1,2}".prop_map(GatingState::Waiting),
    ]
}

/// What happens to a node: the states of its jobs, whether there may be more of them, and seconds until the next event.
type Event = (Vec<GatingState>, bool, i64);

/// A controller that is asked at every event and whenever it wants to look again; it may be killed at any event, and writes
/// may be lost. Gives back the moments at which the condition was written, and when the node was released and what was known then.
fn lived(events: &[(Event, bool, bool)]) -> (Vec<i64>, Option<(i64, GatingJobs)>) {
    let (mut node, mut clock, mut writes) = (new_node(), 0, Vec::new());
    let (mut first_seen, mut written) = (0, 0);
    for ((states, may_be_more, pause), killed, lost) in events {
        if *killed {
            (first_seen, written) = (clock, clock);
        }
        let known = GatingJobs {
            may_be_more: *may_be_more,
            ..jobs(states)
        };
        let until = clock + pause;
        loop {
            let decision = decide(&rules(), &node, &known, (at(first_seen), at(written)), at(clock));
            if let Some(condition) = decision.clone().condition()
                && !lost
            {
                writes.push(clock);
                written = clock;
                node.condition = Some(GateCondition {
                    is_true: condition.reason.is_release(),
                    reason: condition.reason.as_str().to_owned(),
                    message: condition.message.clone(),
                    since: Some(condition.since),
                });
            }
            if node.was_released() {
                return (writes, Some((clock, known)));
            }
            let next = decision.next_look.map(|moment| moment.duration_since(at(0)).as_secs());
            // A lost write is tried again a little later.
            let next = if *lost { Some(clock + 5) } else { next };
            match next.filter(|next| *next < until) {
                Some(next) => {
                    assert!(clock < next || *lost, "time goes on");
                    clock = next;
                }
                None => break,
            }
        }
        clock = until;
    }
    (writes, None)
}

fn any_event() -> impl Strategy<Value = (Event, bool, bool)> {
    let event = (prop::collection::vec(any_state(), 0..4), any::<bool>(), 1i64..300);
    (event, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
}

proptest! {
    #[test]
    fn a_gate_neither_opens_early_nor_stays_closed(events in prop::collection::vec(any_event(), 1..30)) {
        let (writes, released) = lived(&events);
        let lasted: i64 = events.iter().map(|((_, _, pause), _, _)| *pause).sum();
        let reliable = events.iter().all(|(_, killed, lost)| !killed && !lost);
        if let Some((moment, known)) = &released {
            let waited_for = known.may_be_more
                || known.jobs.iter().any(|job| matches!(job.state, GatingState::Waiting(_)));
            prop_assert!(!waited_for || MAX_WAIT <= *moment, "released at {} with {:?}", moment, known);
        }
        // Told at the latest with the first write that was not lost; from then on kills do not matter.
        let told = writes.first().copied();
        if let Some(told) = told {
            let losses: i64 = events.iter().filter(|(_, _, lost)| *lost).map(|((_, _, pause), _, _)| *pause).sum();
            let closed_until = released.as_ref().map_or(lasted, |(moment, _)| *moment);
            prop_assert!(closed_until <= told + MAX_WAIT + losses, "closed until {}", closed_until);
        }
        if reliable {
            prop_assert!(released.is_some() || lasted <= MAX_WAIT);
        }
        let pairs = writes.iter().zip(writes.iter().skip(1));
        let last = writes.len().saturating_sub(2);
        for (number, (before, after)) in pairs.enumerate() {
            prop_assert!(number == last || REWRITE.as_secs() <= after - before, "{:?}", writes);
        }
    }
}
