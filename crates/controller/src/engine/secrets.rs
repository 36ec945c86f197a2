//! The Secrets that running jobs and hand-written entries name: read by name, never listed, and kept only while they are
//! needed. This component knows nothing of jobs and nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use larder_planner::SecretRef;
use larder_planner::campaign::SecretScope;
use larder_planner::progress::Hold;
use larder_planner::secret::UnusableSecrets;
use larder_registry::docker_config::Entry;

/// A Secret that is missing is looked for this often.
pub(super) const LOOK_FOR_MISSING: SignedDuration = SignedDuration::from_secs(15);

/// A Secret that was read is good for handing out this long.
pub(super) const GOOD_FOR: SignedDuration = SignedDuration::from_secs(60);

/// After a refusal a Secret is read again, but not more often than this.
const RECHECK: SignedDuration = SignedDuration::from_secs(2);

/// What reading a Secret gave.
pub enum SecretRead {
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

impl SecretRead {
    fn is_the_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present { source, .. }, Self::Present { source: other, .. }) => source == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

/// The Secrets of a job, by what is known of them.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) unusable: UnusableSecrets,
    /// The controller may not read these.
    pub(super) forbidden: Vec<String>,
    /// Some are not known yet.
    pub(super) reading: bool,
}

impl Survey {
    /// Why the whole job hands out nothing.
    pub(super) fn hold(&self, scope: SecretScope) -> Option<Hold> {
        let names = |secrets: &BTreeSet<SecretRef>| secrets.iter().map(ToString::to_string).collect::<Vec<_>>();
        let unusable = match scope {
            SecretScope::Campaign => &self.unusable,
            SecretScope::Node => &UnusableSecrets::default(),
        };
        if !unusable.is_empty() || !self.forbidden.is_empty() {
            return Some(Hold::Secrets {
                missing: names(&unusable.missing),
                unreadable: names(&unusable.unreadable),
                forbidden: self.forbidden.clone(),
            });
        }
        self.reading.then_some(Hold::ReadingSecrets)
    }
}

/// All Secrets that are needed now.
#[derive(Default)]
pub(super) struct Secrets {
    records: BTreeMap<SecretRef, Record>,
    to_read: BTreeSet<SecretRef>,
}

#[derive(Default)]
struct Record {
    known: Option<SecretRead>,
    read_at: Option<Timestamp>,
    in_flight: bool,
}

impl Secrets {
    /// The next Secret to read.
    pub(super) fn next(&mut self) -> Option<SecretRef> {
        self.to_read.pop_first()
    }

    /// Takes in what reading a Secret gave; true if that is news.
    pub(super) fn was_read(&mut self, secret: &SecretRef, read: SecretRead, now: Timestamp) -> bool {
        let Some(record) = self.records.get_mut(secret) else {
            return false;
        };
        record.in_flight = false;
        record.read_at = Some(now);
        // What is known stays known when a read fails.
        let keeps = match (&read, &record.known) {
            (SecretRead::Failed, known) => known.is_some(),
            (SecretRead::Forbidden, known) => matches!(known, Some(SecretRead::Present { .. })),
            (SecretRead::Present { .. } | SecretRead::Missing | SecretRead::Unreadable, _) => false,
        };
        let news = !keeps && !record.known.as_ref().is_some_and(|known| known.is_the_same_as(&read));
        if !keeps {
            record.known = Some(read);
        }
        news
    }

    /// Has a Secret read, unless what is known is younger than `age`. True if it is on its way.
    pub(super) fn ask(&mut self, secret: &SecretRef, age: SignedDuration, now: Timestamp) -> bool {
        let record = self.records.entry(secret.clone()).or_default();
        let old = record
            .read_at
            .is_none_or(|read| read.checked_add(age).is_ok_and(|limit| limit <= now));
        if old && !record.in_flight {
            record.in_flight = true;
            self.to_read.insert(secret.clone());
        }
        record.in_flight
    }

    /// Has Secrets read that were not read since a refusal, and says when to ask again; None when all of them were.
    pub(super) fn ask_after(&mut self, denied: Timestamp, secrets: &[SecretRef], now: Timestamp) -> Option<Timestamp> {
        let fresh = |secret: &SecretRef| self.read_at(secret).is_some_and(|read| denied < read);
        if secrets.iter().all(fresh) {
            return None;
        }
        for secret in secrets {
            self.ask(secret, RECHECK, now);
        }
        now.checked_add(RECHECK).ok()
    }

    /// What is known of Secrets. Those that are not there are looked for; those that are, are read again while the job
    /// hands out.
    pub(super) fn survey(&mut self, secrets: &[SecretRef], hands_out: bool, now: Timestamp) -> Survey {
        let mut survey = Survey::default();
        for secret in secrets {
            match self.known(secret) {
                Some(SecretRead::Present { .. }) => {
                    survey.reading |= hands_out && self.ask(secret, GOOD_FOR, now);
                    continue;
                }
                Some(SecretRead::Missing) => {
                    survey.unusable.missing.insert(secret.clone());
                }
                Some(SecretRead::Unreadable) => {
                    survey.unusable.unreadable.insert(secret.clone());
                }
                Some(SecretRead::Forbidden) => survey.forbidden.push(secret.to_string()),
                Some(SecretRead::Failed) | None => survey.reading = true,
            }
            self.ask(secret, LOOK_FOR_MISSING, now);
        }
        survey
    }

    pub(super) fn known(&self, secret: &SecretRef) -> Option<&SecretRead> {
        self.records.get(secret)?.known.as_ref()
    }

    pub(super) fn read_at(&self, secret: &SecretRef) -> Option<Timestamp> {
        self.records.get(secret).and_then(|record| record.read_at)
    }

    /// Credentials of these Secrets together, and which state of them that is; None while one of them is not there.
    pub(super) fn credentials(&self, secrets: &[SecretRef]) -> Option<(String, Vec<Entry>)> {
        let mut sources = Vec::new();
        let mut all = Vec::new();
        for secret in secrets {
            let Some(SecretRead::Present { source, entries }) = self.known(secret) else {
                return None;
            };
            sources.push(source.as_str());
            all.extend(entries.iter().cloned());
        }
        Some((sources.join(" "), all))
    }

    /// Forgets the Secrets that nothing needs.
    pub(super) fn retain(&mut self, is_needed: impl Fn(&SecretRef) -> bool) {
        self.records.retain(|secret, _| is_needed(secret));
        self.to_read.retain(is_needed);
    }
}
