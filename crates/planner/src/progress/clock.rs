//! What the time of day means for a campaign: the windows of the job and of the fleet, and the job's schedule.

use std::sync::Arc;

use jiff::{Timestamp, Zoned};

use super::{Hold, Progress};
use crate::windows::{OpenHours, Windows};

impl Progress {
    /// Work is handed out inside these windows of the whole fleet alone.
    pub fn set_fleet_windows(&mut self, windows: Arc<Windows>) {
        self.fleet_windows = windows;
    }

    /// Whether windows let work be handed out.
    pub fn is_inside_windows(&self, now: Timestamp) -> bool {
        self.open_hours().are_open(now)
    }

    fn open_hours(&self) -> OpenHours<'_> {
        OpenHours {
            job: &self.campaign.windows,
            fleet: &self.fleet_windows,
        }
    }

    /// Holds while no window is open, and takes work back where the job says so; [`Self::decide`] does so by itself.
    pub fn follow_windows(&mut self, now: Timestamp) {
        let hours = self.open_hours();
        let (change, closed, stopped) = (hours.next_change(now), hours.closed(now), hours.stop_work(now));
        self.window_change = change;
        self.hold.take_if(|hold| matches!(hold, Hold::OutsideWindow(_)));
        if let Some(closed) = closed {
            self.hold.get_or_insert(Hold::OutsideWindow(closed));
        }
        if self.stopped != stopped {
            self.stopped = stopped;
            for node in self.nodes() {
                self.reindex(&node, now);
            }
        }
    }

    /// Finds the next time of the job's schedule.
    pub(super) fn follow_schedule(&mut self, now: Timestamp) {
        let schedule = self.campaign.refresh.as_ref();
        self.next_refresh = schedule.and_then(|schedule| schedule.next(now));
    }

    /// When refreshes begin next by the job's schedule, by the clocks of its time zone. Where no window is open then, the next
    /// one is waited for.
    pub(crate) fn next_refresh(&self) -> Option<Zoned> {
        let schedule = self.campaign.refresh.as_ref()?;
        let begins = self.open_hours().next_open(self.next_refresh?)?;
        Some(schedule.local_time(begins))
    }
}
