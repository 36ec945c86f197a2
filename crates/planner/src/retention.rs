//! Which entries of a NodeImage stay, and when the others leave: an entry lives as long as somebody needs it.
//!
//! - An entry of jobs stays while one of them runs, and its time to live begins when the last of them ended.
//! - A pinned entry stays until the last job that pins it is deleted.
//! - A job that is deleted, that no longer selects the node, or that asks for another image now, is taken off its entry.
//! - An entry that somebody wrote by hand has a time to live of its own, from the moment when the controller sees that its
//!   pull ended ([`HandWrittenEnds`]): the node's time of that is of another clock.
//! - Owners of kinds that nobody here knows are kept as they are.
//!
//! Everything that is due leaves in one write.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::NodeImage;
use larder_api::contract::{Answer, answer};
use larder_api::node_image::{ImageSpec, ImageTagSpec, ImageTagStatus, NodeImageSpec};
use larder_api::template::SandboxConfig;

use crate::campaign::{later, whole_seconds};
use crate::claim::{Terms, tune};
use crate::jitter;

/// Jobs are deleted one after another when a list, a namespace or several by hand are deleted: what was theirs stays this
/// long, and when the first of them has to leave a node, those deleted since leave with it.
const SETTLE: SignedDuration = SignedDuration::from_secs(1);

/// When a job ends at its deadline its nodes are given this long to say so themselves, before their order is taken away.
const LAST_WORD: SignedDuration = SignedDuration::from_secs(10);

/// Entries of a node whose time is over leave at one moment of each minute, so that jobs that ended together cost one
/// write and not one each.
const SWEEP_SECONDS: i64 = 60;

/// What an owner of an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryOwner {
    /// Of a kind that nobody here knows, or not looked up yet.
    Unknown,
    /// Deleted, and noticed at this moment.
    Gone(Timestamp),
    /// A job that has not ended, with what it asks for; None if it does not want this image on this node any more.
    Running(Option<Terms>),
    /// A job that ended at this moment.
    Ended {
        /// When.
        at: Timestamp,
        /// Whether it pins the image as long as it exists.
        pins: bool,
    },
}

/// What is to become of a NodeImage's spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The spec as it should be.
    pub spec: NodeImageSpec,
    /// When time alone changes it again.
    pub next: Option<Timestamp>,
}

/// When it was seen that the pulls of entries without owners had ended, by the clock of the one who saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandWrittenEnds(BTreeMap<(String, String), (i64, Timestamp)>);

impl HandWrittenEnds {
    /// Nothing was seen.
    pub const NONE: Self = Self(BTreeMap::new());

    /// Takes in a NodeImage as it is seen at `now`.
    pub fn observe(&mut self, object: &NodeImage, now: Timestamp) {
        let mut ends = BTreeMap::new();
        for (name, image) in &object.spec.images {
            for entry in image.tags.iter().filter(|entry| entry.owner_references.is_empty()) {
                let status = object.result(name, &entry.tag);
                let ended =
                    status.is_some_and(|status| status.version() == entry.version && status.completion_time.is_some());
                if ended {
                    let key = (name.clone(), entry.tag.clone());
                    let known = self.0.get(&key).filter(|(version, _)| *version == entry.version);
                    let end = known.copied().unwrap_or((entry.version, now));
                    ends.insert(key, end);
                }
            }
        }
        self.0 = ends;
    }

    fn of(&self, name: &str, entry: &ImageTagSpec) -> Option<Timestamp> {
        let (version, end) = self.0.get(&(name.to_owned(), entry.tag.clone()))?;
        (*version == entry.version).then_some(*end)
    }
}

/// Which image and tag an owner is asked about.
#[derive(Clone, Copy, Debug)]
pub struct EntryName<'a> {
    /// Familiar image name.
    pub name: &'a str,
    /// Tag or digest.
    pub tag: &'a str,
}

