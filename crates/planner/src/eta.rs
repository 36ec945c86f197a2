//! How long it still takes, at the rate of the last minutes.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use crate::campaign::later;

/// The rate is taken over this long: long enough to smooth a wave of nodes, short enough to notice a slow registry.
const WINDOW: SignedDuration = SignedDuration::from_mins(2);

/// Between two samples: sixty of them, and a few, cover the window.
const SPACING: SignedDuration = SignedDuration::from_secs(2);

/// At most this many samples are kept.
const SAMPLES: usize = 64;

/// Amount of work done, sampled over the last minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct EtaEstimator {
    samples: VecDeque<(Timestamp, u64)>,
}

impl EtaEstimator {
    /// Takes note of how much is done.
    pub(crate) fn sample(&mut self, now: Timestamp, done: u64) {
        // Work that was taken back (an edit, a refresh) says nothing about the rate.
        if self.samples.back().is_some_and(|(_, before)| done < *before) {
            self.samples.clear();
        }
        // The newest sample always counts; of those before it, one in every other second is enough.
        if let [.., (before, _), (last, _)] = self.samples.make_contiguous()
            && *last < later(*before, SPACING)
        {
            self.samples.pop_back();
        }
        self.samples.push_back((now, done));
        while self.samples.len() > SAMPLES
            || self
                .samples
                .get(1)
                .is_some_and(|(second, _)| later(*second, WINDOW) <= now)
        {
            self.samples.pop_front();
        }
    }

    /// Seconds until `left` more is done. None if nothing moved lately.
    pub(crate) fn seconds_left(&self, left: u64) -> Option<i64> {
        let ((from, before), (until, after)) = (self.samples.front()?, self.samples.back()?);
        let elapsed = u128::try_from(until.duration_since(*from).as_millis()).ok()?;
        let done = u128::from(after.checked_sub(*before)?);
        if done == 0 || elapsed == 0 {
            return None;
        }
        let milliseconds = u128::from(left) * elapsed / done;
        i64::try_from(milliseconds.div_ceil(1_000)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::at;

    #[test]
    fn a_steady_rate_tells_the_end() {
        let mut eta = EtaEstimator::default();
        for second in 0..100 {
            eta.sample(at(second), u64::try_from(second).unwrap() * 10);
        }
        assert_eq!(eta.seconds_left(500), Some(50));
    }

    #[test]
    fn only_the_last_minutes_count() {
        let mut eta = EtaEstimator::default();
        for second in 0..1_000 {
            eta.sample(at(second), u64::try_from(second).unwrap() * 10);
        }
        for second in 1_000..1_200 {
            eta.sample(at(second), 10_000 + u64::try_from(second - 1_000).unwrap());
        }
        assert_eq!(eta.seconds_left(60), Some(60));
        assert!(eta.samples.len() <= SAMPLES + 1);
    }

    #[test]
    fn nobody_can_tell_while_nothing_moves() {
        let mut eta = EtaEstimator::default();
        assert_eq!(eta.seconds_left(1), None);
        eta.sample(at(0), 5);
        assert_eq!(eta.seconds_left(1), None);
        eta.sample(at(60), 5);
        assert_eq!(eta.seconds_left(1), None);
    }

    #[test]
    fn work_that_is_taken_back_starts_over() {
        let mut eta = EtaEstimator::default();
        eta.sample(at(0), 0);
        eta.sample(at(10), 100);
        eta.sample(at(20), 0);
        assert_eq!(eta.seconds_left(100), None);
        eta.sample(at(30), 10);
        assert_eq!(eta.seconds_left(100), Some(100));
    }
}
