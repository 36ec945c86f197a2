//! From the first look to the last try of one image.

use super::*;

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
    board.progress(1, 50, 200, at(1));
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
fn a_name_that_is_none_fails_alone() {
    let mut board = board(3, &[tag("no tag"), tag("1")]);
    assert_eq!(pulls(&board.decide(at(0), &wall())), [(1, "1".to_owned())]);
    assert_eq!(shown(&board, "no tag").reason(), Some(Reason::InvalidReference));
}
