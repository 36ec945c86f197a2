//! When one campaign may hand out work: inside its own windows and inside those of the whole fleet.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::Windows;
use crate::campaign::later;

/// The windows of a campaign and of the fleet, which must both be open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHours<'a> {
    pub(crate) job: &'a Windows,
    pub(crate) fleet: &'a Windows,
}

/// Windows that are closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Whose they are.
    pub whose: ClosedWindows,
    /// What clocks show when work may be handed out again; None if never, because both are never open at the same time.
    pub until: Option<String>,
}

/// Whose windows are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedWindows {
    /// Those of the job.
    Job,
    /// Those of the fleet.
    Fleet,
    /// Both.
    Both,
}

impl ClosedWindows {
    const ALL: [Self; 3] = [Self::Both, Self::Job, Self::Fleet];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "outside its windows",
            Self::Fleet => "outside the fleet's windows",
            Self::Both => "outside its windows and the fleet's",
        }
    }
}

impl Closed {
    /// What a job's message says of the fleet's windows, for who does not know them.
    pub fn read_fleet(message: &str) -> Option<Self> {
        let mut notes = message.split("; ");
        notes.find_map(|note| {
            let mut all = ClosedWindows::ALL.into_iter();
            let (whose, rest) = all.find_map(|whose| Some((whose, note.strip_prefix(whose.as_str())?)))?;
            let until = rest.strip_prefix(UNTIL).map(str::to_owned);
            let is_whole = until.is_some() || rest == NEVER;
            (is_whole && whose != ClosedWindows::Job).then_some(Self { whose, until })
        })
    }
}

const UNTIL: &str = " until ";
const NEVER: &str = ", which are never open at the same time";

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.whose.as_str())?;
        match &self.until {
            Some(until) => write!(f, "{UNTIL}{until}"),
            None => f.write_str(NEVER),
        }
    }
}

impl OpenHours<'_> {
    /// Whether work may be handed out.
    pub(crate) fn are_open(self, now: Timestamp) -> bool {
        self.job.are_open(now) && self.fleet.are_open(now)
    }

    /// Whether work under way is taken back: windows are closed at whose end it stops.
    pub(crate) fn stop_work(self, now: Timestamp) -> bool {
        self.job.stop_work(now) || self.fleet.stop_work(now)
    }

    /// When work may be handed out after `now` if it may not, and may no longer if it may; or when it is taken back. None if
    /// that never happens.
    pub(crate) fn next_change(self, now: Timestamp) -> Option<Timestamp> {
        let state = |moment| (self.are_open(moment), self.stop_work(moment));
        self.first(now, |moment| state(moment) != state(now))
    }

    /// The first moment from `moment` on at which work may be handed out; None if there is none.
    pub(crate) fn next_open(self, moment: Timestamp) -> Option<Timestamp> {
        if self.are_open(moment) {
            return Some(moment);
        }
        self.first(moment, |moment| self.are_open(moment))
    }

    /// Why no work may be handed out, and until when; None if it may.
    pub(crate) fn closed(self, now: Timestamp) -> Option<Closed> {
        let whose = match (self.job.are_open(now), self.fleet.are_open(now)) {
            (true, true) => return None,
            (false, true) => ClosedWindows::Job,
            (true, false) => ClosedWindows::Fleet,
            (false, false) => ClosedWindows::Both,
        };
        let Some(opens) = self.next_open(now) else {
            // Each of them opens some day.
            let whose = ClosedWindows::Both;
            return Some(Closed { whose, until: None });
        };
        // The clocks of the windows that open then: the others were open before.
        let before = later(opens, SignedDuration::from_secs(-1));
        let waited_for = if self.job.are_open(before) {
            self.fleet
        } else {
            self.job
        };
        let until = waited_for.local_time(opens);
        Some(Closed {
            whose,
            until: until.map(|until| until.strftime("%a %H:%M %Q").to_string()),
        })
    }

    /// The first moment after `now` at which something holds, among those at which a window may open or close.
    fn first(self, now: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
        let mut moments: Vec<Timestamp> = self.job.moments(now).chain(self.fleet.moments(now)).collect();
        moments.sort_unstable();
        moments.into_iter().find(|moment| now < *moment && holds(*moment))
    }
}

