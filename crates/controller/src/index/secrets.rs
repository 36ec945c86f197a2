//! The Secrets that running jobs name: read by name, never listed, and kept only while somebody needs them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use larder_api::names::{KRUISE_SECRET_NAMESPACE, LARDER_NAMESPACE};
use larder_planner::NodeKey;
use larder_planner::prepull::SecretRef;
use larder_planner::progress::Hold;
use larder_registry::docker_config::Entry;

use super::jobs::JobState;
use super::{Index, JobId};

/// A Secret that is missing is looked for this often.
const LOOK_FOR_MISSING: SignedDuration = SignedDuration::from_secs(15);

/// A Secret that was read is good for handing out this long.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(60);

/// After a refusal a Secret is read again, but not more often than this.
const RECHECK: SignedDuration = SignedDuration::from_secs(2);

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SecretKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What reading a Secret gave.
pub(crate) enum SecretAnswer {
    /// Credentials, and which state of the Secret they come from.
    Present { source: String, entries: Vec<Entry> },
    /// There is none.
    Missing,
    /// It holds no docker configuration.
    Unreadable,
    /// The controller may not read it.
    Forbidden,
    /// It could not be read this time.
    Failed,
}

impl SecretAnswer {
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present { source, .. }, Self::Present { source: other, .. }) => source == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

/// All Secrets that are needed now.
#[derive(Default)]
pub(super) struct Secrets {
    records: BTreeMap<SecretKey, Record>,
    wanted: BTreeSet<SecretKey>,
}

#[derive(Default)]
struct Record {
    answer: Option<SecretAnswer>,
    read_at: Option<Timestamp>,
    under_way: bool,
}

impl Record {
    /// Takes in what reading the Secret gave; true if that is news.
    fn take_in(&mut self, answer: SecretAnswer, now: Timestamp) -> bool {
        self.under_way = false;
        self.read_at = Some(now);
        // What is known stays known when a read fails.
        let keeps = match (&answer, &self.answer) {
            (SecretAnswer::Failed, known) => known.is_some(),
            (SecretAnswer::Forbidden, known) => matches!(known, Some(SecretAnswer::Present { .. })),
            (SecretAnswer::Present { .. } | SecretAnswer::Missing | SecretAnswer::Unreadable, _) => false,
        };
        let news = !keeps && !self.answer.as_ref().is_some_and(|known| known.says_the_same(&answer));
        if !keeps {
            self.answer = Some(answer);
        }
        news
    }
}

impl Secrets {
    /// Has a Secret read, unless what is known is younger than `age`. True if it is on its way.
    fn ask(&mut self, key: &SecretKey, age: SignedDuration, now: Timestamp) -> bool {
        let record = self.records.entry(key.clone()).or_default();
        let old = record
            .read_at
            .is_none_or(|read| read.checked_add(age).is_ok_and(|limit| limit <= now));
        if old && !record.under_way {
            record.under_way = true;
            self.wanted.insert(key.clone());
        }
        record.under_way
    }

    /// Has Secrets read that were not read since a refusal, and says when to ask again; None when all of them were.
    fn ask_after(&mut self, denied: Timestamp, keys: &[SecretKey], now: Timestamp) -> Option<Timestamp> {
        let fresh = |key: &SecretKey| self.read_at(key).is_some_and(|read| denied < read);
        if keys.iter().all(fresh) {
            return None;
        }
        for key in keys {
            self.ask(key, RECHECK, now);
        }
        now.checked_add(RECHECK).ok()
    }

    fn answer(&self, key: &SecretKey) -> Option<&SecretAnswer> {
        self.records.get(key)?.answer.as_ref()
    }

    fn read_at(&self, key: &SecretKey) -> Option<Timestamp> {
        self.records.get(key).and_then(|record| record.read_at)
    }

    /// Credentials of these Secrets together, and which state of them that is; None while one of them is not there.
    pub(super) fn credentials(&self, keys: &[SecretKey]) -> Option<(String, Vec<Entry>)> {
        let mut sources = Vec::new();
        let mut all = Vec::new();
        for key in keys {
            let Some(SecretAnswer::Present { source, entries }) = self.records.get(key)?.answer.as_ref() else {
                return None;
            };
            sources.push(source.as_str());
            all.extend(entries.iter().cloned());
        }
        Some((sources.join(" "), all))
    }

