//! From the first look to the last try of one image.

use super::*;

#[test]
fn an_image_is_pulled_and_answered() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    let steps = scheduler.decide(at(0), &wall());
    assert_eq!(
        steps,
        [NodeStep::Pull {
            run: 1,
            key: key("1"),
            attempt: 1,
            limit: at(10)
        }]
    );
    assert!(scheduler.decide(at(0), &wall()).is_empty(), "a step is given out once");
    assert_eq!(phase(&scheduler, "1"), Phase::Pulling);
    scheduler.progress(1, 50, 200, at(1));
    assert_eq!(shown(&scheduler, "1").progress, Some(25));
    scheduler.ended(1, pulled("id"), at(5), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_eq!(
        (status.attempts, status.progress, status.bytes_done),
        (Some(1), Some(100), Some(200))
    );
    assert_eq!(status.image_id.as_deref(), Some("app@id"));
    assert_eq!(status.digest.as_deref(), Some("sha256:id"));
    assert!(status.completion_time.is_some() && status.last_succeeded.is_some());
    assert!(scheduler.decide(at(100), &wall()).is_empty());
    assert_eq!(scheduler.wake_at(), None);
}

#[test]
fn a_pull_says_what_it_waits_for_and_in_the_end_where_the_image_came_from() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::Unreachable), at(1), &wall());
    scheduler.decide(at(2), &wall());
    let failure = shown(&scheduler, "1").message.unwrap();
    scheduler.registry_asks(2, Some(at(40)), at(3));
    assert_eq!(
        shown(&scheduler, "1").message.as_deref(),
        Some("The registry asked to retry after 40 s; the pull goes on then.")
    );
    let due = scheduler.status().due[&key("1")];
    scheduler.registry_asks(2, Some(at(40)), at(5));
    assert_eq!(scheduler.status().due[&key("1")], due, "it is said once");
    scheduler.registry_asks(2, None, at(43));
    assert_eq!(shown(&scheduler, "1").message, Some(failure), "the wait is over");
    let image = Image {
        bytes: Some(4 << 20),
        fetched: Some(3 << 20),
        hosts: ["mirror.example".to_owned()].into(),
        ..Image::default()
    };
    scheduler.ended(2, Ended::Pulled(image), at(50), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.reason(), status.message.as_deref()),
        (
            None,
            Some("3.0 MiB came from mirror.example; 1.0 MiB were on the node already.")
        )
    );
}

#[test]
fn an_image_that_is_there_is_answered_by_looking_even_when_all_slots_are_taken() {
    let mut scheduler = scheduler(1, &[tag("busy"), if_not_present(tag("there"))]);
    let steps = scheduler.decide(at(0), &wall());
    assert_eq!(
        steps[0],
        NodeStep::Look {
            run: 1,
            key: key("there")
        }
    );
    assert_eq!(pulls(&steps).len(), 1);
    scheduler.looked(1, Found::Present(Image::default()), at(0), &wall());
    let status = shown(&scheduler, "there");
    assert_eq!((status.phase(), status.attempts), (Phase::Succeeded, Some(0)));
    assert_eq!(status.start_time, None);
}

#[test]
fn an_image_that_is_missing_is_pulled_after_the_look() {
    let mut scheduler = scheduler(1, &[if_not_present(tag("1"))]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Absent, at(0), &wall());
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(2, "1".to_owned())]);
}

#[test]
fn a_look_without_answer_is_asked_again_before_anything_is_pulled() {
    let mut scheduler = scheduler(1, &[if_not_present(tag("1"))]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Unknown(Reason::RuntimeDown, "away".into()), at(0), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Waiting, Some(Reason::RuntimeDown))
    );
    assert!(scheduler.decide(at(0), &wall()).is_empty());
    scheduler.wake(at(0), Reason::RuntimeDown);
    assert_eq!(
        scheduler.decide(at(0), &wall()),
        [NodeStep::Look { run: 2, key: key("1") }]
    );
}

#[test]
fn before_another_try_it_looks_whether_the_image_came_in_another_way() {
    let mut scheduler = scheduler(1, &[if_not_present(tag("1"))]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Absent, at(0), &wall());
    scheduler.decide(at(0), &wall());
    scheduler.ended(2, failed(Reason::Unreachable), at(0), &wall());
    assert_eq!(
        scheduler.decide(at(1), &wall()),
        [NodeStep::Look { run: 3, key: key("1") }]
    );
    scheduler.looked(3, Found::Present(Image::default()), at(1), &wall());
    assert_eq!(phase(&scheduler, "1"), Phase::Succeeded);
}

#[test]
fn tries_end_with_the_limit_and_pauses_stand_between_them_only() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    let mut now = at(0);
    let mut starts = Vec::new();
    for run in 1..=3 {
        assert_eq!(pulls(&scheduler.decide(now, &wall())).len(), 1);
        starts.push(now);
        scheduler.ended(run, failed(Reason::Unreachable), now, &wall());
        now = scheduler.wake_at().unwrap_or(now);
    }
    assert_eq!(starts, [at(0), at(1), at(3)]);
    assert_eq!(now, at(3), "no pause after the last try");
    let status = shown(&scheduler, "1");
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
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::Dns), at(0), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!((status.phase(), status.reason()), (Phase::Pulling, Some(Reason::Dns)));
}

#[rstest]
#[case::denied(Reason::AuthDenied)]
#[case::not_there(Reason::NotFound)]
#[case::check(Reason::CheckFailed)]
fn a_permanent_reason_ends_the_entry_at_once(#[case] reason: Reason) {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(reason), at(0), &wall());
    assert_eq!(phase(&scheduler, "1"), Phase::Failed);
    assert!(scheduler.decide(at(1000), &wall()).is_empty());
}

#[test]
fn waiting_for_the_world_uses_up_no_try() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    let mut now = at(0);
    for run in 1..=20 {
        assert_eq!(pulls(&scheduler.decide(now, &wall())).len(), 1, "run {run}");
        scheduler.ended(run, failed(Reason::RuntimeDown), now, &wall());
        assert_eq!(phase(&scheduler, "1"), Phase::Waiting);
        now = scheduler.wake_at().unwrap();
    }
    assert_eq!(scheduler.state(&key("1")).unwrap().attempts, 0);
    scheduler.wake(at(10_000), Reason::RuntimeDown);
    assert_eq!(
        pulls(&scheduler.decide(at(10_000), &wall())).len(),
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
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    let limited = Ended::Failed {
        reason: Reason::RateLimited,
        words: "slowly".into(),
        retry_after: asked.map(at),
    };
    scheduler.ended(1, limited, at(0), &wall());
    assert_eq!(scheduler.wake_at(), Some(at(waits)));
    assert!(pulls(&scheduler.decide(at(waits - 1), &wall())).is_empty());
    assert_eq!(pulls(&scheduler.decide(at(waits), &wall())).len(), 1);
}

#[test]
fn a_pull_without_a_look_reports_its_size_at_the_end() {
    let mut scheduler = scheduler(1, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    let image = Image {
        bytes: Some(300),
        ..Image::default()
    };
    scheduler.ended(1, Ended::Pulled(image), at(0), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!((status.bytes_done, status.bytes_total), (Some(300), Some(300)));
}

#[test]
fn a_name_that_is_none_fails_alone() {
    let mut scheduler = scheduler(3, &[tag("no tag"), tag("1")]);
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(1, "1".to_owned())]);
    assert_eq!(shown(&scheduler, "no tag").reason(), Some(Reason::InvalidReference));
}
