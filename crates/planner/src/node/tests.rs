//! The board as a whole: what it does in which order, and what must hold whatever happens.

mod chores;
mod line;
mod memory;
mod property;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::node_image::{ImageSpec, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus, NodeImageSpec};
use larder_model::{ImageRef, Phase, Reason};
use rstest::rstest;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall() -> Time {
    Time(jiff::Timestamp::UNIX_EPOCH)
}

fn tag(tag: &str) -> ImageTagSpec {
    ImageTagSpec {
        tag: tag.into(),
        pull_policy: ImageTagPullPolicy {
            timeout_seconds: 10,
            backoff_limit: 2,
            ..ImageTagPullPolicy::default()
        },
        ..ImageTagSpec::default()
    }
}

fn if_not_present(mut tag: ImageTagSpec) -> ImageTagSpec {
    tag.image_pull_policy = Some("IfNotPresent".into());
    tag
}

fn spec(tags: &[ImageTagSpec]) -> NodeImageSpec {
    let image = ImageSpec {
        tags: tags.to_vec(),
        ..ImageSpec::default()
    };
    NodeImageSpec {
        images: [("app".to_owned(), image)].into(),
        ..NodeImageSpec::default()
    }
}

fn key(tag: &str) -> Key {
    Key {
        name: "app".into(),
        tag: tag.into(),
    }
}

fn image_of(tag: &str) -> ImageRef {
    ImageRef::from_parts("app", tag).unwrap()
}

fn board(max: usize, tags: &[ImageTagSpec]) -> Board {
    let mut board = Board::new(max);
    board.orders(entries(&spec(tags)), None, at(0));
    board
}

fn pulled(id: &str) -> Ended {
    Ended::Pulled(Image {
        id: id.into(),
        digest: Some(format!("sha256:{id}")),
        bytes: None,
    })
}

fn failed(reason: Reason) -> Ended {
    Ended::Failed {
        reason,
        words: "no".into(),
        retry_after: None,
    }
}

/// The pulls among the steps: number and tag.
fn pulls(steps: &[Step]) -> Vec<(u64, String)> {
    let pulls = steps.iter().filter_map(|step| match step {
        Step::Pull { run, key, .. } => Some((*run, key.tag.clone())),
        _ => None,
    });
    pulls.collect()
}

fn shown(board: &Board, tag: &str) -> ImageTagStatus {
    let status = board.show().status;
    status.image_statuses["app"]
        .tags
        .iter()
        .find(|status| status.tag == tag)
        .unwrap()
        .clone()
}

fn phase(board: &Board, tag: &str) -> Phase {
    shown(board, tag).phase()
}

#[test]
fn an_image_is_pulled_and_answered() {
    let mut board = board(3, &[tag("1")]);
    let steps = board.decide(at(0), &wall());
    assert_eq!(
        steps,
        [Step::Pull {
            run: 1,
            key: key("1"),
            attempt: 1,
            limit: at(10)
        }]
    );
    assert!(board.decide(at(0), &wall()).is_empty(), "a step is given out once");
    assert_eq!(phase(&board, "1"), Phase::Pulling);
    board.progress(1, 50, 200);
    assert_eq!(shown(&board, "1").progress, Some(25));
    board.ended(1, pulled("id"), at(5), &wall());
    let status = shown(&board, "1");
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_eq!(
        (status.attempts, status.progress, status.bytes_done),
        (Some(1), Some(100), Some(200))
    );
    assert_eq!(status.image_id.as_deref(), Some("app@id"));
    assert_eq!(status.digest.as_deref(), Some("sha256:id"));
    assert!(status.completion_time.is_some() && status.last_succeeded.is_some());
    assert!(board.decide(at(100), &wall()).is_empty());
    assert_eq!(board.wake_at(), None);
}

