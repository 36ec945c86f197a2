//! One look at a job: its object is read if it changed; a running job hands out and takes back orders, or ends.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use larder_planner::Progress;
use larder_planner::campaign::Campaign;
use larder_planner::dialect::{Finished, Refusal};
use larder_planner::finish::End;
use larder_planner::progress::{Hold, Step};
use larder_planner::{NodeKey, NodeView};
use tracing::info;

use super::job::Job;
use super::jobs::{EndedJob, JobId, JobKey, JobState, Observed, Running};
use super::{Engine, JOB_WORK, WatchKind};

/// Between two looks at one job that nothing but time asks for.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(10);

impl Engine {
    /// Takes in a job, from the watch or from a write.
    pub(super) fn observe_job(&mut self, job: Box<dyn Job>, from_write: bool, now: Timestamp) {
        let (key, uid) = (job.key(), job.uid());
        // The response to a write may arrive after the watch has shown that the job is gone.
        if from_write && self.jobs.deleted_at(&uid).is_some() {
            return;
        }
        if let Some(known) = self.jobs.id_of(&key)
            && self.jobs.get(known).is_some_and(|record| record.uid != uid)
        {
            self.remove_job(known, now);
        }
        if let Observed::Job(id) = self.jobs.observe(job, from_write) {
            self.queue.job(id);
        }
    }

    /// Takes in a job that another part of the controller created.
    pub fn job_created(&mut self, job: Box<dyn Job>, now: Timestamp) {
        self.sync.created(&WatchKind::Job(job.kind()), job.metadata());
        self.observe_job(job, true, now);
    }

    /// The object of a job is gone.
    pub(super) fn job_gone(&mut self, key: &JobKey, now: Timestamp) {
        if let Some(id) = self.jobs.id_of(key) {
            self.remove_job(id, now);
        }
    }

    pub(super) fn remove_job(&mut self, id: JobId, now: Timestamp) {
        self.stop(id, JobState::Leaving(now));
        if let Some(record) = self.jobs.remove(id, now) {
            self.events.forget(&record.uid);
        }
    }

    /// Decides for one job, unless it has yet to see all nodes. Says how much work that was.
    pub(super) fn decide_job(&mut self, id: JobId, now: Timestamp) -> usize {
        let Some(record) = self.jobs.get(id).filter(|_| !self.scan.contains(id)) else {
            return 0;
        };
        match &record.state {
            JobState::Running(_) => self.run_job(id, now),
            JobState::Ended(_) => {
                let leaves = record.leaves_at();
                self.queue.job_later(id, leaves.filter(|moment| now < *moment));
            }
            JobState::Leaving(_) | JobState::Idle | JobState::Refused(_) => {}
        }
        self.schedule_write(id, now);
        JOB_WORK
    }

    /// Reads the object of a job: finds out where the job is in its life, and starts or edits its campaign.
    pub(super) fn read_job(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        if matches!(record.state, JobState::Leaving(_)) {
            return;
        }
        if record.job.metadata().deletion_timestamp.is_some() {
            self.stop(id, JobState::Leaving(now));
            return;
        }
        if let Some(finished) = record.job.finished() {
            self.ended(id, finished, now);
            return;
        }
        // Its final status is on its way. One that had arrived and is gone was taken back by another writer: the job runs
        // again.
        if matches!(&record.state, JobState::Ended(ended) if ended.final_status.is_some()) {
            return;
        }
        if let Some(why) = self.limits.not_served {
            self.stop(id, JobState::Refused(Refusal::NotServed(why.to_owned())));
            return;
        }
        let progress = match &record.state {
            JobState::Running(running) => Some(&running.progress),
            JobState::Idle | JobState::Refused(_) | JobState::Ended(_) | JobState::Leaving(_) => None,
        };
        match record.job.plan(&self.nodes, progress) {
            Ok(None) => {}
            Ok(Some((campaign, succeeded_before))) => self.start_or_edit(id, campaign, &succeeded_before, now),
            Err(refusal) => self.stop(id, JobState::Refused(refusal)),
        }
    }

