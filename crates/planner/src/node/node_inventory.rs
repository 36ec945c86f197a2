//! Pins and aliases: what the runtime has of them, what the entries want, and what to do about the difference.
//!
//! A pin goes with its entry. An alias stays as long as its image: pods may use it after the job is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use larder_model::{ByteSize, ImageRef, Reason};

use super::entry_state::Note;
use super::{Entry, EntryState, Key};

/// What the runtime holds, as of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInventory {
    /// When it was asked, on the node's steady clock.
    pub taken: Duration,
    /// Every name by tag or digest, with the id and the size of the image behind it.
    pub names: BTreeMap<ImageRef, (String, ByteSize)>,
    /// The pins and aliases that we put there.
    pub own: Vec<OwnName>,
    /// Bytes that pinned images may take up; none: no limit is known.
    pub pin_budget: Option<ByteSize>,
    /// Bytes that images may still take up before the kubelet removes some; none: not known.
    pub room: Option<ByteSize>,
    /// Why this runtime cannot pin, if it cannot.
    pub no_pin: Option<String>,
    /// Why this runtime cannot give second names, if it cannot.
    pub no_alias: Option<String>,
}

/// A name in the runtime that we put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnName {
    /// The image that it was made of.
    pub image: ImageRef,
    /// The second name, or none for a pin.
    pub alias: Option<ImageRef>,
    /// What it points to.
    pub digest: String,
}

/// Something to do to the runtime's names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinOp {
    /// Keep this image.
    Pin(ImageRef),
    /// Keep it no longer.
    Unpin(ImageRef),
    /// Give the first image the second name.
    Alias(ImageRef, ImageRef),
}

impl fmt::Display for PinOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(image) => write!(f, "pin {image}"),
            Self::Unpin(image) => write!(f, "unpin {image}"),
            Self::Alias(image, name) => write!(f, "give {image} the name {name}"),
        }
    }
}

/// For each second name the entry whose image bears it, and where that entry stands.
type Bearers<'a> = BTreeMap<&'a ImageRef, (&'a Key, &'a EntryState)>;

/// The operations that are to be done, and notes about those that cannot be.
#[derive(Default)]
pub(super) struct PinPlan {
    pub(super) pin_ops: BTreeMap<PinOp, Option<Key>>,
    pub(super) notes: BTreeMap<Key, Note>,
}

