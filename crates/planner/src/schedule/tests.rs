use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;

use super::*;

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::parse(text, Some(zone)).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The next runs after a moment.
fn runs(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    let mut now = at(after);
    let mut next = || {
        now = schedule.next(now).unwrap();
        now.to_string()
    };
    (0..count).map(|_| next()).collect()
}

/// 16 November 2026 is a Monday.
#[rstest]
#[case::every_minute("* * * * *", &["2026-11-16T12:01:00Z", "2026-11-16T12:02:00Z"])]
#[case::every_night("30 3 * * *", &["2026-11-17T03:30:00Z", "2026-11-18T03:30:00Z"])]
#[case::steps("*/20 */6 * * *", &["2026-11-16T12:20:00Z", "2026-11-16T12:40:00Z", "2026-11-16T18:00:00Z"])]
#[case::step_from_a_number("50/5 12 * * *", &["2026-11-16T12:50:00Z", "2026-11-16T12:55:00Z", "2026-11-17T12:50:00Z"])]
#[case::step_in_a_range("10-30/10 4 * * *", &["2026-11-17T04:10:00Z", "2026-11-17T04:20:00Z", "2026-11-17T04:30:00Z", "2026-11-18T04:10:00Z"])]
#[case::lists("0 6,18 * * *", &["2026-11-16T18:00:00Z", "2026-11-17T06:00:00Z"])]
#[case::names("0 3 * jan-FEB mon", &["2027-01-04T03:00:00Z", "2027-01-11T03:00:00Z"])]
#[case::week_end("0 3 * * Sat-Sun", &["2026-11-21T03:00:00Z", "2026-11-22T03:00:00Z", "2026-11-28T03:00:00Z"])]
#[case::sunday_is_0("0 3 * * 0", &["2026-11-22T03:00:00Z", "2026-11-29T03:00:00Z"])]
#[case::sunday_is_7("0 3 * * 7", &["2026-11-22T03:00:00Z", "2026-11-29T03:00:00Z"])]
#[case::either_day("0 3 1 * Fri", &["2026-11-20T03:00:00Z", "2026-11-27T03:00:00Z", "2026-12-01T03:00:00Z", "2026-12-04T03:00:00Z"])]
#[case::last_day_of_long_months("0 0 31 * *", &["2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-03-31T00:00:00Z"])]
#[case::leap_day("0 0 29 2 *", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"])]
#[case::hourly("@hourly", &["2026-11-16T13:00:00Z"])]
#[case::daily("@daily", &["2026-11-17T00:00:00Z"])]
#[case::weekly("@weekly", &["2026-11-22T00:00:00Z"])]
#[case::monthly("@monthly", &["2026-12-01T00:00:00Z"])]
#[case::yearly("@yearly", &["2027-01-01T00:00:00Z"])]
fn next_runs(#[case] text: &str, #[case] want: &[&str]) {
    let schedule = Schedule::parse(text, None).unwrap();
    assert_eq!(runs(&schedule, "2026-11-16T12:00:00Z", want.len()), want);
}

