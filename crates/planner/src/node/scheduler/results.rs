//! What comes back from the runtime: looks, bytes, ends of tries, pin_ops, inventories of what it holds.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::node_image::LastSucceeded;
use larder_model::{Phase, Reason, Retry};

use super::super::entry_state::{Bytes, Note, Origin};
use super::super::loss;
use super::super::node_inventory::NodeInventory;
use super::super::pause_after;
use super::{
    Ended, Entry, EntryState, Found, Image, Key, NodeScheduler, PIN_OP_PAUSE, Pace, PinOp, Run, Stage, Trouble,
    pull_message,
};

/// The longest time that a registry may ask to be left alone. Some say a day, and are mended in a minute.
pub const PATIENCE_MAX: Duration = Duration::from_hours(1);

/// A pull that ran out of time did not take too long but stood still, if nothing had come for this time, or for half of a
/// time that is short itself.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// A look older than this says nothing about the end of a pull. Looks follow each other every second, unless the runtime does
/// not answer.
const LOOK_HOLDS: Duration = Duration::from_secs(5);

impl Run {
    /// For how long a pull that had begun to receive bytes has received none, as of the last look at it. A pull whose bytes
    /// are all there is being unpacked and does not stand still.
    fn stands_still(&self, now: Duration) -> Option<Duration> {
        let pace = self.pace.filter(|pace| pace.done < pace.total)?;
        let unseen = now.saturating_sub(pace.seen);
        (unseen <= LOOK_HOLDS).then(|| pace.seen.saturating_sub(pace.since))
    }
}

impl NodeScheduler {
    /// The answer to a look.
    pub fn looked(&mut self, run: u64, found: Found, now: Duration, wall: &Time) {
        let Some((key, state)) = self.end_run(run) else {
            return;
        };
        match found {
            Found::Present(image) => succeed(state, image, now, wall),
            // Queued since the lookup began, so that a quick answer does not overtake an earlier lookup.
            Found::Absent => {
                let since = state.changed;
                state.enter(Stage::Queued { since }, now);
            }
            Found::Unknown(reason, words) => {
                state.waits += 1;
                state.trouble = Some(Trouble::new(reason, pull_message(&key, reason, &words)));
                let until = now + pause_after(state.waits);
                state.enter(Stage::Look { until }, now);
            }
        }
    }

    /// How far a pull is. Bytes never go back.
    pub fn progress(&mut self, run: u64, done: u64, total: u64, now: Duration) {
        let running = self.runs.get_mut(&run);
        let key = running.map(|run| {
            let since = run.pace.filter(|pace| pace.done == done).map_or(now, |pace| pace.since);
            run.pace = Some(Pace {
                done,
                total,
                since,
                seen: now,
            });
            run.key.clone()
        });
        let state = key
            .and_then(|key| self.states.get_mut(&key))
            .filter(|state| state.run() == Some(run));
        if let Some(state) = state {
            let before = state.bytes.map_or(0, |bytes| bytes.done);
            state.bytes = Some(Bytes {
                done: done.max(before).min(total),
                total,
            });
        }
    }

    /// How long the registry asked a pull to wait, while the wait lasts.
    pub fn registry_asks(&mut self, run: u64, wait: Option<Duration>, now: Duration) {
        let Some(running) = self.runs.get_mut(&run).filter(|run| run.wait != wait) else {
            return;
        };
        running.wait = wait;
        let state = self.states.get_mut(&running.key);
        if let Some(state) = state.filter(|state| state.run() == Some(run)) {
            state.changed = now;
        }
    }

    /// The end of a pull or dry run.
    pub fn ended(&mut self, run: u64, end: Ended, now: Duration, wall: &Time) {
        let entry = self.runs.get(&run).and_then(|run| self.entry(&run.key)).cloned();
        let still = self.runs.get(&run).and_then(|run| run.stands_still(now));
        let Some((key, state)) = self.end_run(run) else {
            return;
        };
        let Some(entry) = entry else {
            return;
        };
        match end {
            Ended::Pulled(image) => succeed(state, image, now, wall),
            Ended::Failed {
                reason,
                words,
                retry_after,
            } => failed_try(state, &entry, (reason, &words, retry_after), now, wall),
            Ended::TimedOut if state.left_of(entry.deadline, now).is_zero() => {
                fail(state, deadline_exceeded(&key), now, wall);
            }
            Ended::TimedOut => {
                let mut words = format!("the try took longer than its {} s", entry.timeout.as_secs());
                let mut reason = Reason::Timeout;
                if let Some(still) = still.filter(|still| STALLED_AFTER.min(entry.timeout / 2) <= *still) {
                    reason = Reason::Stalled;
                    words = format!("{words}, and in the last {} s nothing arrived", still.as_secs());
                }
                failed_try(state, &entry, (reason, &words, None), now, wall);
            }
            // The scheduler did not ask for it, so the agent is stopping: the next process starts the pull again.
            Ended::Canceled => {
                state.attempts = state.attempts.saturating_sub(1);
                state.enter(Stage::Look { until: now }, now);
            }
            Ended::Report { verdict, bytes, digest } => {
                state.bytes = bytes.map(Bytes::from);
                state.digest = digest;
                state.completion_time = Some(wall.clone());
                match verdict {
                    Ok(message) => {
                        state.trouble = None;
                        state.note = Some(Note { reason: None, message });
                        state.enter(Stage::Done(Phase::Succeeded), now);
                    }
                    Err(trouble) => fail(state, trouble, now, wall),
                }
            }
        }
    }