#[test]
fn an_image_that_is_there_is_answered_by_looking_even_when_all_slots_are_taken() {
    let mut board = board(1, &[tag("busy"), if_not_present(tag("there"))]);
    let steps = board.decide(at(0), &wall());
    assert_eq!(
        steps[0],
        Step::Look {
            run: 1,
            key: key("there")
        }
    );
    assert_eq!(pulls(&steps).len(), 1);
    board.looked(1, Found::Present(Image::default()), at(0), &wall());
    let status = shown(&board, "there");
    assert_eq!((status.phase(), status.attempts), (Phase::Succeeded, Some(0)));
    assert_eq!(status.start_time, None);
}

#[test]
fn an_image_that_is_missing_is_pulled_after_the_look() {
    let mut board = board(1, &[if_not_present(tag("1"))]);
    board.decide(at(0), &wall());
    board.looked(1, Found::Absent, at(0), &wall());
    assert_eq!(pulls(&board.decide(at(0), &wall())), [(2, "1".to_owned())]);
}

#[test]
fn a_look_without_answer_is_asked_again_before_anything_is_pulled() {
    let mut board = board(1, &[if_not_present(tag("1"))]);
    board.decide(at(0), &wall());
    board.looked(1, Found::Unknown(Reason::RuntimeDown, "away".into()), at(0), &wall());
    let status = shown(&board, "1");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Waiting, Some(Reason::RuntimeDown))
    );
    assert!(board.decide(at(0), &wall()).is_empty());
    board.wake(at(0), Reason::RuntimeDown);
    assert_eq!(board.decide(at(0), &wall()), [Step::Look { run: 2, key: key("1") }]);
}

#[test]
fn before_another_try_it_looks_whether_somebody_else_pulled_the_image() {
    let mut board = board(1, &[if_not_present(tag("1"))]);
    board.decide(at(0), &wall());
    board.looked(1, Found::Absent, at(0), &wall());
    board.decide(at(0), &wall());
    board.ended(2, failed(Reason::Unreachable), at(0), &wall());
    assert_eq!(board.decide(at(1), &wall()), [Step::Look { run: 3, key: key("1") }]);
    board.looked(3, Found::Present(Image::default()), at(1), &wall());
    assert_eq!(phase(&board, "1"), Phase::Succeeded);
}

#[test]
fn tries_end_with_the_limit_and_pauses_stand_between_them_only() {
    let mut board = board(3, &[tag("1")]);
    let mut now = at(0);
    let mut starts = Vec::new();
    for run in 1..=3 {
        assert_eq!(pulls(&board.decide(now, &wall())).len(), 1);
        starts.push(now);
        board.ended(run, failed(Reason::Unreachable), now, &wall());
        now = board.wake_at().unwrap_or(now);
    }
    assert_eq!(starts, [at(0), at(1), at(3)]);
    assert_eq!(now, at(3), "no pause after the last try");
    let status = shown(&board, "1");
    assert_eq!((status.phase(), status.attempts), (Phase::Failed, Some(3)));
    assert_eq!(status.reason(), Some(Reason::Unreachable));
    assert!(
        status
            .message
            .unwrap()
            .starts_with("Failed to pull image reference \"app:1\": no. ")
    );
}

/// Saving takes its time: a pause, or a deadline, that ended meanwhile once was slept through for a minute.
#[test]
fn a_pause_that_ends_between_decision_and_sleep_is_not_slept_through() {
    let mut late = tag("2");
    late.pull_policy.active_deadline_seconds = Some(4);
    let mut board = board(1, &[tag("1"), late]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::Unreachable), at(2), &wall());
    board.decide(at(2), &wall());
    assert_eq!(board.wake_at(), Some(at(3)), "whatever the clock shows by now");
    board.decide(at(3), &wall());
    assert_eq!(board.wake_at(), Some(at(4)), "the deadline of the other one");
    board.decide(at(5), &wall());
    assert_eq!(board.wake_at(), None, "nothing that is settled is named again");
}

#[test]
fn between_two_tries_it_still_counts_as_pulling_and_says_why() {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::Dns), at(0), &wall());
    let status = shown(&board, "1");
    assert_eq!((status.phase(), status.reason()), (Phase::Pulling, Some(Reason::Dns)));
}