impl NodeInventory {
    pub(super) fn plan(&self, entries: &BTreeMap<Key, Entry>, states: &BTreeMap<Key, EntryState>) -> PinPlan {
        let mut plan = PinPlan::default();
        let bearers = self.bearers(entries, states);
        let mut pinned: BTreeSet<&ImageRef> = BTreeSet::new();
        for (key, entry) in entries.iter().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(state)) = (&entry.image, states.get(key)) else {
                continue;
            };
            if entry.pin {
                pinned.insert(image);
            }
            if !self.shows(image, state) {
                continue;
            }
            if let Some(alias) = &entry.alias {
                self.want_alias((key, image, state), alias, &bearers, &mut plan);
            }
            if entry.pin {
                self.want_pin(key, image, state, &mut plan);
            }
        }
        let pins = self.own.iter().filter(|own| own.alias.is_none());
        let left_over = pins.filter(|own| !pinned.contains(&own.image));
        plan.pin_ops
            .extend(left_over.map(|own| (PinOp::Unpin(own.image.clone()), None)));
        plan
    }

    /// What vanished a moment ago, or is not in this inventory yet, is looked at with the next one.
    fn shows(&self, image: &ImageRef, state: &EntryState) -> bool {
        state.is_there() && self.names.contains_key(image)
    }

    /// Which entry gives its image a name that several ask for: the one that did so last, else the first. Were it each in
    /// turn, the name would never come to rest.
    fn bearers<'a>(&self, entries: &'a BTreeMap<Key, Entry>, states: &'a BTreeMap<Key, EntryState>) -> Bearers<'a> {
        let mut bearers = Bearers::new();
        for (key, entry) in entries.iter().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(Ok(name)), Some(state)) = (&entry.image, &entry.alias, states.get(key)) else {
                continue;
            };
            if !self.shows(image, state) {
                continue;
            }
            let bears_it = |own: &OwnName| own.image == *image && own.alias.as_ref() == Some(name);
            if !bearers.contains_key(name) || self.own.iter().any(bears_it) {
                bearers.insert(name, (key, state));
            }
        }
        bearers
    }

    fn want_alias(
        &self,
        (key, image, state): (&Key, &ImageRef, &EntryState),
        alias: &Result<ImageRef, String>,
        bearers: &Bearers<'_>,
        plan: &mut PinPlan,
    ) {
        let name = match alias {
            Ok(name) if name == image => return,
            Ok(name) => name,
            Err(why) => {
                plan.note(
                    key,
                    Some(Reason::InvalidReference),
                    format!("The image is there, but has no second name: {why}"),
                );
                return;
            }
        };
        if let Some(why) = &self.no_alias {
            plan.note(
                key,
                Some(Reason::NodeUnsuitable),
                format!("The image is there, but not under the name {name}: {why}"),
            );
        } else if let Some((bearer, other)) = bearers.get(name).filter(|(bearer, _)| *bearer != key) {
            if other.digest.is_none() || other.digest != state.digest {
                plan.note(
                    key,
                    None,
                    format!(
                        "The image is there, but not under the name {name}: {bearer} has that name. Let one job alone \
                         give it."
                    ),
                );
            }
        } else if !self.has(image, Some(name), state) {
            plan.pin_ops
                .insert(PinOp::Alias(image.clone(), name.clone()), Some(key.clone()));
        }
    }

    fn want_pin(&self, key: &Key, image: &ImageRef, state: &EntryState, plan: &mut PinPlan) {
        if self.has(image, None, state) {
            return;
        }
        if let Some(why) = &self.no_pin {
            plan.note(
                key,
                Some(Reason::NodeUnsuitable),
                format!("The image is there, but not pinned: {why}"),
            );
            return;
        }
        match self.beyond_budget(image, &plan.pin_ops) {
            Some(message) => plan.note(key, Some(Reason::NoSpace), message),
            None => {
                plan.pin_ops.insert(PinOp::Pin(image.clone()), Some(key.clone()));
            }
        }
    }

    /// Whether our name is there and points to where the tag points now.
    fn has(&self, image: &ImageRef, alias: Option<&ImageRef>, state: &EntryState) -> bool {
        self.own.iter().any(|own| {
            own.image == *image
                && own.alias.as_ref() == alias
                && state.digest.as_ref().is_none_or(|digest| *digest == own.digest)
        })
    }

    /// Why there is no room for this pin, beside those that are there and those that are about to be.
    fn beyond_budget(&self, image: &ImageRef, pin_ops: &BTreeMap<PinOp, Option<Key>>) -> Option<String> {
        let budget = self.pin_budget?;
        let pins = self.own.iter().filter(|own| own.alias.is_none()).map(|own| &own.image);
        let to_come = pin_ops.keys().filter_map(|pin_op| match pin_op {
            PinOp::Pin(image) => Some(image),
            PinOp::Unpin(_) | PinOp::Alias(..) => None,
        });
        let pinned: BTreeMap<&str, ByteSize> = pins
            .chain(to_come)
            .filter_map(|name| self.names.get(name))
            .map(|(id, size)| (id.as_str(), *size))
            .collect();
        let (id, size) = self.names.get(image)?;
        let before: ByteSize = pinned.values().copied().sum();
        if pinned.contains_key(id.as_str()) || before + *size <= budget {
            return None;
        }
        Some(format!(
            "The image is there, but not pinned: it takes {size}, pinned images already take {before} of the {budget} \
             that this node allows. Delete jobs that pin, or raise the agent's pin budget."
        ))
    }
}

impl PinPlan {
    fn note(&mut self, key: &Key, reason: Option<Reason>, message: String) {
        self.notes.insert(key.clone(), Note { reason, message });
    }
}