    /// The API says that a job ended.
    fn ended(&mut self, id: JobId, finished: Finished, now: Timestamp) {
        let known = match self.jobs.get(id).map(|record| &record.state) {
            Some(JobState::Ended(ended)) => Some(ended.at),
            _ => None,
        };
        let at = finished.at.or(known).unwrap_or(now);
        let ended = JobState::Ended(EndedJob::new(finished, at, None));
        if known == Some(at) {
            // Its final status has arrived; the nodes know already.
            self.jobs.set_state(id, ended);
        } else {
            self.stop(id, ended);
        }
    }

    fn start_or_edit(&mut self, id: JobId, mut campaign: Campaign, succeeded_before: &[NodeKey], now: Timestamp) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        let named = self.nodes.that_may_name(&record.uid);
        let priority = campaign.priority;
        if let JobState::Running(running) = &mut record.state {
            campaign.tasks.keep_ordered(&running.progress);
            running.progress.edit(campaign, now);
            running.forget_pods();
        } else {
            // In whole seconds, as it is read back: deadlines count from here.
            let started = record.job.started().unwrap_or(now).min(now);
            let started = Timestamp::from_second(started.as_second()).unwrap_or(started);
            let mut progress = Progress::new(campaign, started);
            progress.set_fleet_windows(Arc::clone(&self.limits.windows));
            for node in succeeded_before {
                progress.node_changed(node, NodeView::succeeded_before(started), now);
            }
            self.jobs
                .set_state(id, JobState::Running(Box::new(Running::new(progress))));
        }
        self.fleet_limit.add(id, priority);
        self.queue.set_priority(id, priority);
        // It has at most these, until it has seen which of them ended.
        let known = self
            .jobs
            .running(id)
            .map_or(0, |running| running.progress.counts().slots);
        self.fleet_limit.set_slots(id, known + named.len());
        self.find_missing_logins(id);
        self.count_pods(id);
        self.rescan(id, now);
        self.queue.nodes(&named);
    }

    /// One look at a running job: finds out whether it has to wait, hands out and takes back orders as far as the job and the
    /// fleet limit allow, and ends the job if it is over.
    fn run_job(&mut self, id: JobId, now: Timestamp) {
        let (waits_for_secrets, ask_again) = self.check_secrets(id, now);
        if self.scan.contains(id) {
            return;
        }
        let hold = if self.limits.pause {
            Some(Hold::FleetPaused)
        } else {
            waits_for_secrets
        };
        self.count_slots(id);
        let allowance = self.fleet_limit.allowance(id);
        let Some(running) = self.jobs.running_mut(id) else {
            return;
        };
        if !running.knows_nodes() {
            self.wait_for_pods(id, now);
            return;
        }
        running.progress.hold(hold);
        let steps = running.progress.decide(allowance, now);
        let denied = running.denied.is_some();
        let end = running.progress.end(now);
        let end = end.filter(|end| !denied || *end == End::Deadline);
        let wake = running.progress.next_wake();
        let wants_more = running.progress.wants_allowance();
        let handed_out = steps.iter().filter(|step| matches!(step, Step::HandOut(_))).count();
        self.count_slots(id);
        self.fleet_limit.served(id, handed_out, wants_more);
        self.queue_next_waiting();
        for step in &steps {
            self.order(id, step);
        }
        if let Some(end) = end {
            self.finish(id, end, now);
            return;
        }
        // A moment that has passed would be looked at again and again without anything changing.
        let soon = now.checked_add(SHORTEST_PAUSE).unwrap_or(now);
        let next = [wake, ask_again].into_iter().flatten().min();
        self.queue.job_later(id, next.map(|moment| moment.max(soon)));
    }

    /// A job whose pods are not all known does not know its nodes: it waits, but not beyond its deadline.
    fn wait_for_pods(&mut self, id: JobId, now: Timestamp) {
        let Some(running) = self.jobs.running_mut(id) else {
            return;
        };
        let deadline = running.progress.campaign().deadline(running.progress.started());
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.finish(id, End::Deadline, now);
            return;
        }
        running.progress.hold(Some(Hold::ListingPods));
        self.fleet_limit.stop_waiting(id);
        self.queue.job_later(id, deadline);
        // Its orders may have ended all the same.
        self.queue_next_waiting();
    }

    /// The campaign is over: its final status is written, and its entries' time to live begins.
    fn finish(&mut self, id: JobId, end: End, now: Timestamp) {
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        let JobState::Running(running) = &mut record.state else {
            return;
        };
        let rules = &running.progress.campaign().rules;
        let finished = Finished {
            at: None,
            pins: rules.pin,
            ttl: running.progress.campaign().ttl(),
        };
        let Some(status) = record
            .job
            .status(&mut running.progress, &running.unusable, Some(end), now)
        else {
            return;
        };
        let at = status.ended.unwrap_or(now);
        info!(
            namespace = record.key.namespace,
            job = record.key.name,
            ?end,
            succeeded = status.counts.succeeded,
            failed = status.counts.failed,
            "job ended"
        );
        let (subject, uid) = (record.job.reference(), record.uid.clone());
        self.events.record_end(&subject, &uid, &status);
        self.stop(id, JobState::Ended(EndedJob::new(finished, at, Some(status))));
        self.queue.job(id);
    }

    /// Ends a job's campaign, however it went: the nodes see to their entries.
    fn stop(&mut self, id: JobId, state: JobState) {
        // Every node on which it has an entry, or may get one, is looked at.
        if let Some(record) = self.jobs.get(id) {
            self.queue.nodes(&self.nodes.that_may_name(&record.uid));
        }
        self.nodes.forget_job(id);
        self.scan.remove(id);
        self.fleet_limit.remove(id);
        self.queue.set_priority(id, 0);
        self.queue_next_waiting();
        self.jobs.set_state(id, state);
        self.gate.look_at_all();
        self.forget_unused_secrets();
    }

    /// The job that waits for the fleet's limit is looked at if a slot is free. It takes something or stops waiting, and
    /// then the next one is looked at: so this ends.
    fn queue_next_waiting(&mut self) {
        if let Some(job) = self.fleet_limit.next() {
            self.queue.job(job);
        }
    }

    /// Counts what jobs have of the fleet's slots before any of them takes more.
    pub(super) fn count_all_slots(&mut self) {
        if self.fleet_limit.is_limited() {
            let jobs: Vec<JobId> = self.queue.jobs().filter(|job| !self.scan.contains(*job)).collect();
            for job in jobs {
                self.count_slots(job);
            }
        }
    }

    pub(super) fn count_slots(&mut self, id: JobId) {
        let Some(running) = self.jobs.running(id) else {
            return;
        };
        let known = running.progress.counts().slots;
        // A job that does not know its pods yet does not know its nodes either; what it handed out before may be on its way.
        let slots = if running.knows_nodes() {
            known
        } else {
            known.max(self.open_orders(id))
        };
        self.fleet_limit.set_slots(id, slots);
    }

    /// Nodes that have a job's order and no result.
    fn open_orders(&mut self, id: JobId) -> usize {
        let Some(uid) = self.jobs.get(id).map(|record| record.uid.clone()) else {
            return 0;
        };
        let mut open = 0;
        for node in self.nodes.that_may_name(&uid) {
            let running = self.jobs.running(id);
            let task = running.and_then(|running| running.progress.campaign().tasks.of(&node));
            let object = self.nodes.living_image(&node);
            let report = task.zip(object).and_then(|(task, object)| task.report(object, &uid));
            open += usize::from(report.is_some_and(|report| !report.claim_view().is_final()));
            self.nodes.compress(&node);
        }
        open
    }
}
