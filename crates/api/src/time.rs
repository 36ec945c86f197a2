//! Moments in objects, read leniently: the API server takes more texts for a `date-time` than fit into a timestamp, and one
//! such text must not make a whole object unreadable.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time as TimeOfDay};
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize as _, Deserializer};

/// Reads a moment that may be missing.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.as_deref().and_then(moment).map(Time))
}

/// The moment that a text means. One beyond the end of time is the end of time; where only the fraction or the offset makes
/// no sense, it is left out. None for a text that the API server takes for no time.
fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(moment) = text.parse() {
        return Some(moment);
    }
    let date: Date = text.get(..10)?.parse().ok()?;
    let time: TimeOfDay = text.get(11..19)?.parse().ok()?;
    let moment = DateTime::from_parts(date, time).to_zoned(TimeZone::UTC);
    Some(moment.map_or_else(|_| last(), |moment| moment.timestamp()))
}

/// The last moment there is, in whole seconds: what is read back must equal what was written.
fn last() -> Timestamp {
    Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImagePullJob, NodeImage};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::as_everybody_writes_it("2026-11-15T10:00:00Z", Some("2026-11-15T10:00:00Z"))]
    #[case::offset("2026-11-15T10:00:00+02:00", Some("2026-11-15T08:00:00Z"))]
    #[case::in_small_letters("2026-11-15t10:00:00z", Some("2026-11-15T10:00:00Z"))]
    #[case::end_of_time("9999-12-31T23:59:59Z", Some("9999-12-30T22:00:00Z"))]
    #[case::beyond_it_by_its_offset("9999-12-30T23:00:00-05:00", Some("9999-12-30T22:00:00Z"))]
    #[case::fraction_of_a_quintillionth("2026-11-15T10:00:00.000000000000000001Z", Some("2026-11-15T10:00:00Z"))]
    #[case::offset_of_four_days("2026-11-15T10:00:00+99:99", Some("2026-11-15T10:00:00Z"))]
    #[case::year_zero("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z"))]
    #[case::no_time("yesterday", None)]
    #[case::day_that_is_not("2026-02-30T10:00:00Z", None)]
    fn reads(#[case] text: &str, #[case] want: Option<&str>) {
        assert_eq!(moment(text).map(|moment| moment.to_string()).as_deref(), want);
    }

    #[test]
    fn no_date_makes_an_object_unreadable() {
        let far = "9999-12-31T23:59:59Z";
        let node = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a"},
            "spec": {"images": {"nginx": {"tags": [
                {"tag": "1", "createdAt": far, "pullPolicy": {"ttlSecondsAfterFinished": 1}},
            ]}}},
            "status": {
                "imageStatuses": {"nginx": {"tags": [{
                    "tag": "1", "startTime": far, "completionTime": far,
                    "lastSucceeded": {"version": 1, "completionTime": far},
                }]}},
                "firstSyncStatus": {"syncAt": far}, "agent": {"lastSeen": far},
            },
        });
        let node: NodeImage = serde_json::from_value(node).unwrap();
        let created = node.entry("nginx", "1").unwrap().created_at.clone();
        assert_eq!(created, Some(Time(last())));
        let again: NodeImage = serde_json::from_value(serde_json::to_value(&node).unwrap()).unwrap();
        assert_eq!(again, node);

        let job = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": "a"},
            "spec": {"image": "nginx"},
            "status": {"startTime": far, "completionTime": far, "conditions": [{"type": "Complete", "lastTransitionTime": far}]},
        });
        let job: ImagePullJob = serde_json::from_value(job).unwrap();
        assert!(
            job.status.unwrap().completion_time.is_some(),
            "a job that is over would run again"
        );
    }
}
