//! The order in which queued entries start.
//!
//! The entry that waited longest is first. Entries that came at the same time are in the order of their names, but the places
//! of one job among them go to its images by their positions: a job orders its own images and takes no place from another.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Entry, EntryState, Key, Stage};

/// One queued entry.
pub(super) struct Waiting<'a> {
    since: Duration,
    entry: &'a Entry,
    /// The runtime has not said yet whether the image is there: its place is kept, and it cannot start.
    looking: bool,
}

impl<'a> Waiting<'a> {
    /// The entry, if it is queued or being looked up.
    pub(super) fn of(entry: &'a Entry, state: &EntryState) -> Option<Self> {
        let (since, looking) = match state.stage {
            Stage::Queued { since } => (since, false),
            Stage::Looking { .. } => (state.changed, true),
            _ => return None,
        };
        Some(Self { since, entry, looking })
    }

    /// Entries of one batch are ordered by their positions.
    fn batch(&self) -> (Duration, Option<&'a str>) {
        (self.since, self.entry.job.as_deref())
    }
}

/// The entries that may start now, in order.
pub(super) fn in_order<'a>(waiting: impl Iterator<Item = Waiting<'a>>) -> Vec<Key> {
    let mut line: Vec<Waiting<'_>> = waiting.collect();
    line.sort_by_key(|one| (one.since, &one.entry.key));
    let mut batches: BTreeMap<(Duration, Option<&str>), Vec<usize>> = BTreeMap::new();
    for (place, one) in line.iter().enumerate() {
        batches.entry(one.batch()).or_default().push(place);
    }
    let mut starts: Vec<Option<&Key>> = vec![None; line.len()];
    for places in batches.values() {
        let mut members: Vec<&Waiting<'_>> = places.iter().map(|&place| &line[place]).collect();
        // Stable: equal positions stay in the order of their names.
        members.sort_by_key(|one| one.entry.position);
        // An entry does not overtake a lower position that is still being looked up: the answer comes in a moment.
        let held_from = members
            .iter()
            .find(|one| one.looking)
            .map_or(u32::MAX, |one| one.entry.position);
        for (&place, one) in places.iter().zip(members) {
            if !one.looking && one.entry.position <= held_from {
                starts[place] = Some(&one.entry.key);
            }
        }
    }
    starts.into_iter().flatten().cloned().collect()
}
