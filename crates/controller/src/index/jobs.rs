//! One ImagePullJob or ImagePrePullJob: its campaign while it runs, and what is left of it afterwards.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use larder_api::{ImagePrePullJob, ImagePullJob};
use larder_planner::campaign::{Campaign, Ending};
use larder_planner::finish::End;
use larder_planner::fleet::Share;
use larder_planner::select::SelectBy;
use larder_planner::{NodeKey, Progress};

use super::Index;
use super::desk::Desk;
use super::objects::{JobObject, JobStatus};
use super::prepulls::Work;
use crate::kinds::image_pull_job;

/// A job, as long as it is known.
pub(crate) type JobId = u32;

/// Namespace and name. An ImagePrePullJob has no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What is known of one job.
pub(super) struct JobRecord {
    pub(super) id: JobId,
    pub(super) key: JobKey,
    pub(super) uid: String,
    pub(super) object: JobObject,
    /// An ImagePrePullJob that was seen and not read yet.
    pub(super) unread: bool,
    /// The finalizer of other software was taken off once. Whoever puts it back still needs it, until the job is deleted.
    pub(super) finalizer_taken: bool,
    /// The object came back from a write of ours: the watch may still be behind it.
    pub(super) ahead_of_watch: bool,
    pub(super) state: JobState,
    /// What the job is told instead of being served.
    pub(super) refusal: Option<Refusal>,
    pub(super) desk: Desk,
}

/// Why a job is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It says something that cannot be carried out.
    Spec(String),
    /// Jobs are not served at all.
    GateOff,
}

/// Where a job is in its life.
pub(super) enum JobState {
    Running(Box<Running>),
    Ended(Ended),
    /// Being deleted, noticed at this moment.
    Leaving(Timestamp),
    /// Not served.
    Idle,
}

/// A job that runs.
pub(super) struct Running {
    pub(super) progress: Progress,
    /// Matching pods on each node, for a podSelector.
    pub(super) pods: BTreeMap<NodeKey, usize>,
    /// Whether these pods were all seen; true for jobs without podSelector.
    pub(super) sees_pods: bool,
    /// What it has of the whole fleet's slots.
    pub(super) share: Share,
    /// Its place among those that wait for more of them.
    pub(super) waits_as: Option<Share>,
    /// A node was denied with the credentials it had; the Secrets are read again after this moment.
    pub(super) recheck: Option<Timestamp>,
    /// What an ImagePrePullJob has beside its progress.
    pub(super) work: Option<Box<Work>>,
}

/// A job that ended.
pub(super) struct Ended {
    pub(super) at: Timestamp,
    pub(super) pins: bool,
    pub(super) ttl: Option<SignedDuration>,
    /// Its last word, until the API has it.
    pub(super) last_word: Option<JobStatus>,
}

impl JobKey {
    pub(crate) fn of(metadata: &kube::core::ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Whether this is an ImagePrePullJob.
    pub(super) fn is_prepull(&self) -> bool {
        self.namespace.is_empty()
    }
}

impl Running {
    pub(super) fn new(progress: Progress, work: Option<Work>, share: Share) -> Self {
        let by_pods = matches!(progress.campaign().selection.by, SelectBy::Pods(_));
        Self {
            progress,
            pods: BTreeMap::new(),
            sees_pods: !by_pods,
            share,
            waits_as: None,
            recheck: None,
            work: work.map(Box::new),
        }
    }

    /// What the job says about itself.
    pub(super) fn status(&mut self, object: &JobObject, end: Option<End>, now: Timestamp) -> JobStatus {
        match (&self.work, object) {
            (Some(work), _) => work.status(&mut self.progress, object, end, now),
            (None, object) => {
                let previous = object.pull().and_then(|job| job.status.as_ref());
                let status = self.progress.status(previous, object.metadata().generation, end, now);
                JobStatus::Pull(Box::new(status))
            }
        }
    }
}

impl JobRecord {
    /// Forgets how far it is, and what is under way; the next sight of the job begins anew.
    pub(super) fn forget_progress(&mut self) {
        if matches!(self.state, JobState::Running(_) | JobState::Ended(_)) {
            self.state = JobState::Idle;
        }
        self.desk = Desk::default();
        self.ahead_of_watch = false;
        self.unread = true;
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, JobState::Running(_))
    }

    /// Whether the finalizer of other software is to be taken off.
    pub(super) fn has_foreign_finalizer(&self) -> bool {
        let leaving = self.object.metadata().deletion_timestamp.is_some();
        (leaving || !self.finalizer_taken) && self.object.foreign_finalizer().is_some()
    }

    /// Takes in what became of that finalizer in a write.
    pub(super) fn note_finalizer(&mut self, written: &JobObject) {
        self.finalizer_taken |= self.object.foreign_finalizer().is_some() && written.foreign_finalizer().is_none();
    }

    /// Uid of the list job that it belongs to.
    pub(super) fn parent(&self) -> Option<&str> {
        let owners = self.object.pull()?.metadata.owner_references.iter().flatten();
        let mut lists = owners.filter(|owner| owner.kind == "ImageListPullJob" && owner.controller == Some(true));
        lists.next().map(|owner| owner.uid.as_str())
    }
}

