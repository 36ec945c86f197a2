use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn window(days: &[&str], from: &str, to: &str, zone: Option<&str>) -> Window {
    Window {
        days: days.iter().map(ToString::to_string).collect(),
        from: from.to_owned(),
        to: to.to_owned(),
        time_zone: zone.map(str::to_owned),
    }
}

fn windows(all: &[Window]) -> Windows {
    Windows::parse(all, None).unwrap()
}

/// When windows open if they are closed, and close if they are open.
fn next_change(windows: &Windows, now: Timestamp) -> Option<Timestamp> {
    let fleet = Windows::default();
    let hours = OpenHours {
        job: windows,
        fleet: &fleet,
    };
    hours.next_change(now)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[rstest]
#[case::before("2026-11-16T21:59:59Z", false)]
#[case::opens("2026-11-16T22:00:00Z", true)]
#[case::next_morning("2026-11-17T05:59:59Z", true)]
#[case::closes("2026-11-17T06:00:00Z", false)]
#[case::sunday_night_belongs_to_sunday("2026-11-16T01:00:00Z", false)]
#[case::friday_night_goes_into_saturday("2026-11-21T01:00:00Z", true)]
#[case::saturday_night("2026-11-21T23:00:00Z", false)]
fn a_night_of_a_working_day(#[case] now: &str, #[case] open: bool) {
    let nights = windows(&[window(&["Mon", "Tue", "Wed", "Thu", "Fri"], "22:00", "06:00", None)]);
    assert_eq!(nights.are_open(at(now)), open);
}

#[rstest]
#[case::opens_the_same_day("2026-11-16T12:00:00Z", Some("2026-11-16T21:00:00Z"))]
#[case::closes_in_the_morning("2026-11-16T21:00:00Z", Some("2026-11-17T05:00:00Z"))]
#[case::opens_after_the_week_end("2026-11-21T12:00:00Z", Some("2026-11-23T21:00:00Z"))]
#[case::one_hour_later_in_summer("2026-07-06T12:00:00Z", Some("2026-07-06T20:00:00Z"))]
fn the_next_change(#[case] now: &str, #[case] want: Option<&str>) {
    let nights = windows(&[window(
        &["Mon", "Tue", "Wed", "Thu", "Fri"],
        "22:00",
        "06:00",
        Some("Europe/Berlin"),
    )]);
    assert_eq!(next_change(&nights, at(now)), want.map(at));
}

/// On 29 March 2026 the clocks of Berlin go from 2:00 to 3:00, at 1:00 UTC; on 25 October from 3:00 to 2:00, at the same time.
#[rstest]
#[case::begins_in_the_skipped_hour("02:30", "04:00", "2026-03-29T00:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"])]
#[case::ends_in_the_skipped_hour("01:00", "02:30", "2026-03-28T23:30:00Z", &["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"])]
#[case::is_skipped("02:10", "02:50", "2026-03-29T00:00:00Z", &["2026-03-30T00:10:00Z", "2026-03-30T00:50:00Z"])]
#[case::comes_twice("02:10", "02:50", "2026-10-25T00:00:00Z", &["2026-10-25T00:10:00Z", "2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:50:00Z"])]
#[case::ends_in_the_hour_that_comes_twice("01:00", "02:30", "2026-10-24T22:30:00Z", &["2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"])]
fn clocks_that_are_changed(#[case] from: &str, #[case] to: &str, #[case] now: &str, #[case] changes: &[&str]) {
    let windows = windows(&[window(&[], from, to, Some("Europe/Berlin"))]);
    let mut now = at(now);
    assert!(!windows.are_open(now));
    for change in changes {
        now = next_change(&windows, now).unwrap();
        assert_eq!(now, at(change));
    }
}

#[test]
fn without_windows_everything_is_open_for_ever() {
    let none = Windows::default();
    let now = at("2026-11-16T12:00:00Z");
    assert!(none.are_open(now) && !none.stop_work(now));
    assert_eq!((next_change(&none, now), none.local_time(now)), (None, None));
}

#[test]
fn a_window_of_whole_days_never_closes() {
    let always = windows(&[window(&[], "00:00", "00:00", Some("Asia/Shanghai"))]);
    let now = at("2026-11-16T12:00:00Z");
    assert!(always.are_open(now));
    assert_eq!(next_change(&always, now), None);
}

#[test]
fn windows_that_meet_are_one() {
    let both = windows(&[window(&[], "22:00", "00:00", None), window(&[], "00:00", "02:00", None)]);
    assert_eq!(
        next_change(&both, at("2026-11-16T22:00:00Z")),
        Some(at("2026-11-17T02:00:00Z"))
    );
}

#[test]
fn work_is_stopped_only_where_the_job_says_so() {
    let night = [window(&[], "22:00", "06:00", None)];
    let (day, midnight) = (at("2026-11-16T12:00:00Z"), at("2026-11-17T00:00:00Z"));
    assert!(!windows(&night).stop_work(day));
    let stops = Windows::parse(&night, Some(WindowEnd::Stop)).unwrap();
    assert!(stops.stop_work(day) && !stops.stop_work(midnight));
}

#[rstest]
#[case::zone(window(&[], "22:00", "06:00", Some("Europe/Atlantis")), "Europe/Atlantis")]
#[case::time(window(&[], "22:00", "24:00", None), "24:00")]
#[case::day(window(&["Someday"], "22:00", "06:00", None), "Someday")]
fn what_cannot_be_read_is_named(#[case] window: Window, #[case] names: &str) {
    let error = Windows::parse(&[window], None).unwrap_err().to_string();
    assert!(error.contains(names), "{error}");
}

fn any_window() -> impl Strategy<Value = Window> {
    const ZONES: [&str; 6] = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "Pacific/Apia",
        "UTC",
    ];
    let time = || (0..24_u8, 0..60_u8).prop_map(|(hour, minute)| format!("{hour:02}:{minute:02}"));
    let days = proptest::sample::subsequence(DAYS.to_vec(), 0..=7);
    (days, time(), time(), proptest::sample::select(ZONES.to_vec()))
        .prop_map(|(days, from, to, zone)| window(&days, &from, &to, Some(zone)))
}

