//! When a job that never ends looks at a node again: once a day, each node at its own moment of the day, so that a fleet
//! spreads evenly; and an hour after a failure.

use jiff::{SignedDuration, Timestamp};

use crate::campaign::later;
use crate::jitter;

const DAY: i64 = 86_400;

/// A node that has just been served is left alone at least this long; its first day lasts 12 to 36 hours, every further
/// one 24.
const REST: SignedDuration = SignedDuration::from_hours(12);

/// After a failure.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_hours(1);

/// When a node that was served at `served` is looked at again.
pub fn after_success(job_uid: &str, node: &str, served: Timestamp) -> Timestamp {
    let phase = jitter::spread(&[job_uid, node], DAY.unsigned_abs()).cast_signed();
    let earliest = later(served, REST).as_second();
    let today = earliest - (earliest - phase).rem_euclid(DAY);
    let moment = if today < earliest { today + DAY } else { today };
    Timestamp::from_second(moment).unwrap_or(Timestamp::MAX)
}

/// When a node that failed at `failed` is tried again.
pub fn after_failure(failed: Timestamp) -> Timestamp {
    later(failed, AFTER_FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{at, node};
    use proptest::prelude::*;

    #[test]
    fn a_fleet_that_was_served_at_once_is_refreshed_evenly_over_the_day() {
        let mut hours = [0u32; 24];
        for number in 0..4_800 {
            let due = after_success("uid", &node(number), at(0));
            let hour = (due.as_second() - at(0).as_second() - 12 * 3_600) / 3_600;
            hours[usize::try_from(hour).unwrap()] += 1;
        }
        assert!(hours.iter().all(|nodes| (140..260).contains(nodes)), "{hours:?}");
    }

    #[test]
    fn two_jobs_refresh_one_node_at_different_times() {
        assert_ne!(after_success("a", "node-1", at(0)), after_success("b", "node-1", at(0)));
    }

    proptest! {
        #[test]
        fn every_further_day_has_24_hours(served in 0i64..10_000_000, uid in "[a-f]{4}") {
            let first = after_success(&uid, "node-1", at(served));
            let waited = first.as_second() - at(served).as_second();
            prop_assert!((12 * 3_600..=36 * 3_600).contains(&waited), "{waited}");
            // The second look is written a little after it was due.
            let second = after_success(&uid, "node-1", first + SignedDuration::from_secs(40));
            prop_assert_eq!(second.as_second() - first.as_second(), DAY);
        }
    }
}
