//! Windows and refresh schedules in a run: what is drawn, and whether a moment is inside. The latter is counted here by itself, so
//! that a mistake in the planner's count is found; the time zones are such that have had one offset for decades.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::random::Random;

const DAY: u64 = 24 * 60;

/// Windows repeat after this many minutes, all day: whatever a clock shows, one opens soon.
pub(crate) const PERIOD: u64 = 90;

/// Minutes of each period in which windows are open, at least. They are closed for longer than the faults last, and no longer
/// than need be, so that a run is short.
const OPEN_AT_LEAST: u64 = 75;

/// At most.
const OPEN_AT_MOST: u64 = 83;

/// A run begins at 8:00 UTC.
const BEGIN: u64 = 8 * 60;

/// Time zones, and how many minutes after midnight it is there when it is midnight in UTC.
const ZONES: [(&str, u64); 3] = [("UTC", 0), ("Asia/Kolkata", 330), ("America/Phoenix", DAY - 420)];

/// Windows of which one opens or closes while the run is disturbed.
pub(crate) fn draw(random: &mut Random) -> Value {
    let (zone, ahead) = ZONES[random.index(ZONES.len())];
    let change = BEGIN + random.between(0..=5);
    let open = random.between(OPEN_AT_LEAST..=OPEN_AT_MOST);
    let first = if random.coin() { change } else { change + PERIOD - open };
    let time = |minute: u64| {
        let minute = (minute + ahead) % DAY;
        format!("{:02}:{:02}", minute / 60, minute % 60)
    };
    let window = |number: u64| {
        let from = first + number * PERIOD;
        json!({"from": time(from), "to": time(from + open), "timeZone": zone})
    };
    (0..DAY / PERIOD).map(window).collect()
}

/// A schedule with one or two times an hour, the first of them soon.
pub(crate) fn schedule(random: &mut Random) -> String {
    let (soon, later) = (random.between(0..=8), random.between(20..=50));
    let hours = if random.coin() { "*" } else { "*/2" };
    if random.coin() {
        format!("{soon} {hours} * * *")
    } else {
        format!("{soon},{later} {hours} * * *")
    }
}

/// Whether there are no windows, so that everything is inside.
pub(crate) fn is_empty(windows: &Value) -> bool {
    windows.as_array().is_none_or(Vec::is_empty)
}

/// Whether a moment is inside one of these windows.
pub(crate) fn are_open(windows: &Value, time: Timestamp) -> bool {
    if is_empty(windows) {
        return true;
    }
    let minute = time
        .as_second()
        .div_euclid(60)
        .rem_euclid(DAY.cast_signed())
        .unsigned_abs();
    windows.as_array().into_iter().flatten().any(|window| {
        let zone = ZONES.iter().find(|(zone, _)| window["timeZone"] == *zone);
        let local = zone.map(|(_, ahead)| (minute + ahead) % DAY);
        let (from, to) = (minute_of(&window["from"]), minute_of(&window["to"]));
        // Counted from the time when it opens, no window goes over midnight.
        let since = |minute: u64| (minute + DAY - from) % DAY;
        local.is_some_and(|local| since(local) < since(to))
    })
}

fn minute_of(time: &Value) -> u64 {
    let (hours, minutes) = time.as_str().and_then(|time| time.split_once(':')).unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    number(hours) * 60 + number(minutes)
}
