//! When a campaign may hand out work: hours of some days, by the clocks of a time zone.
//!
//! A moment is inside a window if the clocks of its zone show a time between its ends, on one of its days. So an hour that
//! the clocks show twice is inside twice, and one that they skip never comes; nobody has to choose between two moments.

mod fleet;
mod open_hours;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};
use larder_api::window::{DAYS, DEFAULT_TIME_ZONE, Window, WindowEnd};
use thiserror::Error;

pub use self::fleet::FleetWindowsError;
pub(crate) use self::open_hours::OpenHours;
pub use self::open_hours::{Closed, ClosedWindows};
use crate::campaign::later;

/// Whatever is open or closed changes within this many days, or never: a week, and the day on which the last window closes.
const HORIZON_DAYS: i64 = 9;

/// When work may be handed out; at any time if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    windows: Vec<ZonedWindow>,
    end: WindowEnd,
}

/// Hours of some days in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ZonedWindow {
    /// By the number of the day, Monday first.
    days: [bool; 7],
    from: Time,
    to: Time,
    zone: TimeZone,
}

/// What is wrong with a window.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WindowError {
    /// `timeZone`.
    #[error("windows: the time zone {0:?} is not known; give a name such as Europe/Berlin, or leave it out for UTC")]
    Zone(String),
    /// `from` or `to`.
    #[error("windows: {0:?} is no time of day; write hours and minutes such as \"22:00\"")]
    Time(String),
    /// `days`.
    #[error("windows: {0:?} is no day; write Mon, Tue, Wed, Thu, Fri, Sat or Sun")]
    Day(String),
}

impl Windows {
    /// Reads the windows of a job.
    pub fn parse(windows: &[Window], end: Option<WindowEnd>) -> Result<Self, WindowError> {
        let windows = windows.iter().map(ZonedWindow::parse);
        Ok(Self {
            windows: windows.collect::<Result<_, _>>()?,
            end: end.unwrap_or_default(),
        })
    }

    /// Whether work may be handed out.
    pub fn are_open(&self, now: Timestamp) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.is_open(now))
    }

    /// Whether work under way is taken back.
    pub fn stop_work(&self, now: Timestamp) -> bool {
        self.end == WindowEnd::Stop && !self.are_open(now)
    }

    /// The moments after `now` at which one may open or close, in no order.
    fn moments(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.windows.iter().flat_map(move |window| window.moments(now))
    }

    /// What the clocks of a window's zone show at a moment, for people: of the window that opens then, if one does.
    pub fn local_time(&self, moment: Timestamp) -> Option<Zoned> {
        let opens = self.windows.iter().find(|window| window.is_open(moment));
        let window = opens.or(self.windows.first())?;
        Some(moment.to_zoned(window.zone.clone()))
    }
}

impl ZonedWindow {
    fn parse(window: &Window) -> Result<Self, WindowError> {
        let time = |text: &String| {
            let parsed = Time::strptime("%H:%M", text);
            parsed.map_err(|_| WindowError::Time(text.clone()))
        };
        let zone = window.time_zone.as_deref().unwrap_or(DEFAULT_TIME_ZONE);
        let mut days = [window.days.is_empty(); 7];
        for day in &window.days {
            let number = DAYS.iter().position(|name| name == day);
            days[number.ok_or_else(|| WindowError::Day(day.clone()))?] = true;
        }
        Ok(Self {
            days,
            from: time(&window.from)?,
            to: time(&window.to)?,
            zone: TimeZone::get(zone).map_err(|_| WindowError::Zone(zone.to_owned()))?,
        })
    }

    fn is_open(&self, now: Timestamp) -> bool {
        let clock = self.zone.to_datetime(now);
        let (opens_today, opened_yesterday) = (
            self.opens_on(clock.date()),
            clock.date().yesterday().is_ok_and(|yesterday| self.opens_on(yesterday)),
        );
        if self.from < self.to {
            opens_today && self.from <= clock.time() && clock.time() < self.to
        } else {
            opens_today && self.from <= clock.time() || opened_yesterday && clock.time() < self.to
        }
    }

    fn opens_on(&self, date: Date) -> bool {
        self.days[usize::from(date.weekday().to_monday_zero_offset().unsigned_abs())]
    }

    /// The moments after `now` at which it may open or close: when the clocks show one of its ends, or are changed.
    fn moments(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let end = later(now, SignedDuration::from_hours(24 * HORIZON_DAYS));
        let today = self.zone.to_datetime(now).date();
        let dates = (0..=HORIZON_DAYS).filter_map(move |day| today.checked_add(day.days()).ok());
        let ends = dates.flat_map(|date| [self.from, self.to].map(|time| date.to_datetime(time)));
        let changes = self.zone.following(now).map(|change| change.timestamp());
        ends.flat_map(|end| self.moments_of(end))
            .chain(changes.take_while(move |change| *change <= end))
    }

    /// When the clocks show a time: once, twice where they are set back, and for one that they skip around the change.
    fn moments_of(&self, clock: DateTime) -> impl Iterator<Item = Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(clock);
        [ambiguous.earlier(), ambiguous.later()].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
