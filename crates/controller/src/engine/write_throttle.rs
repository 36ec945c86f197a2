//! How often one job's own object is written: at most one write in flight, not more often than its size allows, again
//! after a failure.

use jiff::{SignedDuration, Timestamp};

/// Status of a small job is at most this old.
const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Status of any job is written at least this often: it is never older than five seconds, the write included.
const LONGEST_INTERVAL: SignedDuration = SignedDuration::from_secs(4);

/// A status in which nothing but the estimated time changed is written this much later than another one.
const ETA_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// From this many nodes on status is written as rarely as it may be.
const LARGE: usize = 5_000;

/// After a failure the next try comes after this long, then after twice as long, …
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The writes of one object.
#[derive(Debug)]
pub(crate) struct WriteThrottle {
    pub(crate) in_flight: bool,
    /// Nothing is written before this moment.
    pub(crate) not_before: Timestamp,
    failures: u32,
}

impl Default for WriteThrottle {
    fn default() -> Self {
        Self {
            in_flight: false,
            not_before: Timestamp::MIN,
            failures: 0,
        }
    }
}

impl WriteThrottle {
    /// Forgets the pauses. A write that is in flight still is: a second one could be overtaken by it.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            in_flight: self.in_flight,
            ..Self::default()
        };
    }

    /// Whether a write may start now.
    pub(crate) fn is_free(&self, now: Timestamp) -> bool {
        !self.in_flight && self.not_before <= now
    }

    /// Whether the last write failed and the next try is not due yet.
    pub(crate) fn backs_off(&self, now: Timestamp) -> bool {
        self.has_failed() && now < self.not_before
    }

    /// Whether the last write failed.
    pub(crate) fn has_failed(&self) -> bool {
        0 < self.failures
    }

    /// Whether a change of the status is worth a write. While a node pulls and nothing else happens, the estimated time alone
    /// changes every second: such a change is written only if the last write is old.
    pub(crate) fn is_worth_writing(&self, eta_alone: bool, now: Timestamp) -> bool {
        let eta_due = self.not_before.checked_add(ETA_INTERVAL);
        !eta_alone || eta_due.is_ok_and(|moment| moment <= now)
    }

    /// A write of an object about so many nodes went well.
    pub(crate) fn succeeded(&mut self, nodes: usize, now: Timestamp) {
        self.in_flight = false;
        self.failures = 0;
        self.not_before = now.checked_add(interval(nodes)).unwrap_or(now);
    }

    /// A write did not go well. True if that is news.
    pub(crate) fn failed(&mut self, now: Timestamp) -> bool {
        self.in_flight = false;
        self.failures += 1;
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.failures - 1).min(5));
        self.not_before = now.checked_add(pause).unwrap_or(now);
        self.failures == 1
    }
}

fn interval(nodes: usize) -> SignedDuration {
    let spread = LONGEST_INTERVAL - SHORTEST_INTERVAL;
    let thousandths = i32::try_from(nodes.min(LARGE) * 1_000 / LARGE).unwrap_or(1_000);
    SHORTEST_INTERVAL + spread.saturating_mul(thousandths) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::tiny(5, 1_003)]
    #[case::middle(2_500, 2_500)]
    #[case::large(5_000, 4_000)]
    #[case::larger(20_000, 4_000)]
    fn the_larger_the_rarer(#[case] nodes: usize, #[case] milliseconds: i64) {
        assert_eq!(interval(nodes), SignedDuration::from_millis(milliseconds));
    }

    #[rstest]
    #[case::something_else_changed(false, 1, true)]
    #[case::the_estimate_alone(true, 1, false)]
    #[case::the_estimate_alone_after_a_while(true, 12, true)]
    fn an_estimate_alone_is_written_rarely(#[case] eta_alone: bool, #[case] seconds: i64, #[case] want: bool) {
        let mut throttle = WriteThrottle::default();
        throttle.succeeded(1, Timestamp::UNIX_EPOCH);
        let now = Timestamp::from_second(seconds).unwrap();
        assert_eq!(throttle.is_worth_writing(eta_alone, now), want);
    }

    #[test]
    fn failures_make_it_wait_longer_and_are_news_once() {
        let mut throttle = WriteThrottle::default();
        let start = Timestamp::UNIX_EPOCH;
        assert!(throttle.is_free(start));
        assert!(throttle.failed(start));
        let first = throttle.not_before;
        assert!(!throttle.is_free(start));
        assert!(!throttle.failed(start));
        assert!(first < throttle.not_before);
        throttle.succeeded(1, start);
        assert!(throttle.failed(start));
    }
}
