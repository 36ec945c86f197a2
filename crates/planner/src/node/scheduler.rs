//! The entries of one node and what to do about them.

mod orders;
mod results;
mod start_order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_model::{Phase, PullWhen, Reason};

use super::entry_state::{Bytes, EntryState, Note, Stage, Trouble};
use super::loss;
use super::node_inventory::{NodeInventory, PinOp};
use super::{Entry, Key, pull_message};
use crate::priority::Bypasses;

pub use results::PATIENCE_MAX;

/// Dry runs at once: they ask a registry and pull nothing, so they take no slot of a pull.
const DRY_RUNS_MAX: usize = 4;

/// After this time a pin or alias that failed is tried again.
const PIN_OP_PAUSE: Duration = Duration::from_mins(5);

/// Something to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Ask the runtime whether the image is there; tell [`NodeScheduler::looked`].
    Look {
        /// Number of the question.
        run: u64,
        /// Which entry.
        key: Key,
    },
    /// Pull; tell [`NodeScheduler::ended`].
    Pull {
        /// Number of the try.
        run: u64,
        /// Which entry.
        key: Key,
        /// 1 for the first try.
        attempt: u32,
        /// Give up after this time.
        limit: Duration,
    },
    /// Find out what a pull would do; tell [`NodeScheduler::ended`].
    DryRun {
        /// Number of the question.
        run: u64,
        /// Which entry.
        key: Key,
        /// Give up after this time.
        limit: Duration,
    },
    /// Give up what runs under this number; tell [`NodeScheduler::ended`].
    Cancel {
        /// Number of the try.
        run: u64,
    },
    /// Pin, unpin or name an image; tell [`NodeScheduler::pin_op_ended`].
    PinOp(PinOp),
}

/// The image that was found or pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The runtime's id.
    pub id: String,
    /// Digest of the manifest, where the runtime keeps one.
    pub digest: Option<String>,
    /// Compressed bytes of all of it, where a pull told.
    pub bytes: Option<u64>,
    /// Those of them that the pull brought, where it told.
    pub fetched: Option<u64>,
    /// The hosts that sent them, where that is known.
    pub hosts: BTreeSet<String>,
}