#[rstest]
#[case::denied(Reason::AuthDenied)]
#[case::not_there(Reason::NotFound)]
#[case::check(Reason::CheckFailed)]
fn a_permanent_reason_ends_the_entry_at_once(#[case] reason: Reason) {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, failed(reason), at(0), &wall());
    assert_eq!(phase(&board, "1"), Phase::Failed);
    assert!(board.decide(at(1000), &wall()).is_empty());
}

#[test]
fn waiting_for_the_world_uses_up_no_try() {
    let mut board = board(3, &[tag("1")]);
    let mut now = at(0);
    for run in 1..=20 {
        assert_eq!(pulls(&board.decide(now, &wall())).len(), 1, "run {run}");
        board.ended(run, failed(Reason::RuntimeDown), now, &wall());
        assert_eq!(phase(&board, "1"), Phase::Waiting);
        now = board.wake_at().unwrap();
    }
    assert_eq!(board.track(&key("1")).unwrap().attempts, 0);
    board.wake(at(10_000), Reason::RuntimeDown);
    assert_eq!(
        pulls(&board.decide(at(10_000), &wall())).len(),
        1,
        "the runtime is back"
    );
}

#[test]
fn an_edit_wakes_who_waits_for_credentials() {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::SecretMissing), at(0), &wall());
    assert!(pulls(&board.decide(at(0), &wall())).is_empty());
    let mut sealed = tag("1");
    sealed.credentials = vec!["a".into()];
    board.orders(entries(&spec(&[sealed])), None, at(0));
    assert_eq!(pulls(&board.decide(at(0), &wall())).len(), 1);
}

#[rstest]
#[case::longer_than_our_own_pause(Some(90), 90)]
#[case::shorter_than_our_own_pause(Some(0), 1)]
#[case::not_said(None, 1)]
#[case::a_day_is_too_much_to_ask(Some(86_400), 3600)]
fn a_registry_that_asks_to_be_left_alone_is(#[case] asked: Option<u64>, #[case] waits: u64) {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    let limited = Ended::Failed {
        reason: Reason::RateLimited,
        words: "slowly".into(),
        retry_after: asked.map(at),
    };
    board.ended(1, limited, at(0), &wall());
    assert_eq!(board.wake_at(), Some(at(waits)));
    assert!(pulls(&board.decide(at(waits - 1), &wall())).is_empty());
    assert_eq!(pulls(&board.decide(at(waits), &wall())).len(), 1);
}

#[test]
fn a_pull_that_nobody_watched_tells_its_size_at_the_end() {
    let mut board = board(1, &[tag("1")]);
    board.decide(at(0), &wall());
    let image = Image {
        bytes: Some(300),
        ..Image::default()
    };
    board.ended(1, Ended::Pulled(image), at(0), &wall());
    let status = shown(&board, "1");
    assert_eq!((status.bytes_done, status.bytes_total), (Some(300), Some(300)));
}

#[test]
fn one_try_ends_with_its_timeout_and_the_next_follows() {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, Ended::TimedOut, at(10), &wall());
    let status = shown(&board, "1");
    assert_eq!(status.reason(), Some(Reason::Timeout));
    assert_eq!(pulls(&board.decide(at(11), &wall())).len(), 1);
}

#[test]
fn the_deadline_counts_from_first_sight_and_cuts_the_last_try() {
    let mut limited = tag("1");
    limited.pull_policy.active_deadline_seconds = Some(14);
    let mut board = board(3, &[limited]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::Unreachable), at(9), &wall());
    let steps = board.decide(at(10), &wall());
    assert!(
        matches!(steps[..], [Step::Pull { run: 2, limit, .. }] if limit == at(4)),
        "{steps:?}"
    );
    assert_eq!(board.wake_at(), Some(at(14)));
    let steps = board.decide(at(14), &wall());
    assert_eq!(steps, [Step::Cancel { run: 2 }]);
    let status = shown(&board, "1");
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
    let mut board = board(1, &[tag("1"), limited]);
    board.decide(at(0), &wall());
    assert_eq!(board.wake_at(), Some(at(5)));
    board.decide(at(5), &wall());
    assert_eq!(shown(&board, "2").reason(), Some(Reason::DeadlineExceeded));
    assert_eq!(phase(&board, "1"), Phase::Pulling);
}