/// Goes over a spec, which may already differ from the object's own, and gives back what should be there. `owner` says what
/// an owner reference of an entry is.
pub fn sweep(
    object: &NodeImage,
    spec: NodeImageSpec,
    owner: impl Fn(EntryName<'_>, &ObjectReference) -> EntryOwner,
    hand_written: &HandWrittenEnds,
    now: Timestamp,
) -> Sweep {
    let node = object.metadata.name.as_deref().unwrap_or_default();
    let owners = owners_of(&spec, owner);
    let settled = |owner: &EntryOwner| matches!(owner, EntryOwner::Gone(noticed) if later(*noticed, SETTLE) <= now);
    let gone_leave = owners.iter().flatten().any(settled);
    let mut owners = owners.into_iter();
    let mut swept = Sweep { spec, next: None };
    for (name, image) in &mut swept.spec.images {
        let mut newest: Option<(Timestamp, i64, Option<SandboxConfig>)> = None;
        image.tags.retain_mut(|entry| {
            let status = object.result(name, &entry.tag);
            let owners = owners.next().unwrap_or_default();
            let mut keeper = Keeper {
                ended: hand_written.of(name, entry),
                entry,
                status,
                node,
                now,
                gone_leave,
                next: &mut swept.next,
            };
            let stays = keeper.keep(&owners);
            if stays && let Some(sandbox) = sandbox_of(entry, &owners) {
                newest = newest
                    .take()
                    .into_iter()
                    .chain([sandbox])
                    .max_by_key(|(created, version, _)| (*created, *version));
            }
            stays
        });
        if let Some((_, _, sandbox)) = newest {
            image.sandbox_config = sandbox;
        }
    }
    swept
        .spec
        .images
        .retain(|_, image: &mut ImageSpec| !image.tags.is_empty());
    forget_unused_credentials(&mut swept.spec);
    swept
}

/// What the owners of each entry are, entry after entry.
fn owners_of(
    spec: &NodeImageSpec,
    owner: impl Fn(EntryName<'_>, &ObjectReference) -> EntryOwner,
) -> Vec<Vec<EntryOwner>> {
    let entries = spec
        .images
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |entry| (name, entry)));
    let owners = entries.map(|(name, entry)| {
        let asked = EntryName { name, tag: &entry.tag };
        let references = entry.owner_references.iter();
        references.map(|reference| owner(asked, reference)).collect()
    });
    owners.collect()
}

/// Sealed credentials that no entry names any more go with the entry that did.
fn forget_unused_credentials(spec: &mut NodeImageSpec) {
    let images = &spec.images;
    spec.sealed_credentials.retain(|sealed| {
        let mut entries = images.values().flat_map(|image| &image.tags);
        entries.any(|entry| entry.credentials.contains(&sealed.id))
    });
}

/// The sandbox config of the running owner that claimed last; there is one per image name.
fn sandbox_of(entry: &ImageTagSpec, owners: &[EntryOwner]) -> Option<(Timestamp, i64, Option<SandboxConfig>)> {
    let created = entry.created_at.as_ref()?.0;
    let running = owners.iter().rev().find_map(|owner| match owner {
        EntryOwner::Running(Some(terms)) => Some(terms.sandbox.clone()),
        EntryOwner::Running(None) | EntryOwner::Unknown | EntryOwner::Gone(_) | EntryOwner::Ended { .. } => None,
    });
    running.map(|sandbox| (created, entry.version, sandbox))
}

struct Keeper<'a> {
    entry: &'a mut ImageTagSpec,
    status: Option<&'a ImageTagStatus>,
    /// When its pull was seen to have ended, if nobody owns it.
    ended: Option<Timestamp>,
    node: &'a str,
    now: Timestamp,
    /// Owners that are deleted leave now, all of them.
    gone_leave: bool,
    next: &'a mut Option<Timestamp>,
}