/// Answer to [`NodeStep::Look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Present(Image),
    /// It is not.
    Absent,
    /// The runtime did not say.
    Unknown(Reason, String),
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The image is there.
    Pulled(Image),
    /// It failed, for this reason, with these words.
    Failed {
        /// Which kind of trouble.
        reason: Reason,
        /// The runtime's or our own words.
        words: String,
        /// How long the registry asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The time was over.
    TimedOut,
    /// It was given up as asked.
    Canceled,
    /// What a dry run found out.
    Report {
        /// Why a pull would fail, if it would.
        verdict: Result<String, Trouble>,
        /// Bytes there and bytes in all, where known.
        bytes: Option<(u64, u64)>,
        /// Digest of the manifest.
        digest: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Look,
    Pull,
    DryRun,
}

struct Run {
    key: Key,
    kind: Kind,
    cancel_sent: bool,
    pace: Option<Pace>,
    /// How long the registry asked to wait, while the wait lasts.
    wait: Option<Duration>,
}

/// How far a run is, since when it is there, and when that was last seen.
#[derive(Clone, Copy)]
struct Pace {
    done: u64,
    total: u64,
    since: Duration,
    seen: Duration,
}

/// One node's entries, and what is going on with them.
pub struct NodeScheduler {
    max_pulls: usize,
    /// None until orders are known: an agent that knows nothing takes nothing back.
    entries: Option<BTreeMap<Key, Entry>>,
    states: BTreeMap<Key, EntryState>,
    runs: BTreeMap<u64, Run>,
    last_run: u64,
    /// Pulls that passed over entries with a lower priority.
    bypasses: Bypasses,
    /// When [`decide`](Self::decide) was last asked.
    decided: Duration,
    inventory: Option<NodeInventory>,
    pin_ops_running: BTreeSet<PinOp>,
    /// Done, but not yet seen in an inventory of the runtime.
    pin_ops_done: BTreeMap<PinOp, Duration>,
    pin_ops_failed: BTreeMap<PinOp, (Duration, Note)>,
}

impl NodeScheduler {
    /// An empty scheduler for at most this many pulls at once.
    pub fn new(max_pulls: usize) -> Self {
        Self {
            max_pulls: max_pulls.max(1),
            entries: None,
            states: BTreeMap::new(),
            runs: BTreeMap::new(),
            last_run: 0,
            bypasses: Bypasses::default(),
            decided: Duration::ZERO,
            inventory: None,
            pin_ops_running: BTreeSet::new(),
            pin_ops_done: BTreeMap::new(),
            pin_ops_failed: BTreeMap::new(),
        }
    }

    /// The entries; none before the first orders.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter().flatten()
    }

    /// One entry.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.as_ref()?.get(key)
    }

    /// Where the entries stand.
    pub fn states(&self) -> &BTreeMap<Key, EntryState> {
        &self.states
    }

    /// Where one entry stands.
    pub fn state(&self, key: &Key) -> Option<&EntryState> {
        self.states.get(key)
    }

    /// How long a registry asked the pull of an entry to wait, while the wait lasts.
    pub(super) fn wait(&self, state: &EntryState) -> Option<Duration> {
        self.runs.get(&state.run()?)?.wait
    }

    /// Pulls that run.
    pub fn pulling(&self) -> usize {
        self.runs.values().filter(|run| run.kind == Kind::Pull).count()
    }

    /// Entries that wait for a slot or for the end of a pause.
    pub fn queued(&self) -> usize {
        self.states
            .values()
            .filter(|state| matches!(state.stage, Stage::Queued { .. } | Stage::Look { .. }))
            .count()
    }

    /// What to do now. Each step is given out once.
    pub fn decide(&mut self, now: Duration, wall: &Time) -> Vec<NodeStep> {
        self.decided = now;
        let Some(entries) = self.entries.take() else {
            return self.cancels();
        };
        self.end_what_cannot_go_on(&entries, now, wall);
        let mut steps = self.cancels();
        self.start_looks(&entries, &mut steps, now);
        self.start_dry_runs(&entries, &mut steps, now);
        self.start_pulls(&entries, &mut steps, now, wall);
        self.start_pin_ops(&entries, &mut steps, now);
        self.entries = Some(entries);
        steps
    }

    /// When to ask again if nothing happens until then. That moment may be past: the driver does other things
    /// between the decision and this question, and what came due meanwhile must not be slept through.
    pub fn wake_at(&self) -> Option<Duration> {
        let decided = self.decided;
        let pauses = self.states.values().filter_map(|state| match state.stage {
            Stage::Look { until } => Some(until),
            _ => None,
        });
        let deadlines = self.entries().filter_map(|(key, entry)| {
            let state = self.states.get(key).filter(|state| !state.is_done() && !state.again)?;
            entry
                .deadline
                .map(|deadline| decided + state.left_of(Some(deadline), decided))
        });
        let pin_ops = self.pin_ops_failed.values().map(|(until, _)| *until);
        pauses
            .chain(deadlines)
            .chain(pin_ops)
            .filter(|moment| *moment > decided)
            .min()
    }

    /// What cannot be read, or took too long in all.
    fn end_what_cannot_go_on(&mut self, entries: &BTreeMap<Key, Entry>, now: Duration, wall: &Time) {
        for (key, state) in self.states.iter_mut().filter(|(_, state)| !state.is_done()) {
            let Some(entry) = entries.get(key) else {
                continue;
            };
            if let Err(why) = &entry.image {
                results::fail(
                    state,
                    Trouble::new(
                        Reason::InvalidReference,
                        pull_message(key, Reason::InvalidReference, why),
                    ),
                    now,
                    wall,
                );
            } else if state.left_of(entry.deadline, now).is_zero() {
                results::fail(state, results::deadline_exceeded(key), now, wall);
            }
        }
    }

    /// Runs whose entry left, was answered otherwise, or wants another version.
    fn cancels(&mut self) -> Vec<NodeStep> {
        let states = &self.states;
        let unwanted = |number: u64, run: &Run| states.get(&run.key).and_then(EntryState::run) != Some(number);
        let mut steps = Vec::new();
        for (&number, run) in &mut self.runs {
            if !run.cancel_sent && unwanted(number, run) {
                run.cancel_sent = true;
                steps.push(NodeStep::Cancel { run: number });
            }
        }
        steps
    }

    /// Entries whose pause is over: they are looked up, or queued where a fresh pull is wanted.
    fn start_looks(&mut self, entries: &BTreeMap<Key, Entry>, steps: &mut Vec<NodeStep>, now: Duration) {
        for key in self.after_their_pause(now) {
            let looks = entries
                .get(&key)
                .is_some_and(|entry| entry.when == PullWhen::IfNotPresent && !entry.dry_run);
            let run = looks.then(|| self.start(&key, Kind::Look));
            let Some(state) = self.states.get_mut(&key) else {
                continue;
            };
            match run {
                Some(run) => {
                    state.enter(Stage::Looking { run }, now);
                    steps.push(NodeStep::Look { run, key });
                }
                None => state.stage = queued(state, now),
            }
        }
    }

    /// Entries whose pause is over. Those whose image was lost wait for room, and until it is known how much there is.
    fn after_their_pause(&mut self, now: Duration) -> Vec<Key> {
        let room = self.inventory.as_ref().map(|inventory| inventory.room);
        let mut over = Vec::new();
        for (key, state) in &mut self.states {
            if !matches!(state.stage, Stage::Look { until } if until <= now) {
                continue;
            }
            match room {
                None if state.again => continue,
                Some(room) if state.again => {
                    if let Some(trouble) = loss::lacks_room(state, room) {
                        state.trouble = Some(trouble);
                        continue;
                    }
                }
                _ => {}
            }
            over.push(key.clone());
        }
        over
    }

    fn start_dry_runs(&mut self, entries: &BTreeMap<Key, Entry>, steps: &mut Vec<NodeStep>, now: Duration) {
        let running = self.runs.values().filter(|run| run.kind == Kind::DryRun).count();
        let free = DRY_RUNS_MAX.saturating_sub(running);
        // They are over in a moment: of them it is not counted which passed over which.
        for key in self.next_to_start(entries, true, free, &mut Bypasses::default()) {
            let run = self.start(&key, Kind::DryRun);
            let (Some(entry), Some(state)) = (entries.get(&key), self.states.get_mut(&key)) else {
                continue;
            };
            let limit = entry.timeout.min(state.left_of(entry.deadline, now));
            state.enter(Stage::Running { run }, now);
            steps.push(NodeStep::DryRun { run, key, limit });
        }
    }

    fn start_pulls(&mut self, entries: &BTreeMap<Key, Entry>, steps: &mut Vec<NodeStep>, now: Duration, wall: &Time) {
        let free = self.max_pulls.saturating_sub(self.pulling());
        let mut bypasses = self.bypasses;
        let keys = self.next_to_start(entries, false, free, &mut bypasses);
        self.bypasses = bypasses;
        for key in keys {
            let run = self.start(&key, Kind::Pull);
            let (Some(entry), Some(state)) = (entries.get(&key), self.states.get_mut(&key)) else {
                continue;
            };
            state.attempts += 1;
            state.start_time.get_or_insert_with(|| wall.clone());
            let limit = entry.timeout.min(state.left_of(entry.deadline, now));
            state.enter(Stage::Running { run }, now);
            steps.push(NodeStep::Pull {
                run,
                key,
                attempt: state.attempts,
                limit,
            });
        }
    }

    /// Entries that start now, where so many slots are free.
    fn next_to_start(
        &self,
        entries: &BTreeMap<Key, Entry>,
        dry_run: bool,
        free: usize,
        bypasses: &mut Bypasses,
    ) -> Vec<Key> {
        let waiting = entries.iter().filter(|(_, entry)| entry.dry_run == dry_run);
        let waiting = waiting.filter_map(|(key, entry)| start_order::Waiting::of(entry, self.states.get(key)?));
        start_order::next_to_start(waiting, free, bypasses)
    }

    fn start(&mut self, key: &Key, kind: Kind) -> u64 {
        self.last_run += 1;
        let run = Run {
            key: key.clone(),
            kind,
            cancel_sent: false,
            pace: None,
            wait: None,
        };
        self.runs.insert(self.last_run, run);
        self.last_run
    }

    fn start_pin_ops(&mut self, entries: &BTreeMap<Key, Entry>, steps: &mut Vec<NodeStep>, now: Duration) {
        let Some(inventory) = &self.inventory else {
            return;
        };
        let mut plan = inventory.plan(entries, &self.states);
        self.pin_ops_failed
            .retain(|pin_op, (until, _)| *until > now && plan.pin_ops.contains_key(pin_op));
        for (pin_op, key) in &plan.pin_ops {
            if let (Some((_, note)), Some(key)) = (self.pin_ops_failed.get(pin_op), key) {
                plan.notes.insert(key.clone(), note.clone());
                continue;
            }
            let settled = self.pin_ops_failed.contains_key(pin_op) || self.pin_ops_done.contains_key(pin_op);
            if !settled && self.pin_ops_running.insert(pin_op.clone()) {
                steps.push(NodeStep::PinOp(pin_op.clone()));
            }
        }
        for (key, state) in self
            .states
            .iter_mut()
            .filter(|(_, state)| state.stage == Stage::Done(Phase::Succeeded))
        {
            if entries.get(key).is_some_and(|entry| !entry.dry_run) {
                let note = plan.notes.remove(key);
                if state.note != note {
                    state.note = note;
                    state.changed = now;
                }
            }
        }
    }
}

/// The queued stage. An entry that comes out of a pause has waited since the end of that pause.
fn queued(state: &EntryState, now: Duration) -> Stage {
    let since = match state.stage {
        Stage::Look { until } => until,
        _ => now,
    };
    Stage::Queued { since }
}

impl From<(u64, u64)> for Bytes {
    fn from((done, total): (u64, u64)) -> Self {
        Self { done, total }
    }
}
