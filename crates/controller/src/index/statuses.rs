//! What is written to jobs' own objects: status, finalizers, deletion.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tracing::warn;

use super::jobs::{JobRecord, JobState};
use super::objects::{JobObject, JobStatus};
use super::{Index, JobId, JobKey, ObjectAction, ObjectAnswer, Target};
use crate::merge::{difference, json_of};

/// What a job is told while jobs are not served.
pub(super) const GATE_OFF: &str = "feature gate ImagePullJobGate is off";

impl Index {
    /// Notes when a job's object may be written.
    pub(super) fn schedule_write(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get(&id) else {
            return;
        };
        // A last word and a deletion do not wait for their turn.
        let urgent = !record.is_running() && !record.desk.under_way;
        if urgent || record.desk.is_free(now) {
            self.agenda.write_job(id);
        } else if !record.desk.under_way {
            let moment = record.desk.not_before;
            self.agenda.job_later_at_most(id, moment);
        }
    }

    /// The next job or list to write, and how.
    pub(crate) fn next_object_write(&mut self, now: Timestamp) -> Option<(Target, ObjectAction)> {
        if !self.is_complete() {
            return None;
        }
        while let Some(id) = self.agenda.next_job_write() {
            if let Some(action) = self.job_action(id, now) {
                let record = self.jobs.get_mut(&id)?;
                record.desk.under_way = true;
                let key = record.key.clone();
                let target = match &record.object {
                    JobObject::Pull(_) => Target::Job(key),
                    JobObject::PrePull(_) => Target::PrePull(key),
                };
                return Some((target, action));
            }
        }
        while let Some(key) = self.agenda.next_list_write() {
            if let Some(action) = self.list_action(&key, now) {
                self.lists.get_mut(&key)?.desk.under_way = true;
                return Some((Target::List(key), action));
            }
        }
        None
    }

    fn job_action(&mut self, id: JobId, now: Timestamp) -> Option<ObjectAction> {
        let parent_lives = self.parent_lives(id);
        let record = self.jobs.get_mut(&id)?;
        if record.desk.under_way {
            return None;
        }
        if record.has_foreign_finalizer() {
            return record.object.finalizer_patch().map(ObjectAction::Patch);
        }
        let status = status_of(record, now);
        if let Some(status) = status
            && let Some(patch) = record.object.status_patch(&record.uid, &status)
        {
            return Some(ObjectAction::Status(patch));
        }
        let JobState::Ended(ended) = &record.state else {
            return None;
        };
        // The list job goes with its children, not they before it.
        let due = ended.leaves_at().is_some_and(|moment| moment <= now);
        (due && record.object.says_over() && !parent_lives).then(|| ObjectAction::Delete {
            uid: record.uid.clone(),
        })
    }

    fn parent_lives(&self, id: JobId) -> bool {
        let parent = self.jobs.get(&id).and_then(JobRecord::parent);
        parent.is_some_and(|uid| self.lists.values().any(|list| list.uid == uid))
    }

    /// Takes in how a write of a job or list ended.
    pub(crate) fn object_written(&mut self, target: &Target, answer: ObjectAnswer, now: Timestamp) {
        match target {
            Target::Job(key) | Target::PrePull(key) => self.job_written(key, answer, now),
            Target::List(key) => self.list_written(key, answer, now),
        }
    }

    fn job_written(&mut self, key: &JobKey, answer: ObjectAnswer, now: Timestamp) {
        let Some(id) = self.job_keys.get(key).copied() else {
            return;
        };
        let Some(record) = self.jobs.get_mut(&id) else {
            return;
        };
        match answer {
            ObjectAnswer::Job(object) => {
                let object = JobObject::Pull(object);
                record.desk.succeeded(object.desired(), now);
                record.note_finalizer(&object);
                self.take_in_job(object, true, now);
            }
            ObjectAnswer::PrePull(object) => {
                let object = JobObject::PrePull(object);
                record.desk.succeeded(object.desired(), now);
                record.note_finalizer(&object);
                self.take_in_job(object, true, now);
            }
            ObjectAnswer::List(_) | ObjectAnswer::ChildGone(_) => record.desk.under_way = false,
            ObjectAnswer::Absent => self.job_gone(key, now),
            ObjectAnswer::Failed(error) => {
                if record.desk.failed(now) {
                    warn!(
                        namespace = key.namespace,
                        job = key.name,
                        error,
                        "a job could not be written; trying again"
                    );
                }
                let moment = record.desk.not_before;
                self.agenda.job_later_at_most(id, moment);
            }
        }
    }
}

/// What a job should say about itself; None if nothing.
fn status_of(record: &mut JobRecord, now: Timestamp) -> Option<JobStatus> {
    match &mut record.state {
        JobState::Running(running) => {
            let since = record.desk.not_before;
            let free = since <= now;
            free.then(|| running.status(&record.object, None, now))
        }
        JobState::Ended(ended) => ended.last_word.clone(),
        JobState::Idle => record
            .refusal
            .as_ref()
            .map(|refusal| record.object.refused(refusal, now)),
        JobState::Leaving(_) => None,
    }
}

/// A merge patch for the status of the job with this uid: another one of the same name is not touched.
pub(super) fn status_patch<S: serde::Serialize>(uid: &str, before: Option<&S>, after: &S) -> Option<Value> {
    let before = before.map_or_else(|| json!({}), json_of);
    let changes = difference(&before, &json_of(after))?;
    Some(json!({ "metadata": { "uid": uid }, "status": changes }))
}

/// How long an unknown creation is waited for before it is tried again.
pub(super) const CREATION_SHOWS_WITHIN: SignedDuration = SignedDuration::from_secs(10);