#[test]
fn an_entry_that_leaves_is_given_up_and_its_slot_goes_on_when_it_ended() {
    let mut board = board(1, &[tag("1"), tag("2")]);
    board.decide(at(0), &wall());
    board.orders(entries(&spec(&[tag("2")])), None, at(1));
    assert_eq!(board.decide(at(1), &wall()), [Step::Cancel { run: 1 }]);
    assert!(board.decide(at(1), &wall()).is_empty());
    board.ended(1, Ended::Canceled, at(1), &wall());
    assert_eq!(pulls(&board.decide(at(1), &wall())), [(2, "2".to_owned())]);
    assert_eq!(board.show().status.desired, 1);
}

#[test]
fn a_new_version_starts_over_and_keeps_the_last_success() {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, pulled("old"), at(1), &wall());
    let mut again = tag("1");
    again.version = 1;
    board.orders(entries(&spec(&[again])), None, at(2));
    assert_eq!(pulls(&board.decide(at(2), &wall())).len(), 1);
    board.ended(2, failed(Reason::NotFound), at(3), &wall());
    let status = shown(&board, "1");
    assert_eq!((status.phase(), status.version), (Phase::Failed, Some(1)));
    let kept = status.last_succeeded.unwrap();
    assert_eq!((kept.version, kept.digest.as_deref()), (0, Some("sha256:old")));
}

/// A second job wants the image while it is being pulled for the first.
#[test]
fn a_running_pull_answers_a_new_version_that_only_wants_the_image_to_be_there() {
    let mut board = board(2, &[if_not_present(tag("1"))]);
    let steps = board.decide(at(0), &wall());
    assert!(matches!(steps[..], [Step::Look { run: 1, .. }]), "{steps:?}");
    board.looked(1, Found::Absent, at(0), &wall());
    assert_eq!(pulls(&board.decide(at(0), &wall())), [(2, "1".to_owned())]);
    board.progress(2, 40, 100);
    let mut again = if_not_present(tag("1"));
    again.version = 1;
    board.orders(entries(&spec(&[again])), None, at(1));
    assert_eq!(
        board.decide(at(1), &wall()),
        [],
        "the pull is neither given up nor begun again"
    );
    let status = shown(&board, "1");
    assert_eq!(
        (status.phase(), status.version, status.bytes_done),
        (Phase::Pulling, Some(1), Some(40))
    );
    board.ended(2, pulled("new"), at(2), &wall());
    let status = shown(&board, "1");
    assert_eq!(
        (status.phase(), status.version, status.attempts),
        (Phase::Succeeded, Some(1), Some(1))
    );
}

#[test]
fn a_running_pull_is_given_up_for_other_credentials() {
    let mut board = board(2, &[if_not_present(tag("1"))]);
    board.decide(at(0), &wall());
    board.looked(1, Found::Absent, at(0), &wall());
    board.decide(at(0), &wall());
    let mut again = if_not_present(tag("1"));
    again.version = 1;
    again.credentials = vec!["new".into()];
    board.orders(entries(&spec(&[again])), None, at(1));
    assert_eq!(board.decide(at(1), &wall())[0], Step::Cancel { run: 2 });
}

#[test]
fn a_new_version_that_wants_a_fresh_pull_gives_up_the_running_one() {
    let mut board = board(2, &[tag("1")]);
    board.decide(at(0), &wall());
    let mut again = tag("1");
    again.version = 1;
    board.orders(entries(&spec(&[again])), None, at(1));
    let steps = board.decide(at(1), &wall());
    assert_eq!(steps[0], Step::Cancel { run: 1 });
    board.ended(1, pulled("late"), at(1), &wall());
    assert_eq!(
        phase(&board, "1"),
        Phase::Pulling,
        "an answer to the old version does not count"
    );
}

