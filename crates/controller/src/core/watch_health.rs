//! Whether a watch works: the rule behind `/readyz`, without a clock of its own.
//!
//! A watch that failed works again when it shows something. One that has nothing to show works again when it has not failed
//! for longer than it pauses between its tries, and the API server has answered since: otherwise a quiet kind would stay
//! unready for ever after an outage.

use std::time::Duration;

use tokio::time::Instant;

use super::history::Comparison;

/// The API server's history is compared with what a watch has seen this often …
const COMPARE: Duration = Duration::from_secs(10);

/// … and this often after the watch has failed, until there is an answer.
const COMPARE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A watch that fails is tried again within this time, the longest pause of the default backoff and a generous margin.
const LONGEST_BACKOFF: Duration = Duration::from_secs(45);

/// What is known of one watch.
#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    /// When it failed last, while it is taken to fail.
    failed_at: Option<Instant>,
    /// It has failed, and no comparison was answered since.
    doubtful: bool,
}

impl WatchHealth {
    /// The watch failed. True if it worked before.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.doubtful = true;
        self.failed_at.replace(now).is_none()
    }

    /// The watch showed something. True if it works again.
    pub(super) fn showed(&mut self) -> bool {
        self.failed_at.take().is_some()
    }

    /// The histories were compared. True if the watch works again, although it has nothing to show.
    pub(super) fn compared(&mut self, comparison: Comparison, now: Instant) -> bool {
        if comparison == Comparison::Same {
            self.doubtful = false;
        }
        let is_over = |failed_at: &mut Instant| LONGEST_BACKOFF < now.duration_since(*failed_at);
        !self.doubtful && self.failed_at.take_if(is_over).is_some()
    }

    /// The time until the next comparison.
    pub(super) fn compare_in(&self) -> Duration {
        if self.doubtful { COMPARE_AFTER_FAILURE } else { COMPARE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    enum Happens {
        Failure,
        Shown,
        Compared(Comparison),
    }
    use Comparison::{Same, Unanswered};
    use Happens::{Compared, Failure, Shown};

    /// What happens to a watch, in seconds, and what is reported then: that it fails, that it works, or nothing.
    #[rstest]
    #[case::works(vec![(0, Shown, None), (10, Compared(Same), None)])]
    #[case::fails_once(vec![(0, Failure, Some(true)), (1, Failure, None)])]
    #[case::shows_something(vec![(0, Failure, Some(true)), (3, Shown, Some(false)), (4, Shown, None)])]
    #[case::quiet_after_an_outage(vec![
        (0, Failure, Some(true)),
        (30, Failure, None),
        (31, Compared(Same), None),
        (71, Compared(Same), None),
        (76, Compared(Same), Some(false)),
        (86, Compared(Same), None),
    ])]
    #[case::goes_on_failing(vec![
        (0, Failure, Some(true)),
        (40, Failure, None),
        (80, Failure, None),
        (81, Compared(Same), None),
    ])]
    #[case::no_answer(vec![
        (0, Failure, Some(true)),
        (100, Compared(Unanswered), None),
        (1000, Compared(Unanswered), None),
        (1001, Compared(Same), Some(false)),
    ])]
    #[case::answered_once(vec![
        (0, Failure, Some(true)),
        (1, Compared(Same), None),
        (46, Compared(Unanswered), Some(false)),
    ])]
    #[case::fails_again(vec![
        (0, Failure, Some(true)),
        (46, Compared(Same), Some(false)),
        (50, Failure, Some(true)),
    ])]
    fn a_watch(#[case] story: Vec<(u64, Happens, Option<bool>)>) {
        let begin = Instant::now();
        let mut health = WatchHealth::default();
        for (seconds, event, want) in story {
            let now = begin + Duration::from_secs(seconds);
            let reported = match event {
                Failure => health.failed(now).then_some(true),
                Shown => health.showed().then_some(false),
                Compared(comparison) => health.compared(comparison, now).then_some(false),
            };
            assert_eq!(reported, want, "after {seconds} s");
        }
    }

    #[test]
    fn after_a_failure_histories_are_compared_soon_until_there_is_an_answer() {
        let now = Instant::now();
        let mut health = WatchHealth::default();
        assert_eq!(health.compare_in(), COMPARE);
        health.failed(now);
        health.showed();
        health.compared(Unanswered, now);
        assert_eq!(health.compare_in(), COMPARE_AFTER_FAILURE);
        health.compared(Same, now);
        assert_eq!(health.compare_in(), COMPARE);
    }
}
