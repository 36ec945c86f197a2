//! What time alone does: pauses, the time of one try, the deadline of an entry.

use super::*;

/// Saving takes its time: a pause, or a deadline, that ended meanwhile once was slept through for a minute.
#[test]
fn a_pause_that_ends_between_decision_and_sleep_is_not_slept_through() {
    let mut late = tag("2");
    late.pull_policy.active_deadline_seconds = Some(4);
    let mut scheduler = scheduler(1, &[tag("1"), late]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::Unreachable), at(2), &wall());
    scheduler.decide(at(2), &wall());
    assert_eq!(scheduler.wake_at(), Some(at(3)), "whatever the clock shows by now");
    scheduler.decide(at(3), &wall());
    assert_eq!(scheduler.wake_at(), Some(at(4)), "the deadline of the other one");
    scheduler.decide(at(5), &wall());
    assert_eq!(scheduler.wake_at(), None, "nothing that is settled is named again");
}

#[test]
fn one_try_ends_with_its_timeout_and_the_next_follows() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, Ended::TimedOut, at(10), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(status.reason(), Some(Reason::Timeout));
    assert_eq!(pulls(&scheduler.decide(at(11), &wall())).len(), 1);
}

#[test]
fn the_deadline_counts_from_first_sight_and_cuts_the_last_try() {
    let mut limited = tag("1");
    limited.pull_policy.active_deadline_seconds = Some(14);
    let mut scheduler = scheduler(3, &[limited]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::Unreachable), at(9), &wall());
    let steps = scheduler.decide(at(10), &wall());
    assert!(
        matches!(steps[..], [NodeStep::Pull { run: 2, limit, .. }] if limit == at(4)),
        "{steps:?}"
    );
    assert_eq!(scheduler.wake_at(), Some(at(14)));
    let steps = scheduler.decide(at(14), &wall());
    assert_eq!(steps, [NodeStep::Cancel { run: 2 }]);
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::DeadlineExceeded))
    );
    assert!(
        status
            .message
            .unwrap()
            .contains("pulling exceeds the activeDeadlineSeconds")
    );
}

#[test]
fn what_waits_in_line_ends_with_the_deadline_too() {
    let mut limited = tag("2");
    limited.pull_policy.active_deadline_seconds = Some(5);
    let mut scheduler = scheduler(1, &[tag("1"), limited]);
    scheduler.decide(at(0), &wall());
    assert_eq!(scheduler.wake_at(), Some(at(5)));
    scheduler.decide(at(5), &wall());
    assert_eq!(shown(&scheduler, "2").reason(), Some(Reason::DeadlineExceeded));
    assert_eq!(phase(&scheduler, "1"), Phase::Pulling);
}

/// (bytes that came, when) of a try of ten seconds.
#[rstest]
#[case::nothing_was_ever_seen(&[], Reason::Timeout)]
#[case::it_came_to_the_end(&[(10, 1), (20, 4), (30, 9)], Reason::Timeout)]
#[case::it_stood_still(&[(10, 1), (20, 2), (20, 3), (20, 9)], Reason::Stalled)]
#[case::only_the_manifest_came(&[(0, 1), (0, 9)], Reason::Stalled)]
#[case::no_look_after_the_last_bytes(&[(10, 1), (20, 2)], Reason::Timeout)]
#[case::all_is_there_and_unpacks(&[(10, 1), (100, 2), (100, 9)], Reason::Timeout)]
fn a_pull_that_stands_still_did_not_just_take_too_long(#[case] came: &[(u64, u64)], #[case] want: Reason) {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    for (done, moment) in came {
        scheduler.progress(1, *done, 100, at(*moment));
    }
    scheduler.ended(1, Ended::TimedOut, at(10), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(status.reason(), Some(want));
    let message = status.message.unwrap();
    assert!(
        message.contains("longer than its 10 s") && message.ends_with(want.advice()),
        "{message}"
    );
}

/// The last look at a try of a hundred seconds of which nothing came since the tenth.
#[rstest]
#[case::to_the_end(99, Reason::Stalled)]
#[case::just_recent_enough(95, Reason::Stalled)]
#[case::too_long_ago(60, Reason::Timeout)]
fn silence_counts_only_if_looks_went_on(#[case] last_look: u64, #[case] want: Reason) {
    let mut slow = tag("1");
    slow.pull_policy.timeout_seconds = 100;
    let mut scheduler = scheduler(3, &[slow]);
    scheduler.decide(at(0), &wall());
    scheduler.progress(1, 20, 100, at(10));
    scheduler.progress(1, 20, 100, at(last_look));
    scheduler.ended(1, Ended::TimedOut, at(100), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(status.reason(), Some(want));
    let silence = format!("in the last {} s nothing arrived", last_look - 10);
    assert_eq!(status.message.unwrap().contains(&silence), want == Reason::Stalled);
}

#[test]
fn a_new_try_does_not_inherit_the_standstill_of_the_last() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.progress(1, 20, 100, at(1));
    scheduler.progress(1, 20, 100, at(9));
    scheduler.ended(1, Ended::TimedOut, at(10), &wall());
    scheduler.decide(at(11), &wall());
    scheduler.ended(2, Ended::TimedOut, at(21), &wall());
    assert_eq!(shown(&scheduler, "1").reason(), Some(Reason::Timeout));
}
