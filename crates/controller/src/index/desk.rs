//! The writes of one job's own object: at most one under way, not more often than its size allows, again after a failure.

use jiff::{SignedDuration, Timestamp};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use serde_json::Value;

use super::JobKey;

/// Status of a small job is at most this old.
const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Status of any job is written at least this often: it is never older than five seconds, the write included.
const LONGEST_INTERVAL: SignedDuration = SignedDuration::from_secs(4);

/// From this many nodes on status is written as rarely as it may be.
const LARGE: usize = 5_000;

/// After a failure the next try comes after this long, then after twice as long, …
const FIRST_PAUSE: SignedDuration = SignedDuration::from_millis(500);

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Job(JobKey),
    PrePull(JobKey),
    List(JobKey),
}

/// What to do with a job's object.
#[derive(Clone, Debug)]
pub(crate) enum ObjectAction {
    /// A merge patch of the status.
    Status(Value),
    /// A JSON patch of the object.
    Patch(Value),
    /// Delete it, with all that belongs to it.
    Delete { uid: String },
    /// Create a child of a list.
    CreateChild(Box<ImagePullJob>),
    /// Delete a child of a list.
    DeleteChild { child: JobKey, uid: String },
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum ObjectAnswer {
    Job(Box<ImagePullJob>),
    PrePull(Box<ImagePrePullJob>),
    List(Box<ImageListPullJob>),
    /// A child of a list is deleted.
    ChildGone(JobKey),
    /// There is none.
    Absent,
    /// Refused, or nobody knows; tried again.
    Failed(String),
}

/// The writes of one object.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) under_way: bool,
    /// Nothing is written before this moment.
    pub(super) not_before: Timestamp,
    failures: u32,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            under_way: false,
            not_before: Timestamp::MIN,
            failures: 0,
        }
    }
}

impl Desk {
    /// Whether a write may start now.
    pub(super) fn is_free(&self, now: Timestamp) -> bool {
        !self.under_way && self.not_before <= now
    }

    /// A write of an object about so many nodes went well.
    pub(super) fn succeeded(&mut self, nodes: usize, now: Timestamp) {
        self.under_way = false;
        self.failures = 0;
        self.not_before = now.checked_add(interval(nodes)).unwrap_or(now);
    }

    /// A write did not go well. True if that is news.
    pub(super) fn failed(&mut self, now: Timestamp) -> bool {
        self.under_way = false;
        self.failures += 1;
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(5));
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

    #[test]
    fn failures_make_it_wait_longer_and_are_news_once() {
        let mut desk = Desk::default();
        let start = Timestamp::UNIX_EPOCH;
        assert!(desk.is_free(start));
        assert!(desk.failed(start));
        let first = desk.not_before;
        assert!(!desk.is_free(start));
        assert!(!desk.failed(start));
        assert!(first < desk.not_before);
        desk.succeeded(1, start);
        assert!(desk.failed(start));
    }
}
