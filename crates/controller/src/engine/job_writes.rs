//! Writes of jobs' own objects: status, finalizers, deletion.

use jiff::Timestamp;
use serde_json::Value;
use tracing::warn;

use super::job::{AnyStatus, Job};
use super::jobs::{JobRecord, JobState};
use super::{Engine, JobId, JobKey};

/// The object that a write is about. A response is taken in only for the job that it was sent for: another one may have
/// been created under the same name meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobTarget {
    pub key: JobKey,
    pub uid: String,
}

/// What to do with a job's object.
#[derive(Clone, Debug, PartialEq)]
pub enum JobWrite {
    /// A JSON patch of the status, guarded by the uid.
    Status(Value),
    /// A JSON patch of the object.
    Patch(Value),
    /// Delete it, with all that belongs to it.
    Delete,
}

/// How a write of a job's object ended.
pub enum JobWriteResult {
    /// The object as it is now.
    Object(Box<dyn Job>),
    /// There is none.
    Absent,
    /// Refused, or the outcome is unknown; tried again.
    Failed(String),
}

impl Engine {
    /// Notes when a job's object may be written.
    pub(super) fn schedule_write(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get(id) else {
            return;
        };
        // A final status and a deletion wait for no interval.
        let urgent = !record.is_running() && !record.throttle.backs_off(now);
        if record.throttle.in_flight {
        } else if urgent || record.throttle.is_free(now) {
            self.queue.write_job(id);
        } else {
            let moment = record.throttle.not_before;
            self.queue.job_later_at_most(id, moment);
        }
    }

    /// The next job to write, and how.
    pub fn next_job_write(&mut self, now: Timestamp) -> Option<(JobTarget, JobWrite)> {
        if !self.is_complete() {
            return None;
        }
        while let Some(id) = self.queue.next_job_write() {
            // It is decided, and then written, when that is done.
            let waits = self.jobs.is_unread(id) || self.scan.contains(id);
            let record = self.jobs.get_mut(id);
            let record = record.filter(|record| !waits && !record.throttle.in_flight);
            if let Some(record) = record
                && let Some(write) = job_write(record, now)
            {
                record.throttle.in_flight = true;
                let target = JobTarget {
                    key: record.key.clone(),
                    uid: record.uid.clone(),
                };
                return Some((target, write));
            }
        }
        None
    }

    /// Takes in how a write of a job ended.
    pub fn job_written(&mut self, target: &JobTarget, result: JobWriteResult, now: Timestamp) {
        let Some(id) = self.jobs.id_of_uid(&target.uid) else {
            return;
        };
        let Some(record) = self.jobs.get_mut(id) else {
            return;
        };
        match result {
            JobWriteResult::Object(object) => {
                let nodes = usize::try_from(object.counts().desired).unwrap_or(0);
                record.throttle.succeeded(nodes, now);
                self.observe_job(object, true, now);
                // What was to be written meanwhile has waited for this write, also if the watch was ahead of it.
                self.queue.job(id);
            }
            JobWriteResult::Absent => self.remove_job(id, now),
            JobWriteResult::Failed(error) => {
                if record.throttle.failed(now) {
                    warn!(
                        namespace = target.key.namespace,
                        job = target.key.name,
                        error,
                        "a job could not be written; trying again"
                    );
                }
                let moment = record.throttle.not_before;
                self.queue.job_later_at_most(id, moment);
            }
        }
    }
}

fn job_write(record: &mut JobRecord, now: Timestamp) -> Option<JobWrite> {
    if record.takes_finalizer_off() {
        return record.job.finalizer_patch().map(JobWrite::Patch);
    }
    let status = status_to_write(record, now);
    let patch = status.and_then(|status| record.job.status_patch(&status));
    if let Some(patch) = patch.filter(|patch| record.throttle.is_worth_writing(patch.eta_alone, now)) {
        return Some(JobWrite::Status(patch.patch));
    }
    let due = record.leaves_at().is_some_and(|moment| moment <= now);
    (due && record.job.finished().is_some()).then_some(JobWrite::Delete)
}

/// The status that a job should have; None if it is to be left as it is.
fn status_to_write(record: &mut JobRecord, now: Timestamp) -> Option<AnyStatus> {
    match &mut record.state {
        JobState::Running(running) if record.throttle.not_before <= now => {
            record.job.status(&mut running.progress, &running.unusable, None, now)
        }
        JobState::Ended(ended) => ended.final_status.clone(),
        JobState::Refused(refusal) => Some(record.job.refused(refusal, now)),
        JobState::Running(_) | JobState::Idle | JobState::Leaving(_) => None,
    }
}