proptest! {
    /// Between now and the next change nothing changes, and at the change it does.
    #[test]
    fn nothing_changes_before_the_next_change(
        all in proptest::collection::vec(any_window(), 1..3),
        second in 1_700_000_000_i64..1_900_000_000,
        share in 0.0..1.0_f64,
    ) {
        let windows = windows(&all);
        let now = Timestamp::from_second(second).unwrap();
        let open = windows.are_open(now);
        let change = next_change(&windows, now);
        let until = change.unwrap_or_else(|| later(now, SignedDuration::from_hours(24 * 8)));
        let between = later(now, (until.duration_since(now)).mul_f64(share));
        if between < until {
            prop_assert_eq!(windows.are_open(between), open);
        }
        if let Some(change) = change {
            prop_assert!(now < change);
            prop_assert_ne!(windows.are_open(change), open);
        }
    }

    /// No moment is inside unless the clocks of the zone say so.
    #[test]
    fn a_moment_is_inside_by_the_clocks_of_the_zone(one in any_window(), second in 1_700_000_000_i64..1_900_000_000) {
        let now = Timestamp::from_second(second).unwrap();
        let zoned = now.in_tz(one.time_zone.as_deref().unwrap()).unwrap();
        let shown = zoned.strftime("%H:%M").to_string();
        let among = |date: Date| one.days.is_empty() || one.days.contains(&date.strftime("%a").to_string());
        let (today, yesterday) = (zoned.date(), zoned.date().yesterday().unwrap());
        let after_from = among(today) && one.from <= shown;
        let inside = if one.from < one.to {
            after_from && shown < one.to
        } else {
            after_from || among(yesterday) && shown < one.to
        };
        prop_assert_eq!(windows(&[one]).are_open(now), inside);
    }
}
