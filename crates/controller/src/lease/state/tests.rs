use rstest::rstest;

use super::*;

const ME: &str = "me";
const SECOND: Duration = Duration::from_secs(1);

fn start() -> (Election, Instant) {
    let now = Instant::now();
    (Election::new(ME.into(), Timing::default(), now), now)
}

fn held_by(holder: Option<&str>, version: &str) -> Observed {
    Observed::Present(record(holder, version))
}

fn record(holder: Option<&str>, version: &str) -> Record {
    Record {
        holder: holder.map(str::to_owned),
        duration: Duration::from_secs(15),
        transitions: 3,
        version: version.into(),
    }
}

/// A candidate that has just become leader with a write sent at the returned moment.
fn leader() -> (Election, Instant) {
    let (mut election, now) = start();
    election.saw(now, Observed::Absent);
    election.wrote(now, now, record(Some(ME), "1"));
    (election, now)
}

#[rstest]
#[case::there_is_none(Observed::Absent, None, 0)]
#[case::it_was_given_back(held_by(None, "7"), Some("7"), 4)]
#[case::it_was_given_back_as_text(held_by(Some(""), "7"), Some("7"), 4)]
#[case::it_is_mine_already(held_by(Some(ME), "7"), Some("7"), 3)]
fn a_free_lease_is_taken_at_once(#[case] lease: Observed, #[case] base: Option<&str>, #[case] transitions: i32) {
    let (mut election, now) = start();
    assert_eq!(election.next(now), LeaseStep::Look);
    election.saw(now, lease);
    let LeaseStep::Acquire(swap) = election.next(now) else {
        panic!("not taken");
    };
    assert_eq!((swap.base.as_deref(), swap.transitions), (base, transitions));
    assert_eq!(swap.holder.as_deref(), Some(ME));
}

#[test]
fn another_ones_lease_is_taken_when_it_did_not_change_for_its_duration() {
    let (mut election, now) = start();
    election.saw(now, held_by(Some("other"), "1"));
    assert_eq!(election.next(now), LeaseStep::Wait(now + 2 * SECOND));
    election.saw(now + 14 * SECOND, held_by(Some("other"), "1"));
    assert_eq!(election.next(now + 14 * SECOND), LeaseStep::Wait(now + 15 * SECOND));
    assert!(matches!(election.next(now + 15 * SECOND), LeaseStep::Acquire(_)));
}

#[test]
fn every_change_starts_the_count_anew() {
    let (mut election, now) = start();
    for second in 0..100 {
        let at = now + second * SECOND;
        election.saw(at, held_by(Some("other"), &second.to_string()));
        assert!(!matches!(election.next(at), LeaseStep::Acquire(_)));
    }
}

#[test]
fn a_longer_duration_in_the_lease_is_respected() {
    let (mut election, now) = start();
    let longer = Record {
        duration: Duration::from_secs(40),
        ..record(Some("other"), "1")
    };
    election.saw(now, Observed::Present(longer.clone()));
    election.saw(now + 39 * SECOND, Observed::Present(longer));
    assert_eq!(election.next(now + 39 * SECOND), LeaseStep::Wait(now + 40 * SECOND));
}

#[rstest]
#[case::another_one(Some("other"))]
#[case::me_as_far_as_i_know(Some(ME))]
#[case::nobody_as_far_as_i_know(None)]
fn who_creates_a_deleted_lease_anew_leads_when_every_earlier_holder_has_stopped(#[case] holder: Option<&str>) {
    let (mut election, now) = start();
    election.saw(now, held_by(holder, "1"));
    election.saw(now + SECOND, Observed::Absent);
    let LeaseStep::Acquire(swap) = election.next(now + SECOND) else {
        panic!("not created");
    };
    assert_eq!(swap.base, None);
    election.wrote(now + SECOND, now + 2 * SECOND, record(Some(ME), "2"));
    let mut at = now + 2 * SECOND;
    for _ in 0..10 {
        match election.next(at) {
            LeaseStep::Wait(until) => at = until,
            LeaseStep::Renew(_) => election.wrote(at, at, record(Some(ME), "3")),
            step => panic!("{step:?}"),
        }
        let leads = now + 17 * SECOND <= at;
        assert_eq!(election.leadership(at).term().is_some(), leads, "after {:?}", at - now);
    }
}

