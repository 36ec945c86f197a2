//! The jobs that the controller knows: by id, by name and by uid, each with its state.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use larder_api::NodeImage;
use larder_planner::dialect::{Finished, Refusal};
use larder_planner::secret::UnusableSecrets;
use larder_planner::select::{LabelRule, SelectBy};
use larder_planner::{NodeKey, Progress, SecretRef};

use super::job::{AnyStatus, Job};
use super::revision;
use super::write_throttle::WriteThrottle;
use crate::kinds::KindId;

/// A job, as long as it is known.
pub type JobId = u32;

/// How long the uid of a deleted job is remembered. Entries that name it leave within seconds.
const REMEMBER_DELETED: SignedDuration = SignedDuration::from_hours(24);

/// Kind, namespace and name. The namespace of a job of a cluster-wide kind is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKey {
    pub kind: KindId,
    pub namespace: String,
    pub name: String,
}

/// What is known of one job.
pub(super) struct JobRecord {
    pub(super) key: JobKey,
    pub(super) uid: String,
    pub(super) job: Box<dyn Job>,
    /// The finalizer of other software was taken off once. If it comes back, that software still runs and needs it, until
    /// the job is deleted.
    finalizer_taken: bool,
    /// The object came back from a write of ours: the watch may still be behind it.
    ahead_of_watch: bool,
    pub(super) state: JobState,
    pub(super) throttle: WriteThrottle,
}

/// Where a job is in its life.
pub(super) enum JobState {
    /// Not looked at yet.
    Idle,
    /// Not served; the job's status says why.
    Refused(Refusal),
    Running(Box<Running>),
    Ended(EndedJob),
    /// Being deleted, noticed at this moment.
    Leaving(Timestamp),
}

/// A job that runs.
pub(super) struct Running {
    pub(super) progress: Progress,
    /// Matching pods on each node, for a job that selects nodes by pods; None while they are not all known.
    pub(super) pods: Option<BTreeMap<NodeKey, usize>>,
    /// The Secrets that cannot be used.
    pub(super) unusable: UnusableSecrets,
    /// A node was denied with the credentials it had; the Secrets are read again after this moment.
    pub(super) denied: Option<Timestamp>,
}

/// A job that ended.
pub(super) struct EndedJob {
    pub(super) at: Timestamp,
    pub(super) pins: bool,
    pub(super) ttl: Option<SignedDuration>,
    /// Its final status, until the API has it.
    pub(super) final_status: Option<AnyStatus>,
}

/// All jobs.
#[derive(Default)]
pub(super) struct Jobs {
    records: BTreeMap<JobId, JobRecord>,
    by_key: BTreeMap<JobKey, JobId>,
    by_uid: BTreeMap<String, JobId>,
    /// Jobs whose object changed since it was last read.
    unread: BTreeSet<JobId>,
    next: JobId,
    /// Deleted jobs, and when that was noticed: entries may still name them.
    deleted: BTreeMap<String, Timestamp>,
    running: usize,
}

/// What became of an object that was seen.
pub(super) enum Observed {
    /// It is older than what is known.
    Stale,
    /// It is known under this id.
    Job(JobId),
}

impl Running {
    pub(super) fn new(progress: Progress) -> Self {
        let mut running = Self {
            progress,
            pods: None,
            unusable: UnusableSecrets::default(),
            denied: None,
        };
        running.forget_pods();
        running
    }

    /// Whether the nodes of the job are known: one that selects nodes by pods knows them when all its pods are known.
    pub(super) fn knows_nodes(&self) -> bool {
        self.pods.is_some()
    }

    /// Starts counting pods anew.
    pub(super) fn forget_pods(&mut self) {
        let by_pods = matches!(self.progress.campaign().selection.by, SelectBy::Pods(_));
        self.pods = (!by_pods).then(BTreeMap::new);
    }
}