    /// The end of a pin_op.
    pub fn pin_op_ended(&mut self, pin_op: &PinOp, end: Result<(), Note>, now: Duration) {
        self.pin_ops_running.remove(pin_op);
        match end {
            Ok(()) => drop(self.pin_ops_done.insert(pin_op.clone(), now)),
            Err(note) => drop(self.pin_ops_failed.insert(pin_op.clone(), (now + PIN_OP_PAUSE, note))),
        }
    }

    /// A new inventory of what the runtime holds. What was there and is not in it was removed behind our back.
    pub fn take_inventory(&mut self, inventory: NodeInventory, now: Duration) {
        for (key, entry) in self.entries.iter().flatten().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(state)) = (&entry.image, self.states.get_mut(key)) else {
                continue;
            };
            // Not what arrived after the inventory was taken.
            if state.is_there() && state.changed <= inventory.taken && !inventory.names.contains_key(image) {
                loss::lose(state, now);
            }
        }
        self.pin_ops_done.retain(|_, done| *done > inventory.taken);
        self.inventory = Some(inventory);
    }

    /// Forgets a run, and returns its state if the run is what the state waits for.
    fn end_run(&mut self, number: u64) -> Option<(Key, &mut EntryState)> {
        let run = self.runs.remove(&number)?;
        let state = self
            .states
            .get_mut(&run.key)
            .filter(|state| state.run() == Some(number))?;
        Some((run.key, state))
    }
}

fn succeed(state: &mut EntryState, image: Image, now: Duration, wall: &Time) {
    state.trouble = None;
    state.note = None;
    state.waits = 0;
    state.completion_time = Some(wall.clone());
    state.bytes = match (image.bytes, state.bytes) {
        (Some(total), _) => Some(total),
        (None, seen) => seen.map(|bytes| bytes.total),
    }
    .map(|total| Bytes { done: total, total });
    state.origin = Origin::of(&image);
    state.last_succeeded = Some(LastSucceeded {
        version: state.version,
        digest: image.digest.clone(),
        completion_time: Some(wall.clone()),
    });
    state.digest = image.digest;
    state.image_id = Some(image.id);
    state.enter(Stage::Done(Phase::Succeeded), now);
}

fn failed_try(
    state: &mut EntryState,
    entry: &Entry,
    (reason, words, retry_after): (Reason, &str, Option<Duration>),
    now: Duration,
    wall: &Time,
) {
    let trouble = Trouble::new(reason, pull_message(&entry.key, reason, words));
    let pause = match reason.retry() {
        Retry::Permanent => None,
        Retry::Backoff if entry.tries <= state.attempts => None,
        Retry::Backoff => {
            state.waits = 0;
            Some(pause_after(state.attempts))
        }
        Retry::Later => {
            state.attempts = state.attempts.saturating_sub(1);
            state.waits += 1;
            Some(pause_after(state.waits))
        }
    };
    let Some(pause) = pause else {
        fail(state, trouble, now, wall);
        return;
    };
    state.trouble = Some(trouble);
    let until = now + pause.max(retry_after.unwrap_or_default().min(PATIENCE_MAX));
    state.enter(Stage::Look { until }, now);
}

pub(super) fn fail(state: &mut EntryState, trouble: Trouble, now: Duration, wall: &Time) {
    state.trouble = Some(trouble);
    state.note = None;
    state.completion_time = Some(wall.clone());
    state.enter(Stage::Done(Phase::Failed), now);
}

pub(super) fn deadline_exceeded(key: &Key) -> Trouble {
    let words = "pulling exceeds the activeDeadlineSeconds";
    Trouble::new(
        Reason::DeadlineExceeded,
        pull_message(key, Reason::DeadlineExceeded, words),
    )
}
