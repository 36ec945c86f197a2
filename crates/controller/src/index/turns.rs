//! A running job's turn: what it hands out and takes back, whether it is over, and when it is looked at again.

use jiff::{SignedDuration, Timestamp};
use larder_planner::finish::End;
use larder_planner::progress::Step;
use tracing::info;

use super::Index;
use super::jobs::{Ended, JobId, JobState};

/// Between two looks at one job that nothing but time asks for.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(10);

impl Index {
    /// Decides for one job.
    pub(super) fn decide_job(&mut self, id: JobId, now: Timestamp) {
        if self.jobs.get(&id).is_some_and(|record| record.unread) {
            self.read_prepull(id, now);
        }
        let Some(record) = self.jobs.get(&id) else {
            return;
        };
        match &record.state {
            JobState::Running(_) => self.run_job(id, now),
            JobState::Ended(ended) => {
                let leaves = ended.leaves_at().filter(|_| record.parent().is_none());
                self.agenda.job_later(id, leaves.filter(|moment| now < *moment));
            }
            JobState::Leaving(_) | JobState::Idle => {}
        }
        self.schedule_write(id, now);
    }

    fn run_job(&mut self, id: JobId, now: Timestamp) {
        self.show_overdue(id, now);
        let (hold, ask_again) = self.hold_for(id, now);
        let allowance = self.allowance(id);
        let Some(running) = self.running_mut(id) else {
            return;
        };
        if !running.sees_pods {
            self.leave_line(id);
            // Its orders may have ended all the same.
            self.call_next();
            return;
        }
        running.progress.hold(hold);
        let steps = running.progress.decide(allowance, now);
        let rechecks = running.recheck.is_some();
        let end = running.end(now).filter(|end| !rechecks || *end == End::Deadline);
        let overdue = running.work.as_ref().and_then(|work| work.overdue.first());
        let wake = [running.progress.next_wake(), overdue].into_iter().flatten().min();
        let served = steps.iter().any(|step| matches!(step, Step::HandOut(_)));
        self.line_up(id, served);
        for step in steps {
            self.order(id, step);
        }
        if let Some(end) = end {
            self.finish(id, end, now);
            return;
        }
        // A moment that has passed would be looked at again and again without anything changing.
        let soon = now.checked_add(SHORTEST_PAUSE).unwrap_or(now);
        let next = [wake, ask_again].into_iter().flatten().min();
        self.agenda.job_later(id, next.map(|moment| moment.max(soon)));
    }

    /// The campaign is over: its last word is written, and its entries' time to live begins.
    fn finish(&mut self, id: JobId, end: End, now: Timestamp) {
        let Some(record) = self.jobs.get_mut(&id) else {
            return;
        };
        let JobState::Running(running) = &mut record.state else {
            return;
        };
        let status = running.status(&record.object, Some(end), now);
        let at = status.ended().unwrap_or(now);
        let (succeeded, failed, _) = status.counts();
        let campaign = running.progress.campaign().clone();
        info!(
            namespace = record.key.namespace,
            job = record.key.name,
            ?end,
            succeeded,
            failed,
            "job ended"
        );
        self.note_end(id, &status);
        let ended = Ended::of(Some(&campaign), at, Some(status));
        self.stop(id, JobState::Ended(ended));
        self.agenda.job(id);
    }
}