impl EndedJob {
    pub(super) fn new(finished: Finished, at: Timestamp, final_status: Option<AnyStatus>) -> Self {
        Self {
            at,
            pins: finished.pins,
            ttl: finished.ttl,
            final_status,
        }
    }

    /// When the job is deleted.
    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        self.ttl.map(|ttl| self.at.checked_add(ttl).unwrap_or(Timestamp::MAX))
    }
}

impl JobRecord {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, JobState::Running(_))
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match &self.state {
            JobState::Running(running) => Some(running),
            JobState::Idle | JobState::Refused(_) | JobState::Ended(_) | JobState::Leaving(_) => None,
        }
    }

    /// Whether the finalizer of other software is to be taken off.
    pub(super) fn takes_finalizer_off(&self) -> bool {
        let leaving = self.job.metadata().deletion_timestamp.is_some();
        (leaving || !self.finalizer_taken) && self.job.has_foreign_finalizer()
    }

    /// When the job is deleted because its time to live is over. A job that is part of another one goes with that one.
    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        match &self.state {
            JobState::Ended(ended) if !self.job.has_parent() => ended.leaves_at(),
            _ => None,
        }
    }

    fn forget_progress(&mut self) {
        self.state = JobState::Idle;
        self.job.stop();
        self.throttle.restart();
        self.ahead_of_watch = false;
    }
}

