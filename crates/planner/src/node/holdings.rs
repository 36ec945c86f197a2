//! Pins and aliases: what the runtime has of them, what the entries want, and what to do about the difference.
//!
//! A pin goes with its entry. An alias stays as long as its image: pods may use it after the job is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use larder_model::{ByteSize, ImageRef, Reason};

use super::track::Note;
use super::{Entry, Key, Track};

/// What the runtime holds, as of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holdings {
    /// When it was asked, on the node's steady clock.
    pub taken: Duration,
    /// Every name by tag or digest, with the id and the size of the image behind it.
    pub names: BTreeMap<ImageRef, (String, ByteSize)>,
    /// The pins and aliases that we put there.
    pub own: Vec<OwnName>,
    /// Bytes that pinned images may take up; none: no limit is known.
    pub pin_budget: Option<ByteSize>,
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
pub enum Chore {
    /// Keep this image.
    Pin(ImageRef),
    /// Keep it no longer.
    Unpin(ImageRef),
    /// Give the first image the second name.
    Alias(ImageRef, ImageRef),
}

impl fmt::Display for Chore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(image) => write!(f, "pin {image}"),
            Self::Unpin(image) => write!(f, "unpin {image}"),
            Self::Alias(image, name) => write!(f, "give {image} the name {name}"),
        }
    }
}

/// For each second name the entry whose image bears it, and where that entry stands.
type Bearers<'a> = BTreeMap<&'a ImageRef, (&'a Key, &'a Track)>;

/// What is to be done, and what cannot be.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) chores: BTreeMap<Chore, Option<Key>>,
    pub(super) notes: BTreeMap<Key, Note>,
}

impl Holdings {
    pub(super) fn wanted(&self, entries: &BTreeMap<Key, Entry>, tracks: &BTreeMap<Key, Track>) -> Wanted {
        let mut wanted = Wanted::default();
        let bearers = self.bearers(entries, tracks);
        let mut pinned: BTreeSet<&ImageRef> = BTreeSet::new();
        for (key, entry) in entries.iter().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(track)) = (&entry.image, tracks.get(key)) else {
                continue;
            };
            if entry.pin {
                pinned.insert(image);
            }
            if !self.shows(image, track) {
                continue;
            }
            if let Some(alias) = &entry.alias {
                self.want_alias((key, image, track), alias, &bearers, &mut wanted);
            }
            if entry.pin {
                self.want_pin(key, image, track, &mut wanted);
            }
        }
        let pins = self.own.iter().filter(|own| own.alias.is_none());
        let left_over = pins.filter(|own| !pinned.contains(&own.image));
        wanted
            .chores
            .extend(left_over.map(|own| (Chore::Unpin(own.image.clone()), None)));
        wanted
    }

    /// What vanished a moment ago, or is not in this picture yet, is looked at with the next one.
    fn shows(&self, image: &ImageRef, track: &Track) -> bool {
        track.is_there() && self.names.contains_key(image)
    }

    /// Which entry gives its image a name that several ask for: the one that did so last, else the first. Were it each in
    /// turn, the name would never come to rest.
    fn bearers<'a>(&self, entries: &'a BTreeMap<Key, Entry>, tracks: &'a BTreeMap<Key, Track>) -> Bearers<'a> {
        let mut bearers = Bearers::new();
        for (key, entry) in entries.iter().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(Ok(name)), Some(track)) = (&entry.image, &entry.alias, tracks.get(key)) else {
                continue;
            };
            if !self.shows(image, track) {
                continue;
            }
            let bears_it = |own: &OwnName| own.image == *image && own.alias.as_ref() == Some(name);
            if !bearers.contains_key(name) || self.own.iter().any(bears_it) {
                bearers.insert(name, (key, track));
            }
        }
        bearers
    }

    fn want_alias(
        &self,
        (key, image, track): (&Key, &ImageRef, &Track),
        alias: &Result<ImageRef, String>,
        bearers: &Bearers<'_>,
        wanted: &mut Wanted,
    ) {
        let name = match alias {
            Ok(name) if name == image => return,
            Ok(name) => name,
            Err(why) => {
                wanted.note(
                    key,
                    Some(Reason::InvalidReference),
                    format!("The image is there, but has no second name: {why}"),
                );
                return;
            }
        };
        if let Some(why) = &self.no_alias {
            wanted.note(
                key,
                Some(Reason::NodeUnsuitable),
                format!("The image is there, but not under the name {name}: {why}"),
            );
        } else if let Some((bearer, other)) = bearers.get(name).filter(|(bearer, _)| *bearer != key) {
            if other.digest.is_none() || other.digest != track.digest {
                wanted.note(
                    key,
                    None,
                    format!(
                        "The image is there, but not under the name {name}: {bearer} has that name. Let one job alone \
                         give it."
                    ),
                );
            }
        } else if !self.has(image, Some(name), track) {
            wanted
                .chores
                .insert(Chore::Alias(image.clone(), name.clone()), Some(key.clone()));
        }
    }

    fn want_pin(&self, key: &Key, image: &ImageRef, track: &Track, wanted: &mut Wanted) {
        if self.has(image, None, track) {
            return;
        }
        if let Some(why) = &self.no_pin {
            wanted.note(
                key,
                Some(Reason::NodeUnsuitable),
                format!("The image is there, but not pinned: {why}"),
            );
            return;
        }
        match self.beyond_budget(image, &wanted.chores) {
            Some(message) => wanted.note(key, Some(Reason::NoSpace), message),
            None => {
                wanted.chores.insert(Chore::Pin(image.clone()), Some(key.clone()));
            }
        }
    }

    /// Whether our name is there and points to where the tag points now.
    fn has(&self, image: &ImageRef, alias: Option<&ImageRef>, track: &Track) -> bool {
        self.own.iter().any(|own| {
            own.image == *image
                && own.alias.as_ref() == alias
                && track.digest.as_ref().is_none_or(|digest| *digest == own.digest)
        })
    }

    /// Why there is no room for this pin, beside those that are there and those that are about to be.
    fn beyond_budget(&self, image: &ImageRef, chores: &BTreeMap<Chore, Option<Key>>) -> Option<String> {
        let budget = self.pin_budget?;
        let pins = self.own.iter().filter(|own| own.alias.is_none()).map(|own| &own.image);
        let to_come = chores.keys().filter_map(|chore| match chore {
            Chore::Pin(image) => Some(image),
            Chore::Unpin(_) | Chore::Alias(..) => None,
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

impl Wanted {
    fn note(&mut self, key: &Key, reason: Option<Reason>, message: String) {
        self.notes.insert(key.clone(), Note { reason, message });
    }
}
