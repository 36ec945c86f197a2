//! One ImagePullJob: its campaign while it runs, and what is left of it afterwards.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use larder_api::names::KRUISE_FINALIZER;
use larder_api::{ImagePullJob, ImagePullJobStatus};
use larder_planner::campaign::{Campaign, Ending};
use larder_planner::select::SelectBy;
use larder_planner::{NodeKey, Progress};

use super::Index;
use super::desk::Desk;
use crate::kinds::image_pull_job;

/// A job, as long as it is known.
pub(crate) type JobId = u32;

/// Namespace and name.
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
    pub(super) object: ImagePullJob,
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
    pub(super) slots: usize,
    /// A node was denied with the credentials it had; the Secrets are read again after this moment.
    pub(super) recheck: Option<Timestamp>,
}

/// A job that ended.
pub(super) struct Ended {
    pub(super) at: Timestamp,
    pub(super) pins: bool,
    pub(super) ttl: Option<SignedDuration>,
    /// Its last word, until the API has it.
    pub(super) last_word: Option<Box<ImagePullJobStatus>>,
}

impl JobKey {
    pub(crate) fn of(metadata: &kube::core::ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
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
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, JobState::Running(_))
    }

    /// Whether the finalizer of other software is in the way of its deletion.
    pub(super) fn has_foreign_finalizer(&self) -> bool {
        let finalizers = self.object.metadata.finalizers.iter().flatten();
        finalizers.into_iter().any(|finalizer| finalizer == KRUISE_FINALIZER)
    }

    /// Uid of the list job that it belongs to.
    pub(super) fn parent(&self) -> Option<&str> {
        let owners = self.object.metadata.owner_references.iter().flatten();
        let mut lists = owners.filter(|owner| owner.kind == "ImageListPullJob" && owner.controller == Some(true));
        lists.next().map(|owner| owner.uid.as_str())
    }
}

impl Ended {
    pub(super) fn of(campaign: Option<&Campaign>, at: Timestamp, last_word: Option<Box<ImagePullJobStatus>>) -> Self {
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
    pub(super) fn see_job(&mut self, job: ImagePullJob, now: Timestamp) {
        self.take_in_job(job, false, now);
    }

    pub(super) fn take_in_job(&mut self, mut job: ImagePullJob, from_write: bool, now: Timestamp) {
        job.metadata.managed_fields = None;
        let key = JobKey::of(&job.metadata);
        let uid = job.metadata.uid.clone().unwrap_or_default();
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
                if record.ahead_of_watch && revision(&job) < revision(&record.object) {
                    return;
                }
                record.ahead_of_watch = from_write;
                record.object = job;
                id
            }
            None => self.add_job(key, uid, job),
        };
        self.classify(id, now);
        self.agenda.job(id);
        self.wake_parent(id);
    }

    fn add_job(&mut self, key: JobKey, uid: String, object: ImagePullJob) -> JobId {
        let id = self.next_job;
        self.next_job += 1;
        self.job_keys.insert(key.clone(), id);
        self.job_uids.insert(uid.clone(), id);
        let record = JobRecord {
            id,
            key,
            uid,
            object,
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
        if matches!(record.state, JobState::Leaving(_)) {
            return;
        }
        if record.object.metadata.deletion_timestamp.is_some() {
            self.stop(id, JobState::Leaving(now));
            return;
        }
        let campaign = image_pull_job::campaign(&record.object);
        let ended = record
            .object
            .status
            .as_ref()
            .and_then(|status| status.completion_time.as_ref());
        match (ended.map(|time| time.0), campaign) {
            (Some(at), campaign) => self.ended_at(id, Ended::of(campaign.as_ref().ok(), at, None)),
            // Its last word is on its way.
            (None, _) if matches!(record.state, JobState::Ended(_)) => {}
            (None, _) if !self.limits.serve_jobs => self.refuse(id, Refusal::GateOff),
            (None, Err(why)) => self.refuse(id, Refusal::Spec(why)),
            (None, Ok(campaign)) => self.start_or_edit(id, campaign, now),
        }
    }

    /// The API says that a job ended.
    fn ended_at(&mut self, id: JobId, ended: Ended) {
        match self.jobs.get_mut(&id).map(|record| &mut record.state) {
            // Its last word has arrived; the nodes know already.
            Some(JobState::Ended(known)) if known.at == ended.at => *known = ended,
            Some(_) => self.stop(id, JobState::Ended(ended)),
            None => {}
        }
    }

    fn refuse(&mut self, id: JobId, refusal: Refusal) {
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
        let started = record
            .object
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref());
        // In whole seconds, as it is read back: deadlines count from here.
        let started = started.map_or(now, |time| time.0);
        let started = Timestamp::from_second(started.as_second()).unwrap_or(started);
        let by_pods = matches!(campaign.selection.by, SelectBy::Pods(_));
        let changed = match &mut record.state {
            JobState::Running(running) if *running.progress.campaign() == campaign => false,
            JobState::Running(running) => {
                running.progress.edit(campaign, now);
                true
            }
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => {
                record.state = JobState::Running(Box::new(Running {
                    progress: Progress::new(campaign, started),
                    pods: BTreeMap::new(),
                    sees_pods: !by_pods,
                    slots: 0,
                    recheck: None,
                }));
                true
            }
        };
        if changed {
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
            record.state = state;
        }
        self.forget_unused_secrets();
        self.settle_pods();
    }

    /// The whole fleet's count no longer holds a job's slots.
    fn forget_slots(&mut self, id: JobId) {
        self.starved.remove(&id);
        let Some(running) = self.running_mut(id) else {
            return;
        };
        let slots = std::mem::take(&mut running.slots);
        self.slots -= slots;
        self.wake_starved();
    }

    /// Every node on which a job has an entry, or may get one, is looked at.
    fn wake_nodes_of(&mut self, id: JobId) {
        let Some(uid) = self.jobs.get(&id).map(|record| record.uid.clone()) else {
            return;
        };
        for (node, record) in &self.nodes {
            let tags = record
                .image
                .iter()
                .flat_map(|image| image.spec.images.values())
                .flat_map(|image| &image.tags);
            let mut owners = tags.flat_map(|entry| &entry.owner_references);
            if owners.any(|owner| owner.uid.as_ref() == Some(&uid)) {
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
            .and_then(|record| Some((record.object.clone(), record.parent()?.to_owned())));
        if let Some((child, parent)) = child {
            self.remember_child(&child, &parent);
        }
        self.stop(id, JobState::Leaving(now));
        if let Some(record) = self.jobs.remove(&id) {
            self.job_keys.remove(&record.key);
            self.job_uids.remove(&record.uid);
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
    let version = object.meta().resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
