use rstest::rstest;

use super::*;

fn agent(instance: Option<&str>, key: Option<&str>) -> AgentStatus {
    AgentStatus {
        instance: instance.map(str::to_owned),
        public_key: key.map(str::to_owned),
        ..AgentStatus::default()
    }
}

fn detector() -> DuplicateDetector {
    DuplicateDetector::new(AgentIdentity {
        instance: Some("own_1".into()),
        public_key: Some("key".into()),
    })
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[rstest]
#[case::nothing_is_said_about_an_agent(None, None, false)]
#[case::own(Some("own_1"), Some("key"), false)]
#[case::own_without_its_key(Some("own_1"), None, false)]
#[case::another_machine(Some("other_2"), Some("another key"), true)]
#[case::a_copied_disk(Some("other_2"), Some("key"), true)]
#[case::before_instances_with_our_key(None, Some("key"), false)]
#[case::before_instances_with_another_key(None, Some("another key"), true)]
fn which_status_comes_from_another_agent(
    #[case] instance: Option<&str>,
    #[case] key: Option<&str>,
    #[case] conflict: bool,
) {
    let mut detector = detector();
    detector.written();
    assert_eq!(detector.observe(Some(&agent(instance, key)), at(100), 1.0), conflict);
    assert_eq!(detector.not_before(), if conflict { at(110) } else { at(0) });
    assert_eq!(detector.conflicts_with(at(100)).is_some(), conflict);
}

#[test]
fn a_process_that_has_not_written_takes_over_at_once() {
    let mut detector = detector();
    let dead = agent(Some("dead_9"), Some("lost key"));
    assert!(!detector.observe(Some(&dead), at(100), 1.0));
    assert_eq!((detector.not_before(), detector.conflicts_with(at(100))), (at(0), None));
}

#[test]
fn writes_of_the_other_agent_during_a_pause_do_not_lengthen_it() {
    let mut detector = detector();
    detector.written();
    let other = agent(Some("other_2"), None);
    for second in 100..109 {
        assert_eq!(detector.observe(Some(&other), at(second), 1.0), second == 100);
    }
    assert_eq!(detector.not_before(), at(110));
}

/// Seconds of the pauses after conflicts that follow each other at once.
fn pauses(count: usize) -> Vec<u64> {
    let mut detector = detector();
    let mut now = at(100);
    (0..count)
        .map(|_| {
            detector.written();
            assert!(detector.observe(Some(&agent(Some("other_2"), None)), now, 1.0));
            let pause = detector.not_before().saturating_sub(now);
            now = detector.not_before();
            pause.as_secs()
        })
        .collect()
}

#[test]
fn pauses_double_up_to_ten_minutes() {
    assert_eq!(pauses(9), [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

#[test]
fn the_pause_is_spread() {
    let mut detector = detector();
    detector.written();
    detector.observe(Some(&agent(Some("other_2"), None)), at(100), 1.2);
    assert_eq!(detector.not_before(), at(112));
}

#[test]
fn after_a_quiet_time_the_conflict_is_over_and_pauses_begin_anew() {
    let mut detector = detector();
    for _ in 0..5 {
        detector.written();
        detector.observe(Some(&agent(Some("other_2"), None)), at(100), 1.0);
    }
    detector.written();
    let last = at(100);
    assert_eq!(detector.conflicts_with(last), Some("other_2"));
    let paused = detector.not_before();
    assert_eq!(detector.changes_at(last), Some(paused));
    assert_eq!(detector.changes_at(paused), Some(last + QUIET_TIME));
    let over = last + QUIET_TIME;
    assert_eq!((detector.conflicts_with(over), detector.changes_at(over)), (None, None));
    assert!(detector.observe(Some(&agent(Some("third_3"), None)), over, 1.0));
    assert_eq!(detector.not_before(), over + PAUSE_MIN);
    assert_eq!(detector.conflicts_with(over), Some("third_3"));
}