impl Ended {
    pub(super) fn of(campaign: Option<&Campaign>, at: Timestamp, last_word: Option<JobStatus>) -> Self {
        let ttl = campaign.and_then(|campaign| match campaign.ending {
            Ending::Always { ttl, .. } => ttl,
            Ending::Never => None,
        });
        Self {
            at,
            pins: campaign.is_some_and(|campaign| campaign.rules.pin),
            ttl,
            last_word,
        }
    }

    /// When the job is deleted.
    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        self.ttl.map(|ttl| self.at.checked_add(ttl).unwrap_or(Timestamp::MAX))
    }
}

impl Index {
    /// Takes in a job, from the watch or from a write.
    pub(super) fn see_job(&mut self, job: Box<ImagePullJob>, now: Timestamp) {
        self.take_in_job(JobObject::Pull(job), false, now);
    }

    /// The same for an ImagePrePullJob.
    pub(super) fn see_prepull(&mut self, job: Box<ImagePrePullJob>, now: Timestamp) {
        self.take_in_job(JobObject::PrePull(job), false, now);
    }

    pub(super) fn take_in_job(&mut self, mut job: JobObject, from_write: bool, now: Timestamp) {
        job.metadata_mut().managed_fields = None;
        let key = JobKey::of(job.metadata());
        let uid = job.metadata().uid.clone().unwrap_or_default();
        let known = self.job_keys.get(&key).copied();
        let same = known.filter(|id| self.jobs.get(id).is_some_and(|record| record.uid == uid));
        if known.is_some() && same.is_none() {
            self.job_gone(&key, now);
        }
        let id = match same {
            Some(id) => {
                let Some(record) = self.jobs.get_mut(&id) else {
                    return;
                };
                if record.ahead_of_watch && revision_of(job.metadata()) < revision_of(record.object.metadata()) {
                    return;
                }
                record.ahead_of_watch = from_write;
                record.object = job;
                record.unread = true;
                id
            }
            None => self.add_job(key, uid, job),
        };
        self.classify(id, now);
        self.agenda.job(id);
        self.wake_parent(id);
    }

    fn add_job(&mut self, key: JobKey, uid: String, object: JobObject) -> JobId {
        let id = self.next_job;
        self.next_job += 1;
        self.job_keys.insert(key.clone(), id);
        self.job_uids.insert(uid.clone(), id);
        let record = JobRecord {
            id,
            key,
            uid,
            object,
            unread: true,
            finalizer_taken: false,
            ahead_of_watch: false,
            state: JobState::Idle,
            refusal: None,
            desk: Desk::default(),
        };
        self.jobs.insert(id, record);
        id
    }

    /// Finds out where a job is in its life, and starts or edits its campaign.
    fn classify(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get(&id) else {
            return;
        };
        // An ImagePrePullJob is read when all nodes are known.
        let JobObject::Pull(job) = &record.object else {
            return;
        };
        if matches!(record.state, JobState::Leaving(_)) {
            return;
        }
        if job.metadata.deletion_timestamp.is_some() {
            self.stop(id, JobState::Leaving(now));
            return;
        }
        let campaign = image_pull_job::campaign(job);
        let ended = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
        match (ended.map(|time| time.0), campaign) {
            (Some(at), campaign) => self.ended_at(id, Ended::of(campaign.as_ref().ok(), at, None)),
            // Its last word is on its way. One that had arrived and is gone was taken back by somebody: it runs again.
            (None, _) if matches!(&record.state, JobState::Ended(ended) if ended.last_word.is_some()) => {}
            (None, _) if !self.limits.serve_jobs => self.refuse(id, Refusal::GateOff),
            (None, Err(why)) => self.refuse(id, Refusal::Spec(why)),
            (None, Ok(campaign)) => self.start_or_edit(id, campaign, now),
        }
    }

    /// The API says that a job ended.
    pub(super) fn ended_at(&mut self, id: JobId, ended: Ended) {
        match self.jobs.get_mut(&id).map(|record| &mut record.state) {
            // Its last word has arrived; the nodes know already.
            Some(JobState::Ended(known)) if known.at == ended.at => *known = ended,
            Some(_) => self.stop(id, JobState::Ended(ended)),
            None => {}
        }
    }

    pub(super) fn refuse(&mut self, id: JobId, refusal: Refusal) {
        self.stop(id, JobState::Idle);
        if let Some(record) = self.jobs.get_mut(&id) {
            record.refusal = Some(refusal);
        }
    }

