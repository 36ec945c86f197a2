//! The order in which queued entries start.
//!
//! Those with the highest priority are first, and a lower one gets its part by the rule in [`priority`](crate::priority).
//! Of equal priorities, the entry that waited longest is first. Entries that came at the same time are in the order of their
//! names, but the places of one job among them go to its images by their positions: a job orders its own images and takes no
//! place from another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Entry, EntryState, Key, Stage};
use crate::priority::Bypasses;

/// One queued entry.
#[derive(Clone, Copy)]
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

/// The queued entries of one priority.
struct Line<'a> {
    priority: i32,
    /// Those that may start now, in order.
    ready: VecDeque<Waiting<'a>>,
    /// How many others there are: they are about to be ready, or not needed.
    held: usize,
}

/// The entries that start now, in order, where so many slots are free. A slot is kept for each entry of a higher priority that is
/// about to be ready.
pub(super) fn next_to_start<'a>(
    waiting: impl Iterator<Item = Waiting<'a>>,
    free: usize,
    bypasses: &mut Bypasses,
) -> Vec<Key> {
    let mut by_priority: BTreeMap<Reverse<i32>, Vec<Waiting<'a>>> = BTreeMap::new();
    for one in waiting {
        by_priority.entry(Reverse(one.entry.priority)).or_default().push(one);
    }
    let lines = by_priority.into_iter();
    let mut lines: Vec<Line<'a>> = lines
        .map(|(Reverse(priority), line)| in_order(priority, line))
        .collect();
    let mut starts = Vec::new();
    while let Some(highest) = lines.iter().position(|line| !line.ready.is_empty()) {
        let kept: usize = lines[..highest].iter().map(|line| line.held).sum();
        if free <= starts.len() + kept {
            break;
        }
        let passed_over = bypasses.next_below().and_then(|below| longest_wait(&lines, below));
        let next = if let Some(passed_over) = passed_over {
            bypasses.reset();
            passed_over
        } else {
            if lines[highest + 1..].iter().any(|line| !line.ready.is_empty()) {
                bypasses.pass(1, lines[highest].priority);
            }
            highest
        };
        starts.extend(lines[next].ready.pop_front().map(|one| one.entry.key.clone()));
    }
    starts
}

/// Of the lines below a priority, the one whose first entry has waited longest.
fn longest_wait(lines: &[Line<'_>], below: i32) -> Option<usize> {
    let lower = lines.iter().enumerate().filter(|(_, line)| line.priority < below);
    let firsts = lower.filter_map(|(place, line)| Some((line.ready.front()?.since, place)));
    firsts.min().map(|(_, place)| place)
}

/// Puts entries of one priority in order.
fn in_order(priority: i32, mut line: Vec<Waiting<'_>>) -> Line<'_> {
    line.sort_by_key(|one| (one.since, &one.entry.key));
    let mut batches: BTreeMap<(Duration, Option<&str>), Vec<usize>> = BTreeMap::new();
    for (place, one) in line.iter().enumerate() {
        batches.entry(one.batch()).or_default().push(place);
    }
    let mut starts: Vec<Option<Waiting<'_>>> = vec![None; line.len()];
    for places in batches.values() {
        let mut members: Vec<Waiting<'_>> = places.iter().map(|&place| line[place]).collect();
        // Stable: equal positions stay in the order of their names.
        members.sort_by_key(|one| one.entry.position);
        // An entry does not overtake a lower position that is still being looked up: the answer comes in a moment.
        let held_from = members
            .iter()
            .find(|one| one.looking)
            .map_or(u32::MAX, |one| one.entry.position);
        for (&place, one) in places.iter().zip(members) {
            if !one.looking && one.entry.position <= held_from {
                starts[place] = Some(one);
            }
        }
    }
    let ready: VecDeque<Waiting<'_>> = starts.into_iter().flatten().collect();
    Line {
        priority,
        held: line.len() - ready.len(),
        ready,
    }
}
