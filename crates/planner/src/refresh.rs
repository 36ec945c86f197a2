//! When a job that never ends looks at a node again: once a day, each node at its own moment of the day, so that a fleet
//! spreads evenly; or after each time of the job's schedule, each node within some minutes of it. An hour after a failure, if
//! that is sooner.

use jiff::{SignedDuration, Timestamp};

use crate::campaign::later;
use crate::jitter;
use crate::schedule::Schedule;

const DAY: i64 = 86_400;

/// A node that has just been served is left alone at least this long; its first day lasts 12 to 36 hours, every further
/// one 24.
const REST: SignedDuration = SignedDuration::from_hours(12);

/// The nodes of a job with a schedule begin within this many seconds of each of its times, or before the next one.
const SPREAD: i64 = 600;

/// After a failure.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_hours(1);

/// When a node that was served at `served` is looked at again.
pub fn after_success(schedule: Option<&Schedule>, job_uid: &str, node: &str, served: Timestamp) -> Timestamp {
    match schedule {
        Some(schedule) => scheduled(schedule, job_uid, node, served),
        None => daily(job_uid, node, served),
    }
}

fn daily(job_uid: &str, node: &str, served: Timestamp) -> Timestamp {
    let phase = jitter::spread(&[job_uid, node], DAY.unsigned_abs()).cast_signed();
    let earliest = later(served, REST).as_second();
    let today = earliest - (earliest - phase).rem_euclid(DAY);
    let moment = if today < earliest { today + DAY } else { today };
    Timestamp::from_second(moment).unwrap_or(Timestamp::MAX)
}

/// The next time of the schedule counts, wherever the node was among the others at the last one.
fn scheduled(schedule: &Schedule, job_uid: &str, node: &str, served: Timestamp) -> Timestamp {
    let Some(time) = schedule.next(served) else {
        return Timestamp::MAX;
    };
    let following = schedule.next(time);
    let room = following.map_or(SPREAD, |following| following.duration_since(time).as_secs().min(SPREAD));
    let wait = jitter::spread(&[job_uid, node], room.unsigned_abs()).cast_signed();
    later(time, SignedDuration::from_secs(wait))
}

/// When a node that failed at `failed` is tried again.
pub fn after_failure(schedule: Option<&Schedule>, job_uid: &str, node: &str, failed: Timestamp) -> Timestamp {
    let retry = later(failed, AFTER_FAILURE);
    schedule.map_or(retry, |schedule| retry.min(scheduled(schedule, job_uid, node, failed)))
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
            let due = after_success(None, "uid", &node(number), at(0));
            let hour = (due.as_second() - at(0).as_second() - 12 * 3_600) / 3_600;
            hours[usize::try_from(hour).unwrap()] += 1;
        }
        assert!(hours.iter().all(|nodes| (140..260).contains(nodes)), "{hours:?}");
    }

    #[test]
    fn two_jobs_refresh_one_node_at_different_times() {
        let due = |job| after_success(None, job, "node-1", at(0));
        assert_ne!(due("a"), due("b"));
    }

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text, None).unwrap()
    }

    /// The time of these tests begins at 8:00 UTC.
    #[test]
    fn a_fleet_begins_within_ten_minutes_of_each_scheduled_time() {
        let nightly = schedule("0 3 * * *");
        let mut minutes = [0u32; 10];
        for number in 0..2_000 {
            let due = after_success(Some(&nightly), "uid", &node(number), at(0));
            let minute = (due.as_second() - at(19 * 3_600).as_second()) / 60;
            minutes[usize::try_from(minute).unwrap()] += 1;
        }
        assert!(minutes.iter().all(|nodes| (140..260).contains(nodes)), "{minutes:?}");
    }

    #[test]
    fn a_node_that_failed_is_tried_again_after_an_hour_or_at_a_scheduled_time_before() {
        let due = |text| after_failure(Some(&schedule(text)), "uid", "node-1", at(0));
        assert_eq!(due("0 3 * * *"), at(3_600));
        assert!((at(1_800)..at(2_400)).contains(&due("30 * * * *")));
        assert_eq!(after_failure(None, "uid", "node-1", at(0)), at(3_600));
    }

    proptest! {
        /// Each time of the schedule is one refresh, also where nodes begin long after it.
        #[test]
        fn every_scheduled_time_refreshes_a_node_once(
            served in 0i64..10_000_000, uid in "[a-f]{4}",
            text in proptest::sample::select(vec!["* * * * *", "*/7 * * * *", "0 3 * * *", "30 1 * * Mon"]),
        ) {
            let schedule = schedule(text);
            let time = schedule.next(at(served)).unwrap();
            let first = after_success(Some(&schedule), &uid, "node-1", at(served));
            let following = schedule.next(time).unwrap();
            prop_assert!(time <= first && first < following, "{time} {first} {following}");
            let second = after_success(Some(&schedule), &uid, "node-1", first);
            prop_assert!(following <= second && second < schedule.next(following).unwrap());
        }

        #[test]
        fn every_further_day_has_24_hours(served in 0i64..10_000_000, uid in "[a-f]{4}") {
            let first = after_success(None, &uid, "node-1", at(served));
            let waited = first.as_second() - at(served).as_second();
            prop_assert!((12 * 3_600..=36 * 3_600).contains(&waited), "{waited}");
            // The second look is written a little after it was due.
            let second = after_success(None, &uid, "node-1", first + SignedDuration::from_secs(40));
            prop_assert_eq!(second.as_second() - first.as_second(), DAY);
        }
    }
}