    fn hold(&self, keys: &[SecretKey]) -> Option<Hold> {
        let (mut missing, mut unreadable, mut forbidden) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            let name = format!("{}/{}", key.namespace, key.name);
            match self.records.get(key).and_then(|record| record.answer.as_ref()) {
                Some(SecretAnswer::Present { .. }) => {}
                Some(SecretAnswer::Missing) => missing.push(name),
                Some(SecretAnswer::Unreadable) => unreadable.push(name),
                Some(SecretAnswer::Forbidden) => forbidden.push(name),
                Some(SecretAnswer::Failed) | None => return Some(Hold::ReadingSecrets),
            }
        }
        let unusable = !missing.is_empty() || !unreadable.is_empty() || !forbidden.is_empty();
        unusable.then_some(Hold::Secrets {
            missing,
            unreadable,
            forbidden,
        })
    }
}

impl Index {
    /// The next Secret to read.
    pub(crate) fn next_secret(&mut self) -> Option<SecretKey> {
        self.secrets.wanted.pop_first()
    }

    /// Takes in what reading a Secret gave.
    pub(crate) fn secret_read(&mut self, key: &SecretKey, answer: SecretAnswer, now: Timestamp) {
        let Some(record) = self.secrets.records.get_mut(key) else {
            return;
        };
        let news = record.take_in(answer, now);
        for job in self.jobs_that_name(key) {
            if news {
                self.look_for_logins(job);
            }
            // A node that was denied may now be given something better. A Secret that is as it was is read again and again
            // while a job waits for it, and looking at every node each time would cost too much.
            if news {
                self.reselect_job(job, now);
            }
            self.agenda.job(job);
        }
        if news && is_for_hand_written(&key.namespace) {
            let nodes: Vec<_> = self.nodes.keys().cloned().collect();
            for node in &nodes {
                self.agenda.node(node);
            }
        }
    }