impl Jobs {
    pub(super) fn get(&self, id: JobId) -> Option<&JobRecord> {
        self.records.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut JobRecord> {
        self.records.get_mut(&id)
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn is_unread(&self, id: JobId) -> bool {
        self.unread.contains(&id)
    }

    /// The next job whose object has to be read.
    pub(super) fn next_unread(&mut self) -> Option<JobId> {
        self.unread.pop_first()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = JobId> + '_ {
        self.records.keys().copied()
    }

    /// The ids of running jobs.
    pub(super) fn running_ids(&self) -> Vec<JobId> {
        let running = self.records.iter().filter(|(_, record)| record.is_running());
        running.map(|(id, _)| *id).collect()
    }

    /// All records, as an ordered map.
    pub(super) fn records(&self) -> &BTreeMap<JobId, JobRecord> {
        &self.records
    }

    pub(super) fn running(&self, id: JobId) -> Option<&Running> {
        self.records.get(&id)?.running()
    }

    pub(super) fn running_mut(&mut self, id: JobId) -> Option<&mut Running> {
        self.running_job_mut(id).map(|(_, running)| running)
    }

    /// A running job and its state.
    pub(super) fn running_job_mut(&mut self, id: JobId) -> Option<(&mut dyn Job, &mut Running)> {
        let record = self.records.get_mut(&id)?;
        match &mut record.state {
            JobState::Running(running) => Some((&mut *record.job, running)),
            JobState::Idle | JobState::Refused(_) | JobState::Ended(_) | JobState::Leaving(_) => None,
        }
    }

    pub(super) fn id_of(&self, key: &JobKey) -> Option<JobId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn id_of_uid(&self, uid: &str) -> Option<JobId> {
        self.by_uid.get(uid).copied()
    }

    /// The jobs that own entries of a NodeImage.
    pub(super) fn owners_in(&self, image: Option<&NodeImage>) -> BTreeSet<JobId> {
        let images = image.into_iter().flat_map(|image| image.spec.images.values());
        let entries = images.flat_map(|image| &image.tags);
        let owners = entries.flat_map(|entry| &entry.owner_references);
        let uids = owners.filter_map(|owner| owner.uid.as_ref());
        uids.filter_map(|uid| self.id_of_uid(uid)).collect()
    }

    /// The Secrets that a running job names.
    pub(super) fn secrets_of(&self, id: JobId) -> &[SecretRef] {
        let running = self.running(id);
        running.map_or(&[], |running| &running.progress.campaign().secrets)
    }

    /// The running jobs that name a Secret.
    pub(super) fn that_use(&self, secret: &SecretRef) -> Vec<JobId> {
        let running = self.running_ids().into_iter();
        running.filter(|id| self.secrets_of(*id).contains(secret)).collect()
    }

    /// The running jobs that select nodes by pods, and how they select the pods, which are in the job's own namespace.
    pub(super) fn by_pods(&self) -> impl Iterator<Item = (JobId, &JobKey, &LabelRule)> {
        self.records.iter().filter_map(|(id, record)| {
            let selection = &record.running()?.progress.campaign().selection;
            match &selection.by {
                SelectBy::Pods(rule) => Some((*id, &record.key, rule)),
                SelectBy::All | SelectBy::Names(_) | SelectBy::Fixed(_) | SelectBy::Labels(_) => None,
            }
        })
    }

    /// The names of all jobs of a kind.
    pub(super) fn keys_of(&self, kind: KindId) -> Vec<JobKey> {
        let keys = self.by_key.keys().filter(|key| key.kind == kind);
        keys.cloned().collect()
    }

    /// When it was noticed that a job is deleted, if it was known.
    pub(super) fn deleted_at(&self, uid: &str) -> Option<Timestamp> {
        self.deleted.get(uid).copied()
    }

    pub(super) fn running_count(&self) -> usize {
        self.running
    }

    /// Takes in an object. A job of the same name and another uid has to be removed before.
    pub(super) fn observe(&mut self, job: Box<dyn Job>, from_write: bool) -> Observed {
        let (key, uid) = (job.key(), job.uid());
        let Some(id) = self.id_of(&key) else {
            return Observed::Job(self.add(key, uid, job, from_write));
        };
        let Some(record) = self.records.get_mut(&id) else {
            return Observed::Stale;
        };
        let older = revision(job.metadata()) < revision(record.job.metadata());
        if (record.ahead_of_watch || from_write) && older {
            return Observed::Stale;
        }
        if from_write {
            record.finalizer_taken |= record.job.has_foreign_finalizer() && !job.has_foreign_finalizer();
        }
        record.ahead_of_watch = from_write;
        record.job.replace_object(job);
        self.unread.insert(id);
        Observed::Job(id)
    }

    fn add(&mut self, key: JobKey, uid: String, job: Box<dyn Job>, from_write: bool) -> JobId {
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        self.deleted.remove(&uid);
        self.by_uid.insert(uid.clone(), id);
        let record = JobRecord {
            key,
            uid,
            job,
            finalizer_taken: false,
            ahead_of_watch: from_write,
            state: JobState::Idle,
            throttle: WriteThrottle::default(),
        };
        self.records.insert(id, record);
        self.unread.insert(id);
        id
    }

    /// Puts a job into another state.
    pub(super) fn set_state(&mut self, id: JobId, state: JobState) {
        if let Some(record) = self.records.get_mut(&id) {
            self.running -= usize::from(record.is_running());
            record.state = state;
            if record.is_running() {
                self.running += 1;
            } else {
                record.job.stop();
            }
        }
    }

    /// Forgets a job whose object is gone.
    pub(super) fn remove(&mut self, id: JobId, now: Timestamp) -> Option<JobRecord> {
        let record = self.records.remove(&id)?;
        self.running -= usize::from(record.is_running());
        self.by_key.remove(&record.key);
        self.by_uid.remove(&record.uid);
        self.unread.remove(&id);
        let limit = now.checked_sub(REMEMBER_DELETED).unwrap_or(Timestamp::MIN);
        self.deleted.retain(|_, noticed| limit < *noticed);
        self.deleted.insert(record.uid.clone(), now);
        Some(record)
    }

    /// Forgets how far jobs are, and what is in flight: the next look at each begins anew.
    pub(super) fn restart(&mut self) {
        self.records.values_mut().for_each(JobRecord::forget_progress);
        self.unread = self.ids().collect();
        self.running = 0;
        // After the clock was set back, these moments would be in the future.
        self.deleted.clear();
    }
}