#[test]
fn a_creation_of_unknown_outcome_counts_as_one() {
    let (mut election, now) = start();
    election.saw(now, Observed::Absent);
    assert!(matches!(election.next(now), LeaseStep::Acquire(_)));
    election.failed(now + 5 * SECOND);
    election.saw(now + 60 * SECOND, held_by(Some(ME), "9"));
    assert!(matches!(election.next(now + 60 * SECOND), LeaseStep::Acquire(_)));
    election.wrote(now + 60 * SECOND, now + 60 * SECOND, record(Some(ME), "10"));
    assert_eq!(election.leadership(now + 60 * SECOND), Leadership::Follower);
}

#[test]
fn a_leader_writes_for_eight_seconds_after_it_sent_its_renewal() {
    let (mut election, now) = leader();
    let until = now + 8 * SECOND;
    let leadership = election.leadership(now + 7 * SECOND);
    assert_eq!(
        leadership,
        Leadership::Leader {
            term: 1,
            may_write_until: until
        }
    );
    assert!(leadership.may_write(until - Duration::from_millis(1)));
    assert!(!leadership.may_write(until));

    assert_eq!(election.next(now), LeaseStep::Wait(now + 5 * SECOND));
    let LeaseStep::Renew(swap) = election.next(now + 5 * SECOND) else {
        panic!("not renewed");
    };
    assert_eq!((swap.base.as_deref(), swap.changes_hands), (Some("1"), false));
    election.wrote(now + 5 * SECOND, now + 9 * SECOND, record(Some(ME), "2"));
    let until = now + 13 * SECOND;
    assert_eq!(
        election.leadership(now + 9 * SECOND),
        Leadership::Leader {
            term: 1,
            may_write_until: until
        }
    );
}

#[test]
fn an_unknown_outcome_is_looked_up_before_the_next_renewal() {
    let (mut election, now) = leader();
    election.failed(now + 6 * SECOND);
    assert_eq!(election.next(now + 6 * SECOND), LeaseStep::Wait(now + 7 * SECOND));
    assert_eq!(election.next(now + 7 * SECOND), LeaseStep::Look);
    election.saw(now + 7 * SECOND, held_by(Some(ME), "2"));
    let LeaseStep::Renew(swap) = election.next(now + 7 * SECOND) else {
        panic!("not renewed");
    };
    assert_eq!(swap.base.as_deref(), Some("2"));
}

#[rstest]
#[case::another_one_took_it(held_by(Some("other"), "9"))]
#[case::somebody_gave_it_away(held_by(None, "9"))]
#[case::somebody_deleted_it(Observed::Absent)]
fn leadership_ends_when_the_lease_is_no_longer_mine(#[case] lease: Observed) {
    let (mut election, now) = leader();
    election.refused(now + 5 * SECOND);
    assert_eq!(election.next(now + 5 * SECOND), LeaseStep::Look);
    election.saw(now + 5 * SECOND, lease);
    assert_eq!(election.leadership(now + 5 * SECOND), Leadership::Follower);
}

#[test]
fn leadership_ends_when_no_renewal_came_through() {
    let (mut election, now) = leader();
    election.failed(now + 10 * SECOND);
    assert_eq!(election.leadership(now + 15 * SECOND), Leadership::Follower);
    election.next(now + 15 * SECOND);
    election.saw(now + 16 * SECOND, held_by(Some(ME), "1"));
    let LeaseStep::Acquire(swap) = election.next(now + 16 * SECOND) else {
        panic!("not taken again");
    };
    election.wrote(
        now + 16 * SECOND,
        now + 16 * SECOND,
        record(swap.holder.as_deref(), "2"),
    );
    assert_eq!(election.leadership(now + 16 * SECOND).term(), Some(2), "a new term");
}

#[test]
fn only_a_leader_has_something_to_give_back() {
    let (mut election, now) = leader();
    let swap = election.release().unwrap();
    assert_eq!((swap.base.as_deref(), swap.holder), (Some("1"), None));
    assert_eq!(election.leadership(now), Leadership::Follower);
    assert_eq!(election.release(), None);
}