    /// The Secrets that a job names.
    pub(super) fn secrets_of(&self, job: JobId) -> Vec<SecretKey> {
        let Some(record) = self.jobs.get(&job) else {
            return Vec::new();
        };
        let JobState::Running(running) = &record.state else {
            return Vec::new();
        };
        // An ImagePrePullJob has no namespace; its Secrets say theirs. Nobody else may name those of other namespaces.
        let says_namespace = record.key.is_prepull();
        let key = |name: &String| match name.split_once('/').filter(|_| says_namespace) {
            Some((namespace, name)) => SecretKey {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            None => SecretKey {
                namespace: record.key.namespace.clone(),
                name: name.clone(),
            },
        };
        running.progress.campaign().secrets.iter().map(key).collect()
    }

    fn jobs_that_name(&self, key: &SecretKey) -> Vec<JobId> {
        self.jobs
            .keys()
            .copied()
            .filter(|job| self.secrets_of(*job).contains(key))
            .collect()
    }

    /// Why a job hands out nothing, and when to ask again.
    pub(super) fn hold_for(&mut self, job: JobId, now: Timestamp) -> (Option<Hold>, Option<Timestamp>) {
        let keys = self.secrets_of(job);
        let ask_again = self.recheck(job, &keys, now);
        if self.running(job).is_some_and(|running| running.work.is_some()) {
            return self.hold_for_prepull(job, &keys, ask_again, now);
        }
        let hold = self.secrets.hold(&keys);
        let waits_for_turn = self
            .running(job)
            .is_some_and(|running| running.progress.wants_allowance());
        let age = match hold {
            Some(Hold::Secrets { .. } | Hold::ReadingSecrets) => Some(LOOK_FOR_MISSING),
            _ if waits_for_turn => Some(GOOD_FOR),
            _ => None,
        };
        let mut reading = false;
        if let Some(age) = age {
            for key in &keys {
                reading |= self.secrets.ask(key, age, now);
            }
        }
        if self.limits.pause {
            return (Some(Hold::FleetPaused), ask_again);
        }
        match hold {
            None | Some(Hold::FleetPaused) if reading => (Some(Hold::ReadingSecrets), ask_again),
            None | Some(Hold::FleetPaused) => (None, ask_again),
            Some(hold) => {
                let later = now.checked_add(LOOK_FOR_MISSING).ok();
                (Some(hold), [ask_again, later].into_iter().flatten().min())
            }
        }
    }

    /// The same for an ImagePrePullJob: nodes that need a Secret which cannot be used wait, the others go on.
    fn hold_for_prepull(
        &mut self,
        job: JobId,
        keys: &[SecretKey],
        ask_again: Option<Timestamp>,
        now: Timestamp,
    ) -> (Option<Hold>, Option<Timestamp>) {
        let Some(running) = self.running(job) else {
            return (None, None);
        };
        let waits_for_turn = running.progress.wants_allowance() || running.progress.is_held();
        let (mut missing, mut unreadable, mut forbidden) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let (mut reading, mut looks_again) = (false, false);
        for key in keys {
            let name = || SecretRef::of(&key.namespace, &key.name).ok();
            match self.secrets.answer(key) {
                Some(SecretAnswer::Present { .. }) => {
                    reading |= waits_for_turn && self.secrets.ask(key, GOOD_FOR, now);
                    continue;
                }
                Some(SecretAnswer::Missing) => missing.extend(name()),
                Some(SecretAnswer::Unreadable) => unreadable.extend(name()),
                Some(SecretAnswer::Forbidden) => forbidden.push(format!("{}/{}", key.namespace, key.name)),
                Some(SecretAnswer::Failed) | None => reading = true,
            }
            looks_again = true;
            self.secrets.ask(key, LOOK_FOR_MISSING, now);
        }
        self.mark_unusable(job, missing, unreadable, now);
        let later = looks_again.then(|| now.checked_add(LOOK_FOR_MISSING).ok()).flatten();
        let next = [ask_again, later].into_iter().flatten().min();
        let hold = match (self.limits.pause, reading) {
            (true, _) => Some(Hold::FleetPaused),
            // Not the job's fault but the controller's: nothing is handed out until somebody lets it in.
            (false, _) if !forbidden.is_empty() => Some(Hold::Secrets {
                missing: Vec::new(),
                unreadable: Vec::new(),
                forbidden,
            }),
            (false, true) => Some(Hold::ReadingSecrets),
            (false, false) => None,
        };
        (hold, next)
    }

    /// Notes which Secrets of an ImagePrePullJob cannot be used; nodes are shown again when that changes.
    pub(super) fn mark_unusable(
        &mut self,
        job: JobId,
        missing: BTreeSet<SecretRef>,
        unreadable: BTreeSet<SecretRef>,
        now: Timestamp,
    ) {
        let work = self.running_mut(job).and_then(|running| running.work.as_deref_mut());
        let Some(work) = work.filter(|work| work.missing != missing || work.unreadable != unreadable) else {
            return;
        };
        (work.missing, work.unreadable) = (missing, unreadable);
        self.reselect_job(job, now);
    }

    /// After a refusal the Secrets are read again, and only then is the refusal final.
    fn recheck(&mut self, job: JobId, keys: &[SecretKey], now: Timestamp) -> Option<Timestamp> {
        let denied = self.running(job)?.recheck?;
        let again = self.secrets.ask_after(denied, keys, now);
        if again.is_none() {
            self.running_mut(job)?.recheck = None;
        }
        again
    }

    /// The same for hand-written entries of a node, which try again by themselves when they are given something else.
    pub(super) fn recheck_by_hand(&mut self, node: &NodeKey, keys: &[SecretKey], now: Timestamp) -> Option<Timestamp> {
        let denied = self.nodes.get(node)?.denied?;
        let again = self.secrets.ask_after(denied, keys, now);
        if again.is_none() {
            self.nodes.get_mut(node)?.denied = None;
        }
        again
    }

    /// Has the Secrets of hand-written entries read, and says when to look again for one that cannot be used.
    pub(super) fn ask_for(&mut self, keys: &[SecretKey], now: Timestamp) -> Option<Timestamp> {
        let mut again: Option<Timestamp> = None;
        for key in keys {
            if let Some(SecretAnswer::Present { .. }) = self.secrets.answer(key) {
                self.secrets.ask(key, GOOD_FOR, now);
                continue;
            }
            let reading = self.secrets.ask(key, LOOK_FOR_MISSING, now);
            let since = self.secrets.read_at(key).filter(|_| !reading).unwrap_or(now);
            let next = since.checked_add(LOOK_FOR_MISSING).ok();
            again = [again, next].into_iter().flatten().min();
        }
        again
    }

    pub(super) fn forget_unused_secrets(&mut self) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        let used: BTreeSet<SecretKey> = jobs.into_iter().flat_map(|job| self.secrets_of(job)).collect();
        let stays = |key: &SecretKey| used.contains(key) || is_for_hand_written(&key.namespace);
        self.secrets.records.retain(|key, _| stays(key));
        self.secrets.wanted.retain(stays);
    }
}

/// Whether hand-written entries may name Secrets of this namespace.
pub(super) fn is_for_hand_written(namespace: &str) -> bool {
    namespace == LARDER_NAMESPACE || namespace == KRUISE_SECRET_NAMESPACE
}

#[cfg(test)]
mod tests;