impl Keeper<'_> {
    /// Whether the entry stays; brings it up to date if it does.
    fn keep(&mut self, owners: &[EntryOwner]) -> bool {
        self.entry.created_at.get_or_insert(Time(whole_seconds(self.now)));
        if owners.is_empty() {
            return self.hand_written_stays();
        }
        let references = std::mem::take(&mut self.entry.owner_references);
        let mut kept = Vec::with_capacity(references.len());
        for (reference, owner) in references.into_iter().zip(owners) {
            let uid = reference.uid.clone().unwrap_or_default();
            if self.owner_stays(&reference, owner) {
                self.entry.owner_references.push(reference);
                kept.push((uid, owner));
            } else {
                self.entry.claims.retain(|claim| claim.uid != uid);
            }
        }
        !kept.is_empty() && self.owned_stays(&kept)
    }

    fn owner_stays(&mut self, reference: &ObjectReference, owner: &EntryOwner) -> bool {
        match owner {
            EntryOwner::Unknown | EntryOwner::Running(Some(_)) => true,
            EntryOwner::Running(None) => false,
            EntryOwner::Gone(noticed) => !self.gone_leave && !self.is_due(later(*noticed, SETTLE)),
            EntryOwner::Ended { at, .. } => {
                let uid = reference.uid.as_deref().unwrap_or_default();
                !self.owes(uid) || !self.is_due(later(*at, LAST_WORD))
            }
        }
    }

    /// An entry that still has these owners.
    fn owned_stays(&mut self, owners: &[(String, &EntryOwner)]) -> bool {
        let mut stakes: Vec<(&Terms, bool)> = Vec::new();
        let (mut unknown, mut pins) = (false, false);
        let mut ended: Option<Timestamp> = None;
        for (uid, owner) in owners {
            match owner {
                EntryOwner::Running(Some(terms)) => {
                    pins |= terms.pin;
                    stakes.push((terms, self.owes(uid)));
                }
                EntryOwner::Ended { at, pins: its } => {
                    pins |= its;
                    ended = ended.max(Some(*at));
                }
                EntryOwner::Unknown | EntryOwner::Gone(_) | EntryOwner::Running(None) => unknown = true,
            }
        }
        if unknown {
            // Its pin may be the one that is there.
            pins |= self.entry.pin;
        }
        self.entry.pin = pins;
        tune(self.entry, &stakes, unknown);
        match ended {
            Some(at) if stakes.is_empty() && !unknown && !pins => {
                let ttl = i64::from(self.entry.pull_policy.ttl_seconds_after_finished);
                let due = self.swept_at(later(at, SignedDuration::from_secs(ttl)));
                !self.is_due(due)
            }
            _ => true,
        }
    }

    /// An entry that nobody owns lives its own time after its pull ended.
    fn hand_written_stays(&mut self) -> bool {
        let ttl = SignedDuration::from_secs(self.entry.pull_policy.ttl_seconds_after_finished.into());
        self.ended.is_none_or(|end| !self.is_due(later(end, ttl)))
    }

    /// Whether the node still owes an owner its answer.
    fn owes(&self, uid: &str) -> bool {
        let version = self.entry.claim_version(uid).unwrap_or(self.entry.version);
        match answer(version, self.status) {
            Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling => true,
            Answer::Succeeded | Answer::Failed(_) => false,
        }
    }

    /// The node's next sweep at or after a moment.
    fn swept_at(&self, moment: Timestamp) -> Timestamp {
        let phase = jitter::spread(&[self.node], SWEEP_SECONDS.unsigned_abs()).cast_signed();
        let wait = (phase - moment.as_second()).rem_euclid(SWEEP_SECONDS);
        later(moment, SignedDuration::from_secs(wait))
    }

    /// Whether a moment has come; notes it down if not.
    fn is_due(&mut self, moment: Timestamp) -> bool {
        if moment <= self.now {
            return true;
        }
        *self.next = Some(self.next.map_or(moment, |next| next.min(moment)));
        false
    }
}

#[cfg(test)]
mod tests;