    fn start_or_edit(&mut self, id: JobId, campaign: Campaign, now: Timestamp) {
        let Some(record) = self.jobs.get_mut(&id) else {
            return;
        };
        record.refusal = None;
        let status = record.object.pull().and_then(|job| job.status.as_ref());
        let started = status.and_then(|status| status.start_time.as_ref());
        // In whole seconds, as it is read back: deadlines count from here.
        let started = started.map_or(now, |time| time.0);
        let started = Timestamp::from_second(started.as_second()).unwrap_or(started);
        let changed = match &mut record.state {
            JobState::Running(running) if *running.progress.campaign() == campaign => false,
            JobState::Running(running) => {
                running.progress.edit(campaign, now);
                true
            }
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => {
                let share = Share::of_newcomer(self.served);
                let running = Running::new(Progress::new(campaign, started), None, share);
                record.state = JobState::Running(Box::new(running));
                self.running += 1;
                true
            }
        };
        if changed {
            self.look_for_logins(id);
            self.count_pods(id);
            self.reselect_job(id, now);
            self.wake_nodes_of(id);
        }
    }

    /// Ends a job's campaign, whatever it did: the nodes see to their entries.
    pub(super) fn stop(&mut self, id: JobId, state: JobState) {
        self.wake_nodes_of(id);
        for record in self.nodes.values_mut() {
            record.jobs.remove(&id);
        }
        self.forget_slots(id);
        if let Some(record) = self.jobs.get_mut(&id) {
            self.running -= usize::from(record.is_running());
            record.state = state;
        }
        self.forget_unused_secrets();
        self.settle_pods();
    }

    /// Every node on which a job has an entry, or may get one, is looked at.
    pub(super) fn wake_nodes_of(&mut self, id: JobId) {
        let Some(uid) = self.jobs.get(&id).map(|record| record.uid.clone()) else {
            return;
        };
        for (node, record) in &self.nodes {
            if record.image.may_name(&uid) {
                self.agenda.node(node);
            }
        }
    }

    /// The job's object is gone.
    pub(super) fn job_gone(&mut self, key: &JobKey, now: Timestamp) {
        let Some(id) = self.job_keys.get(key).copied() else {
            return;
        };
        self.wake_parent(id);
        let child = self
            .jobs
            .get(&id)
            .and_then(|record| Some((record.object.pull()?.clone(), record.parent()?.to_owned())));
        if let Some((child, parent)) = child {
            self.remember_child(&child, &parent);
        }
        self.stop(id, JobState::Leaving(now));
        if let Some(record) = self.jobs.remove(&id) {
            self.job_keys.remove(&record.key);
            self.job_uids.remove(&record.uid);
            self.notes.forget(&record.uid);
            self.depart(record.uid, now);
        }
    }

    fn wake_parent(&mut self, id: JobId) {
        let parent = self.jobs.get(&id).and_then(|record| record.parent());
        let list = parent.and_then(|uid| self.lists.values().find(|list| list.uid == uid));
        if let Some(key) = list.map(|list| list.key.clone()) {
            self.agenda.list(&key);
        }
    }
}

/// A resource version as a number; zero where it is none.
pub(super) fn revision<K: kube::Resource>(object: &K) -> u64 {
    revision_of(object.meta())
}

fn revision_of(metadata: &kube::core::ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::index::Limits;

    #[test]
    fn running_jobs_are_counted_as_they_come_and_go() {
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: false,
            serve_jobs: true,
        });
        let now = Timestamp::UNIX_EPOCH;
        let job = |name: &str, status: Value, image: &str| {
            let job = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                "metadata": {"name": name, "namespace": "team", "uid": name},
                "spec": {"image": image}, "status": status,
            });
            serde_json::from_value(job).unwrap()
        };
        let over = || json!({"completionTime": "2026-01-01T00:00:00Z"});
        let key = |name: &str| JobKey {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        };
        let count = |index: &Index| {
            let counted = index.jobs.values().filter(|job| job.is_running()).count();
            assert_eq!(index.sizes().running_jobs, counted);
            counted
        };
        index.see_job(job("a", Value::Null, "nginx"), now);
        index.see_job(job("b", Value::Null, "nginx"), now);
        index.see_job(job("c", over(), "nginx"), now);
        index.see_job(job("d", Value::Null, "UPPER/case"), now);
        assert_eq!(count(&index), 2);
        index.see_job(job("a", Value::Null, "redis"), now);
        assert_eq!(count(&index), 2, "an edit starts no second one");
        index.see_job(job("a", over(), "redis"), now);
        assert_eq!(count(&index), 1);
        index.job_gone(&key("a"), now);
        index.job_gone(&key("b"), now);
        assert_eq!(count(&index), 0);
        index.see_job(job("e", Value::Null, "nginx"), now);
        index.begin_anew();
        assert_eq!(count(&index), 0);
    }

    #[test]
    fn a_job_whose_status_somebody_cleared_is_served_again() {
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: false,
            serve_jobs: true,
        });
        let now = Timestamp::UNIX_EPOCH;
        let mut see = |version: &str, status: Value| {
            let job = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                "metadata": {"name": "job", "namespace": "team", "uid": "u", "resourceVersion": version},
                "spec": {"image": "nginx"}, "status": status,
            });
            index.see_job(serde_json::from_value(job).unwrap(), now);
            index.jobs.values().all(JobRecord::is_running)
        };
        assert!(see("1", Value::Null));
        assert!(!see("2", json!({"completionTime": "2026-01-01T00:00:00Z"})));
        assert!(see("3", Value::Null));
    }
}