#[test]
fn who_waited_longest_goes_first() {
    let mut board = Board::new(1);
    board.orders(entries(&spec(&[tag("z")])), None, at(0));
    board.decide(at(0), &wall());
    board.orders(entries(&spec(&[tag("z"), tag("m")])), None, at(1));
    board.orders(entries(&spec(&[tag("z"), tag("m"), tag("a")])), None, at(2));
    let mut order = Vec::new();
    for run in 1..=3 {
        board.ended(run, pulled("x"), at(2 + run), &wall());
        order.extend(
            pulls(&board.decide(at(2 + run), &wall()))
                .into_iter()
                .map(|(_, tag)| tag),
        );
    }
    assert_eq!(order, ["m", "a"]);
}

#[test]
fn a_try_after_a_pause_goes_behind_those_who_came_meanwhile() {
    let mut board = Board::new(1);
    board.orders(entries(&spec(&[tag("bad")])), None, at(0));
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::Dns), at(10), &wall());
    board.orders(entries(&spec(&[tag("bad"), tag("new")])), None, at(10));
    assert_eq!(pulls(&board.decide(at(10), &wall())), [(2, "new".to_owned())]);
    assert!(pulls(&board.decide(at(20), &wall())).is_empty());
}

#[test]
fn a_name_that_is_none_fails_alone() {
    let mut board = board(3, &[tag("no tag"), tag("1")]);
    assert_eq!(pulls(&board.decide(at(0), &wall())), [(1, "1".to_owned())]);
    assert_eq!(shown(&board, "no tag").reason(), Some(Reason::InvalidReference));
}

#[test]
fn a_short_pull_is_not_worth_a_write_before_its_end() {
    let mut board = board(1, &[tag("1"), tag("2")]);
    board.decide(at(5), &wall());
    let shown = board.show();
    assert_eq!(shown.due[&key("1")], at(6), "pulling: a second later");
    assert_eq!(shown.due[&key("2")], at(0), "waiting: at once");
    board.ended(1, pulled("x"), at(5), &wall());
    assert_eq!(board.show().due[&key("1")], at(5), "the result: at once");
}

#[test]
fn a_dry_run_pulls_nothing_and_claims_no_success() {
    let mut dry = tag("1");
    dry.dry_run = true;
    let mut board = board(1, &[tag("busy"), dry]);
    let steps = board.decide(at(0), &wall());
    assert!(matches!(&steps[0], Step::DryRun { run: 1, .. }), "{steps:?}");
    let verdict = Ok("fits".to_owned());
    board.ended(
        1,
        Ended::Report {
            verdict,
            bytes: Some((10, 30)),
            digest: None,
        },
        at(0),
        &wall(),
    );
    let status = shown(&board, "1");
    assert_eq!((status.phase(), status.last_succeeded), (Phase::Succeeded, None));
    assert_eq!(
        (status.bytes_done, status.bytes_total, status.attempts),
        (Some(10), Some(30), Some(0))
    );
    assert_eq!(status.message.as_deref(), Some("fits"));
}

#[test]
fn a_dry_run_that_lacks_credentials_waits_for_them() {
    let mut dry = tag("1");
    dry.dry_run = true;
    let mut board = board(1, &[dry.clone()]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::SecretMissing), at(0), &wall());
    let status = shown(&board, "1");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Waiting, Some(Reason::SecretMissing))
    );
    dry.credentials = vec!["a".into()];
    board.orders(entries(&spec(&[dry])), None, at(0));
    let steps = board.decide(at(0), &wall());
    assert!(matches!(&steps[..], [Step::DryRun { .. }]), "{steps:?}");
}

#[test]
fn a_status_that_is_too_large_loses_words_before_results() {
    let mut board = board(3, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, failed(Reason::NotFound), at(0), &wall());
    let mut status = board.show().status;
    fit(&mut status, 10_000);
    assert_eq!(status, board.show().status);
    fit(&mut status, 10);
    let tag = &status.image_statuses["app"].tags[0];
    assert_eq!(
        (tag.message.as_ref(), tag.phase(), tag.reason()),
        (None, Phase::Failed, Some(Reason::NotFound))
    );
}
