//! Orders that change while something runs.

use super::*;

#[test]
fn an_edit_wakes_who_waits_for_credentials() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::SecretMissing), at(0), &wall());
    assert!(pulls(&scheduler.decide(at(0), &wall())).is_empty());
    let mut sealed = tag("1");
    sealed.credentials = vec!["a".into()];
    scheduler.take_orders(entries(&spec(&[sealed])), None, at(0));
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())).len(), 1);
}

#[test]
fn an_entry_that_leaves_is_given_up_and_its_slot_goes_on_when_it_ended() {
    let mut scheduler = scheduler(1, &[tag("1"), tag("2")]);
    scheduler.decide(at(0), &wall());
    scheduler.take_orders(entries(&spec(&[tag("2")])), None, at(1));
    assert_eq!(scheduler.decide(at(1), &wall()), [NodeStep::Cancel { run: 1 }]);
    assert!(scheduler.decide(at(1), &wall()).is_empty());
    scheduler.ended(1, Ended::Canceled, at(1), &wall());
    assert_eq!(pulls(&scheduler.decide(at(1), &wall())), [(2, "2".to_owned())]);
    assert_eq!(scheduler.status().status.desired, 1);
}

#[test]
fn a_new_version_starts_over_and_keeps_the_last_success() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, pulled("old"), at(1), &wall());
    let mut again = tag("1");
    again.version = 1;
    scheduler.take_orders(entries(&spec(&[again])), None, at(2));
    assert_eq!(pulls(&scheduler.decide(at(2), &wall())).len(), 1);
    scheduler.ended(2, failed(Reason::NotFound), at(3), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!((status.phase(), status.version), (Phase::Failed, Some(1)));
    let kept = status.last_succeeded.unwrap();
    assert_eq!((kept.version, kept.digest.as_deref()), (0, Some("sha256:old")));
}

/// A second job wants the image while it is being pulled for the first.
#[test]
fn a_running_pull_answers_a_new_version_that_only_wants_the_image_to_be_there() {
    let mut scheduler = scheduler(2, &[if_not_present(tag("1"))]);
    let steps = scheduler.decide(at(0), &wall());
    assert!(matches!(steps[..], [NodeStep::Look { run: 1, .. }]), "{steps:?}");
    scheduler.looked(1, Found::Absent, at(0), &wall());
    assert_eq!(pulls(&scheduler.decide(at(0), &wall())), [(2, "1".to_owned())]);
    scheduler.progress(2, 40, 100, at(0));
    let mut again = if_not_present(tag("1"));
    again.version = 1;
    scheduler.take_orders(entries(&spec(&[again])), None, at(1));
    assert_eq!(
        scheduler.decide(at(1), &wall()),
        [],
        "the pull is neither given up nor begun again"
    );
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.phase(), status.version, status.bytes_done),
        (Phase::Pulling, Some(1), Some(40))
    );
    scheduler.ended(2, pulled("new"), at(2), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.phase(), status.version, status.attempts),
        (Phase::Succeeded, Some(1), Some(1))
    );
}

#[test]
fn a_running_pull_is_given_up_for_other_credentials() {
    let mut scheduler = scheduler(2, &[if_not_present(tag("1"))]);
    scheduler.decide(at(0), &wall());
    scheduler.looked(1, Found::Absent, at(0), &wall());
    scheduler.decide(at(0), &wall());
    let mut again = if_not_present(tag("1"));
    again.version = 1;
    again.credentials = vec!["new".into()];
    scheduler.take_orders(entries(&spec(&[again])), None, at(1));
    assert_eq!(scheduler.decide(at(1), &wall())[0], NodeStep::Cancel { run: 2 });
}

#[test]
fn a_new_version_that_wants_a_fresh_pull_gives_up_the_running_one() {
    let mut scheduler = scheduler(2, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    let mut again = tag("1");
    again.version = 1;
    scheduler.take_orders(entries(&spec(&[again])), None, at(1));
    let steps = scheduler.decide(at(1), &wall());
    assert_eq!(steps[0], NodeStep::Cancel { run: 1 });
    scheduler.ended(1, pulled("late"), at(1), &wall());
    assert_eq!(
        phase(&scheduler, "1"),
        Phase::Pulling,
        "an answer to the old version does not count"
    );
}