#[test]
fn leap_days_may_be_eight_years_apart() {
    let leap_days = schedule("0 0 29 2 *", "UTC");
    assert_eq!(runs(&leap_days, "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
}

/// Berlin skips 2:00 to 3:00 on 29 March 2026 and shows it twice on 25 October, each at 1:00 UTC. Lord Howe's clocks are changed by
/// half an hour; Cairo's skip midnight; Apia skipped 30 December 2011.
#[rstest]
#[case::skipped("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"])]
#[case::skipped_times_are_one_run("0,30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"])]
#[case::skipped_with_the_next_hour("30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"])]
#[case::twice("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"])]
#[case::asked_while_it_is_shown_again("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", &["2026-10-26T01:30:00Z"])]
#[case::half_an_hour_is_skipped("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"])]
#[case::half_an_hour_comes_twice("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"])]
#[case::midnight_is_skipped("@daily", "Africa/Cairo", "2026-04-23T12:00:00Z", &["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"])]
#[case::a_day_is_skipped("0 3 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", &["2011-12-30T10:00:00Z", "2012-12-29T13:00:00Z"])]
#[case::every_hour_when_one_is_skipped("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"])]
#[case::every_hour_when_one_comes_twice("15 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", &["2026-10-25T00:15:00Z", "2026-10-25T01:15:00Z", "2026-10-25T02:15:00Z"])]
#[case::every_hour_of_a_day_that_begins_late("15 * * * Fri", "Africa/Cairo", "2026-04-23T12:00:00Z", &["2026-04-23T22:15:00Z", "2026-04-23T23:15:00Z"])]
fn clocks_that_are_changed(#[case] text: &str, #[case] zone: &str, #[case] after: &str, #[case] want: &[&str]) {
    assert_eq!(runs(&schedule(text, zone), after, want.len()), want);
}

#[rstest]
#[case::zone(
    "0 3 * * *",
    Some("Europe/Atlantis"),
    "refreshTimeZone: the time zone \"Europe/Atlantis\" is not known"
)]
#[case::four_fields("0 3 * *", None, "has 4 fields; write five")]
#[case::seconds("0 0 3 * * *", None, "has 6 fields; write five")]
#[case::zone_in_the_text("TZ=UTC 0 3 * * *", None, "the time zone in refreshTimeZone")]
#[case::nothing("", None, "has 0 fields")]
#[case::word("@sometimes", None, "\"@sometimes\" is not known")]
#[case::interval("@every 1h", None, "\"@every 1h\" is not known")]
#[case::minute("60 3 * * *", None, "minute: \"60\" is not a number from 0 to 59")]
#[case::hour("0 24 * * *", None, "hour: \"24\" is not a number from 0 to 23")]
#[case::day("0 3 0 * *", None, "day of the month: \"0\" is not a number from 1 to 31")]
#[case::month(
    "0 3 * 13 *",
    None,
    "month: \"13\" is not a number from 1 to 12 or a month such as Jan"
)]
#[case::weekday(
    "0 3 * * 8",
    None,
    "day of the week: \"8\" is not a number from 0 to 7 or a day such as Mon"
)]
#[case::long_name("0 3 * * Monday", None, "day of the week: \"Monday\"")]
#[case::name_of_another_field("Mon 3 * * *", None, "minute: \"Mon\"")]
#[case::sign("+5 3 * * *", None, "minute: \"+5\"")]
#[case::backwards("0 6-3 * * *", None, "hour: the range \"6-3\" ends before it begins")]
#[case::no_step("*/0 3 * * *", None, "minute: the step in \"*/0\" is not a number from 1 to 99")]
#[case::empty_step("*/ 3 * * *", None, "minute: the step in \"*/\"")]
#[case::empty_part("1,,2 3 * * *", None, "minute: \"\" is not a number")]
#[case::open_range("1- 3 * * *", None, "minute: \"\" is not a number")]
#[case::no_such_day("0 3 30 2 *", None, "\"0 3 30 2 *\" never runs")]
#[case::nor_in_short_months("0 3 31 4,6,9,11 *", None, "never runs")]
fn what_cannot_be_read_is_named(#[case] text: &str, #[case] zone: Option<&str>, #[case] names: &str) {
    let error = Schedule::parse(text, zone).unwrap_err().to_string();
    assert!(error.contains(names), "{error}");
}

const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "America/Santiago",
    "Pacific/Apia",
];

fn any_fields() -> impl Strategy<Value = [&'static str; 5]> {
    (
        select(vec!["*", "0", "30", "*/15", "59", "5,35"]),
        select(vec!["*", "0", "1", "2", "*/3", "1-3", "23"]),
        select(vec!["*", "1", "*/2", "29-31"]),
        select(vec!["*", "3,4,10,11", "2"]),
        select(vec!["*", "0", "Mon-Fri"]),
    )
        .prop_map(|(minute, hour, day, month, weekday)| [minute, hour, day, month, weekday])
}

