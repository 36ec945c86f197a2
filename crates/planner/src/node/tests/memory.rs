//! Other lives of the agent: what the API and the ledger remember.

use larder_api::node_image::{ImageStatus, LastSucceeded, NodeImageStatus};

use super::*;

#[test]
fn what_the_api_remembers_counts_where_the_ledger_knows_nothing() {
    let last = LastSucceeded {
        version: 3,
        ..LastSucceeded::default()
    };
    let answer = |version: i64, phase: Phase| ImageTagStatus {
        tag: "1".into(),
        version: Some(version),
        phase: phase.as_str().into(),
        last_succeeded: Some(last.clone()),
        ..ImageTagStatus::default()
    };
    let said = |answer: ImageTagStatus| NodeImageStatus {
        image_statuses: [("app".to_owned(), ImageStatus { tags: vec![answer] })].into(),
        ..NodeImageStatus::default()
    };
    let mut third = tag("1");
    third.version = 3;
    for (answer, pulls_expected) in [
        (answer(3, Phase::Succeeded), 0),
        (answer(3, Phase::Failed), 0),
        (answer(3, Phase::Pulling), 1),
        (answer(2, Phase::Succeeded), 1),
    ] {
        let mut scheduler = NodeScheduler::new(1);
        scheduler.take_orders(entries(&spec(std::slice::from_ref(&third))), Some(&said(answer)), at(0));
        assert_eq!(pulls(&scheduler.decide(at(0), &wall())).len(), pulls_expected);
        assert_eq!(shown(&scheduler, "1").last_succeeded, Some(last.clone()));
    }
}

#[rstest]
#[case::same_boot(true, 107, 13)]
#[case::another_boot(false, 3, 13)]
fn the_deadline_goes_on_after_a_restart(#[case] same_boot: bool, #[case] now: u64, #[case] left: u64) {
    let mut limited = tag("1");
    limited.pull_policy.active_deadline_seconds = Some(20);
    limited.pull_policy.timeout_seconds = 100;
    let mut first = NodeScheduler::new(1);
    first.take_orders(entries(&spec(std::slice::from_ref(&limited))), None, at(100));
    first.decide(at(100), &wall());
    let mut second = NodeScheduler::new(1);
    let resumed = first
        .states()
        .iter()
        .map(|(key, state)| (key.clone(), state.clone().resumed(at(107), same_boot, at(now))));
    second.resume(resumed.collect());
    second.take_orders(entries(&spec(&[limited])), None, at(now));
    let steps = second.decide(at(now), &wall());
    let [NodeStep::Pull { attempt, limit, .. }] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(
        (*attempt, *limit),
        (1, at(left)),
        "a try whose end was not seen does not count"
    );
}

#[test]
fn a_finished_image_is_not_pulled_again_after_a_restart() {
    let mut first = scheduler(1, &[tag("1")]);
    first.decide(at(0), &wall());
    first.ended(1, pulled("x"), at(1), &wall());
    let mut second = NodeScheduler::new(1);
    second.resume(
        first
            .states()
            .iter()
            .map(|(key, state)| (key.clone(), state.clone().resumed(at(1), true, at(2))))
            .collect(),
    );
    second.take_orders(entries(&spec(&[tag("1")])), None, at(2));
    assert!(second.decide(at(2), &wall()).is_empty());
    assert_eq!(shown(&second, "1"), shown(&first, "1"));
}

#[test]
fn what_the_runtime_finished_while_the_agent_was_dead_is_found() {
    let mut first = scheduler(1, &[if_not_present(tag("1"))]);
    first.decide(at(0), &wall());
    first.looked(1, Found::Absent, at(0), &wall());
    assert_eq!(pulls(&first.decide(at(0), &wall())).len(), 1);
    let mut second = NodeScheduler::new(1);
    let resumed = first
        .states()
        .iter()
        .map(|(key, state)| (key.clone(), state.clone().resumed(at(1), true, at(2))));
    second.resume(resumed.collect());
    second.take_orders(entries(&spec(&[if_not_present(tag("1"))])), None, at(2));
    assert!(matches!(second.decide(at(2), &wall())[..], [NodeStep::Look { .. }]));
}
