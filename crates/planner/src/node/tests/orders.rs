//! Orders that change while something runs.

use super::*;

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
    board.progress(2, 40, 100, at(0));
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