#[cfg(test)]
mod tests {
    use larder_api::window::{Window, WindowEnd};
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn windows(all: &[(&str, &str, &str)], end: WindowEnd) -> Windows {
        let window = |(from, to, zone): &(&str, &str, &str)| Window {
            days: Vec::new(),
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            time_zone: Some((*zone).to_owned()),
        };
        let all: Vec<Window> = all.iter().map(window).collect();
        Windows::parse(&all, Some(end)).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn closed(whose: ClosedWindows, until: &str) -> Closed {
        let until = Some(until.to_owned()).filter(|until| !until.is_empty());
        Closed { whose, until }
    }

    /// The job pulls from 20:00 to 23:00 in Berlin, which is 19:00 to 22:00 by UTC; the fleet from 21:00 to 5:00 by UTC.
    #[rstest]
    #[case::both_are_closed("2026-11-16T12:00:00Z", Some(closed(ClosedWindows::Both, "Mon 21:00 UTC")))]
    #[case::the_fleet_is_closed("2026-11-16T19:30:00Z", Some(closed(ClosedWindows::Fleet, "Mon 21:00 UTC")))]
    #[case::both_are_open("2026-11-16T21:30:00Z", None)]
    #[case::the_job_is_closed("2026-11-16T22:00:00Z", Some(closed(ClosedWindows::Job, "Tue 21:00 UTC")))]
    fn what_is_waited_for(#[case] now: &str, #[case] want: Option<Closed>) {
        let job = windows(&[("20:00", "23:00", "Europe/Berlin")], WindowEnd::Finish);
        let fleet = windows(&[("21:00", "05:00", "UTC")], WindowEnd::Finish);
        let hours = OpenHours {
            job: &job,
            fleet: &fleet,
        };
        assert_eq!(hours.closed(at(now)), want);
    }

    #[test]
    fn the_clocks_are_those_of_the_windows_that_open_last() {
        let job = windows(&[("23:00", "23:30", "Europe/Berlin")], WindowEnd::Finish);
        let fleet = windows(&[("21:00", "05:00", "UTC")], WindowEnd::Finish);
        let hours = OpenHours {
            job: &job,
            fleet: &fleet,
        };
        let noon = at("2026-11-16T12:00:00Z");
        assert_eq!(
            hours.closed(noon),
            Some(closed(ClosedWindows::Both, "Mon 23:00 Europe/Berlin"))
        );
        assert_eq!(hours.next_change(noon), Some(at("2026-11-16T22:00:00Z")));
    }

    #[test]
    fn windows_that_are_never_open_together() {
        let (job, fleet) = (
            windows(&[("08:00", "09:00", "UTC")], WindowEnd::Finish),
            windows(&[("20:00", "21:00", "UTC")], WindowEnd::Finish),
        );
        let hours = OpenHours {
            job: &job,
            fleet: &fleet,
        };
        assert_eq!(
            hours.closed(at("2026-11-16T08:30:00Z")),
            Some(closed(ClosedWindows::Both, ""))
        );
        assert_eq!(hours.next_change(at("2026-11-16T12:00:00Z")), None);
    }

    #[rstest]
    #[case::job(ClosedWindows::Job, Some("Mon 21:00 UTC"), "outside its windows until Mon 21:00 UTC")]
    #[case::fleet(
        ClosedWindows::Fleet,
        Some("Mon 21:00 UTC"),
        "outside the fleet's windows until Mon 21:00 UTC"
    )]
    #[case::both(
        ClosedWindows::Both,
        Some("Mon 21:00 UTC"),
        "outside its windows and the fleet's until Mon 21:00 UTC"
    )]
    #[case::never(
        ClosedWindows::Both,
        None,
        "outside its windows and the fleet's, which are never open at the same time"
    )]
    fn what_a_job_says_is_read_back(#[case] whose: ClosedWindows, #[case] until: Option<&str>, #[case] text: &str) {
        let until = until.map(str::to_owned);
        let closed = Closed { whose, until };
        assert_eq!(closed.to_string(), text);
        let read = Closed::read_fleet(&format!("progress 5%; {text}; next refresh Tue"));
        assert_eq!(read, (whose != ClosedWindows::Job).then_some(closed));
    }

    #[rstest]
    #[case::neither(WindowEnd::Finish, WindowEnd::Finish, [false, false])]
    #[case::the_job(WindowEnd::Stop, WindowEnd::Finish, [false, true])]
    #[case::the_fleet(WindowEnd::Finish, WindowEnd::Stop, [true, true])]
    fn work_stops_at_the_end_of_the_windows_that_say_so(
        #[case] job: WindowEnd,
        #[case] fleet: WindowEnd,
        #[case] stops: [bool; 2],
    ) {
        let (job, fleet) = (
            windows(&[("08:00", "10:00", "UTC")], job),
            windows(&[("08:00", "09:00", "UTC")], fleet),
        );
        let hours = OpenHours {
            job: &job,
            fleet: &fleet,
        };
        let moments = ["2026-11-16T09:30:00Z", "2026-11-16T10:30:00Z"];
        assert_eq!(moments.map(|moment| hours.stop_work(at(moment))), stops);
        assert_eq!(
            hours.next_change(at("2026-11-16T08:30:00Z")),
            Some(at("2026-11-16T09:00:00Z"))
        );
    }

    proptest! {
        /// Nothing changes before the next change; what is open is open in both.
        #[test]
        fn nothing_changes_before_the_next_change(
            hours in proptest::array::uniform4(0_u8..24), second in 1_700_000_000_i64..1_900_000_000, share in 0.0..1.0_f64,
            stops in any::<[bool; 2]>(),
        ) {
            let times = hours.map(|hour| format!("{hour:02}:15"));
            let end = |stops| if stops { WindowEnd::Stop } else { WindowEnd::Finish };
            let (job, fleet) = (
                windows(&[(&times[0], &times[1], "Europe/Berlin")], end(stops[0])),
                windows(&[(&times[2], &times[3], "Australia/Lord_Howe")], end(stops[1])),
            );
            let hours = OpenHours { job: &job, fleet: &fleet };
            let now = Timestamp::from_second(second).unwrap();
            let change = hours.next_change(now);
            let until = change.unwrap_or_else(|| later(now, SignedDuration::from_hours(24 * 8)));
            let between = later(now, until.duration_since(now).mul_f64(share));
            if between < until {
                prop_assert_eq!(hours.are_open(between), hours.are_open(now));
                prop_assert_eq!(hours.stop_work(between), hours.stop_work(now));
            }
            prop_assert_eq!(hours.are_open(now), job.are_open(now) && fleet.are_open(now));
            prop_assert_eq!(hours.closed(now).is_none(), hours.are_open(now));
            if let Some(open) = hours.next_open(now) {
                prop_assert!(now <= open && hours.are_open(open));
            }
        }
    }
}
