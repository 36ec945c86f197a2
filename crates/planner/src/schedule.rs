//! When a job refreshes: the times of a cron schedule, by the clocks of a time zone.
//!
//! A schedule of certain hours runs once for each of its times: one that the clocks skip at the moment they are set forward, one
//! that they show twice at the first of the two. A schedule of every hour runs whenever the clocks show one of its minutes, so
//! that an hour that comes twice has its runs twice and one that is skipped has none.

mod fields;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};
use larder_api::window::DEFAULT_TIME_ZONE;
use thiserror::Error;

use self::fields::{Field, FieldError, days_of, named};

/// Leap days are at most eight years apart, and so are the runs of a schedule that has any.
const HORIZON_YEARS: i16 = 9;

/// Five cron fields and a time zone. Bit n of a field stands for its number n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// Days of the month and days of the week are both given: either is enough.
    either_day: bool,
    zone: TimeZone,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// `refreshTimeZone`.
    #[error(
        "refreshTimeZone: the time zone {0:?} is not known; give a name such as Europe/Berlin, or leave it out for UTC"
    )]
    Zone(String),
    /// Not five fields.
    #[error(
        "refreshSchedule {text:?} has {count} fields; write five (minute, hour, day of the month, month, day of the week) such \
         as \"0 3 * * *\", and the time zone in refreshTimeZone"
    )]
    Count {
        /// The schedule.
        text: String,
        /// How many it has.
        count: usize,
    },
    /// A word that stands for no schedule.
    #[error(
        "refreshSchedule: {0:?} is not known; write five fields such as \"0 3 * * *\", or @hourly, @daily, @weekly, @monthly or \
         @yearly"
    )]
    Word(String),
    /// One of its fields.
    #[error("refreshSchedule, {field}: {error}")]
    Field {
        /// Which.
        field: &'static str,
        /// Why.
        error: FieldError,
    },
    /// No year has such a day.
    #[error("refreshSchedule {0:?} never runs: none of its months has one of its days")]
    Never(String),
}

impl Schedule {
    /// Reads five fields, or a word such as `@daily`, and the name of a time zone.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, ScheduleError> {
        let zone = zone.unwrap_or(DEFAULT_TIME_ZONE);
        let zone = TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        let meant = match text.trim() {
            word if word.starts_with('@') => named(word).ok_or_else(|| ScheduleError::Word(word.to_owned()))?,
            fields => fields,
        };
        let fields: Vec<&str> = meant.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::Count {
                text: text.to_owned(),
                count: fields.len(),
            });
        };
        let read = |field: Field, text: &str| {
            let name = field.name;
            field
                .parse(text)
                .map_err(|error| ScheduleError::Field { field: name, error })
        };
        let (minutes, hours) = (read(Field::MINUTE, minute)?, read(Field::HOUR, hour)?);
        let (days, months) = (read(Field::DAY, day)?, read(Field::MONTH, month)?);
        let weekdays = read(Field::WEEKDAY, weekday)?;
        let schedule = Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day: days != Field::DAY.all() && weekdays != Field::WEEKDAY.all(),
            zone,
        };
        if !schedule.either_day && !(1..=12).any(|month| schedule.has_day_in(month)) {
            return Err(ScheduleError::Never(text.to_owned()));
        }
        Ok(schedule)
    }

    /// When it runs next after a moment.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        if self.hours == Field::HOUR.all() {
            self.next_shown(after)
        } else {
            self.next_once(after)
        }
    }

    /// What the clocks of its zone show at a moment, for people.
    pub fn local_time(&self, moment: Timestamp) -> Zoned {
        moment.to_zoned(self.zone.clone())
    }

    /// The first moment at which the clocks show one of its times: looked for until the clocks are changed, and then anew.
    fn next_shown(&self, after: Timestamp) -> Option<Timestamp> {
        let limit = self.limit(after)?;
        let mut since = after;
        let mut clock = next_minute(self.zone.to_datetime(after), false)?;
        loop {
            let offset = self.zone.to_offset(since);
            let run = offset.to_timestamp(self.next_time(clock, limit)?).ok()?;
            let mut changes = self.zone.following(since);
            match changes.find(|change| change.offset() != offset) {
                Some(change) if change.timestamp() <= run => since = change.timestamp(),
                _ => return Some(run),
            }
            clock = next_minute(self.zone.to_datetime(since), true)?;
        }
    }

    /// The first moment that stands for one of its times. Later times never stand for earlier moments, so the search ends soon
    /// after the time that the clocks show at `after`.
    fn next_once(&self, after: Timestamp) -> Option<Timestamp> {
        let limit = self.limit(after)?;
        let mut clock = next_minute(self.zone.to_datetime(after), true)?;
        loop {
            let time = self.next_time(clock, limit)?;
            let moment = self.moment_of(time)?;
            if after < moment {
                return Some(moment);
            }
            clock = time.checked_add(1.minute()).ok()?;
        }
    }

    /// The moment that stands for a time: the first at which the clocks show it, or the one at which they skip it.
    fn moment_of(&self, time: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        let is_skipped = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        let earlier = ambiguous.earlier().ok()?;
        if !is_skipped {
            return Some(earlier);
        }
        let mut changes = self.zone.following(earlier);
        let change = changes.find(|change| time < change.offset().to_datetime(change.timestamp()));
        change.map(|change| change.timestamp())
    }

    /// The first time from `clock` on that the fields name.
    fn next_time(&self, clock: DateTime, limit: Date) -> Option<DateTime> {
        let mut date = clock.date();
        let mut from = clock.time();
        while date <= limit {
            if !self.has_month(date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
            } else if let Some(time) = self.first_time(from).filter(|_| self.has_date(date)) {
                return Some(date.to_datetime(time));
            } else {
                date = date.tomorrow().ok()?;
            }
            from = Time::midnight();
        }
        None
    }

    /// The first time of a day, from `from` on.
    fn first_time(&self, from: Time) -> Option<Time> {
        let hours = (from.hour()..24).filter(|hour| has(self.hours, *hour));
        let mut times = hours.flat_map(|hour| {
            let first = if hour == from.hour() { from.minute() } else { 0 };
            (first..60).map(move |minute| (hour, minute))
        });
        let (hour, minute) = times.find(|(_, minute)| has(self.minutes, *minute))?;
        Time::new(hour, minute, 0, 0).ok()
    }

    fn has_month(&self, month: i8) -> bool {
        has(self.months, month)
    }

    fn has_date(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day {
            day || weekday
        } else {
            day && weekday
        }
    }

    /// Whether a month is one of its months and ever has one of its days.
    fn has_day_in(&self, month: i8) -> bool {
        self.has_month(month) && (1..=days_of(month)).any(|day| has(self.days, day))
    }

    fn limit(&self, after: Timestamp) -> Option<Date> {
        let today = self.zone.to_datetime(after).date();
        today.checked_add(i64::from(HORIZON_YEARS).years()).ok()
    }
}

/// The first full minute that is not before a time; after it, unless the time itself counts.
fn next_minute(clock: DateTime, counts: bool) -> Option<DateTime> {
    let minute = DateTime::from_parts(clock.date(), Time::new(clock.hour(), clock.minute(), 0, 0).ok()?);
    if counts && minute == clock {
        return Some(minute);
    }
    minute.checked_add(SignedDuration::from_mins(1)).ok()
}

fn has(bits: u64, number: i8) -> bool {
    bits & (1 << number) != 0
}

#[cfg(test)]
mod tests;