/// Whether the clocks show a time of a schedule, by its fields as texts and the library's calendar.
fn is_shown(fields: [&str; 5], shown: DateTime) -> bool {
    let among = |field: Field, text: &str, number: i8| field.parse(text).unwrap() >> number & 1 == 1;
    let [minute, hour, day, month, weekday] = fields;
    let by_day = among(Field::DAY, day, shown.day());
    let by_weekday = among(Field::WEEKDAY, weekday, shown.weekday().to_sunday_zero_offset());
    let on_day = match (day, weekday) {
        ("*", _) | (_, "*") => by_day && by_weekday,
        _ => by_day || by_weekday,
    };
    among(Field::MINUTE, minute, shown.minute())
        && among(Field::HOUR, hour, shown.hour())
        && among(Field::MONTH, month, shown.month())
        && on_day
        && shown.second() == 0
}

proptest! {
    /// Minute by minute around a change of the clocks, the runs are where the clocks show a time of the schedule; a schedule of
    /// certain hours leaves out what is shown again, and runs where the clocks skip one of its times.
    #[test]
    fn runs_are_what_the_clocks_show(
        fields in any_fields(), zone in select(ZONES.to_vec()), day in 0_i64..4_000, before in 1_i64..300, length in 300_i64..600,
    ) {
        let schedule = schedule(&fields.join(" "), zone);
        let tz = TimeZone::get(zone).unwrap();
        // From 2019 on.
        let begin = Timestamp::from_second(1_546_300_800 + 86_400 * day).unwrap();
        let begin = tz.following(begin).next().map_or(begin, |change| change.timestamp());
        // A zone without changes may have an entry at any second.
        let begin = begin - SignedDuration::from_secs(begin.as_second().rem_euclid(60));
        let moment = |minute: i64| begin + SignedDuration::from_mins(minute - before);
        let every_hour = fields[1] == "*";
        let mut want = Vec::new();
        for minute in 1..=length {
            let (last, now) = (tz.to_datetime(moment(minute - 1)), tz.to_datetime(moment(minute)));
            let runs = if every_hour {
                is_shown(fields, now)
            } else {
                let next = last.checked_add(1.minute()).unwrap();
                let mut due = std::iter::successors(Some(next), |time| time.checked_add(1.minute()).ok())
                    .take_while(|time| *time <= now);
                let is_first = tz.to_ambiguous_timestamp(now).earlier().unwrap() == moment(minute);
                is_first && due.any(|time| is_shown(fields, time))
            };
            want.extend(runs.then(|| moment(minute)));
        }
        let mut found = Vec::new();
        let mut now = moment(0);
        while let Some(next) = schedule.next(now).filter(|next| *next <= moment(length)) {
            prop_assert!(now < next);
            found.push(next);
            now = next;
        }
        prop_assert_eq!(found, want);
    }

    /// Each time of a schedule of certain hours is one run, and each run is at one of them or where the clocks skip one.
    #[test]
    fn a_day_has_one_run_of_a_daily_schedule(
        hour in 0_i8..24, minute in 0_i8..60, zone in select(ZONES.to_vec()), day in 0_i64..4_000,
    ) {
        let daily = schedule(&format!("{minute} {hour} * * *"), zone);
        let date = Date::constant(2019, 1, 1).checked_add(day.days()).unwrap();
        let tz = TimeZone::get(zone).unwrap();
        let start = date.to_zoned(tz.clone()).unwrap().timestamp();
        let run = daily.next(start - SignedDuration::from_secs(1)).unwrap();
        let shown = tz.to_datetime(run);
        let time = date.at(hour, minute, 0, 0);
        let skipped = tz.to_ambiguous_timestamp(time).offset();
        if matches!(skipped, AmbiguousOffset::Gap { .. }) {
            prop_assert!(time < shown && tz.to_datetime(run - SignedDuration::from_secs(1)) < time);
        } else {
            prop_assert_eq!(shown, time);
        }
        let next = tz.to_datetime(daily.next(run).unwrap()).date();
        prop_assert_eq!(next, date.tomorrow().unwrap());
    }
}
