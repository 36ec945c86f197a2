//! What comes from outside the runtime: orders, what the API remembers, what the ledger remembers.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::node_image::{ImageTagStatus, NodeImageStatus};
use larder_model::{Phase, PullWhen, Reason, Retry};

use super::super::entry_state::{Bytes, Note};
use super::{Entry, EntryState, Key, NodeScheduler, Stage, Trouble};

impl NodeScheduler {
    /// Takes up what was known in an earlier life of the agent, before any orders.
    pub fn resume(&mut self, states: BTreeMap<Key, EntryState>) {
        self.states = states;
    }

    /// Obeys these orders from now on. `said` is what the API remembers of our answers: it counts where the ledger
    /// knows nothing.
    pub fn take_orders(&mut self, entries: BTreeMap<Key, Entry>, said: Option<&NodeImageStatus>, now: Duration) {
        let mut before = std::mem::take(&mut self.states);
        for (key, entry) in &entries {
            let known = self.entries.as_ref().and_then(|known| known.get(key));
            let changed = known.is_some_and(|known| known != entry);
            let state = match before.remove(key) {
                Some(state) if state.version == entry.version => kept(state, changed, now),
                Some(state) if known.is_some_and(|known| answers_both(&state, known, entry)) => EntryState {
                    version: entry.version,
                    seen: now,
                    spent: Duration::ZERO,
                    ..state
                },
                Some(state) => EntryState {
                    last_succeeded: state.last_succeeded,
                    ..fresh(entry, now)
                },
                None => match answered(said, key) {
                    Some(answer) => adopted(entry, answer, now),
                    None => fresh(entry, now),
                },
            };
            self.states.insert(key.clone(), state);
        }
        self.entries = Some(entries);
    }

    /// Takes all orders back: nothing more is pulled, and what runs is given up. Pins stay, because an object that was
    /// deleted by mistake comes back in a moment.
    pub fn withdraw(&mut self) {
        self.states.clear();
        self.entries = None;
    }

    /// What these were waiting for has happened: they try now.
    pub fn wake(&mut self, now: Duration, reason: Reason) {
        let waits = |state: &&mut EntryState| state.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason);
        for state in self.states.values_mut().filter(waits) {
            wake(state, now);
        }
    }
}

/// Whether the pull that runs for the version before will also do for this one: it brings the image there, which is all
/// that is asked, and it would be begun again in the same way.
fn answers_both(state: &EntryState, before: &Entry, now: &Entry) -> bool {
    let pulls = matches!(state.stage, Stage::Running { .. }) && !before.dry_run && !now.dry_run;
    let same_way = before.credentials == now.credentials
        && before.secrets_named == now.secrets_named
        && before.checks == now.checks
        && before.alias == now.alias;
    pulls && now.when == PullWhen::IfNotPresent && same_way
}

fn fresh(entry: &Entry, now: Duration) -> EntryState {
    EntryState::new(entry.version, Stage::Look { until: now }, now)
}

fn kept(mut state: EntryState, changed: bool, now: Duration) -> EntryState {
    if changed {
        wake(&mut state, now);
    }
    state
}

fn wake(state: &mut EntryState, now: Duration) {
    let waits = state
        .trouble
        .as_ref()
        .is_some_and(|trouble| trouble.reason.retry() == Retry::Later);
    if let Stage::Look { until } = &mut state.stage
        && waits
    {
        *until = now;
        state.waits = 0;
    }
}

fn answered<'a>(said: Option<&'a NodeImageStatus>, key: &Key) -> Option<&'a ImageTagStatus> {
    said?
        .image_statuses
        .get(&key.name)?
        .tags
        .iter()
        .find(|status| status.tag == key.tag)
}

/// A final answer to this version stands; whether the image is still there is seen with the next inventory of the
/// runtime. Of anything else only the newest success is kept.
fn adopted(entry: &Entry, answer: &ImageTagStatus, now: Duration) -> EntryState {
    let mut state = EntryState {
        last_succeeded: answer.last_succeeded.clone(),
        ..fresh(entry, now)
    };
    if answer.version() != entry.version || !answer.phase().is_final() {
        return state;
    }
    state.stage = Stage::Done(answer.phase());
    state.attempts = answer
        .attempts
        .and_then(|attempts| u32::try_from(attempts).ok())
        .unwrap_or(0);
    state.start_time.clone_from(&answer.start_time);
    state.completion_time.clone_from(&answer.completion_time);
    state.digest.clone_from(&answer.digest);
    let id = answer.image_id.as_deref().and_then(|id| id.split_once('@'));
    state.image_id = id.map(|(_, id)| id.to_owned());
    let bytes = (answer.bytes_done, answer.bytes_total);
    if let (Some(done), Some(total)) = bytes {
        state.bytes = Some(Bytes {
            done: done.unsigned_abs(),
            total: total.unsigned_abs(),
        });
    }
    if let Some(message) = answer.message.clone() {
        match answer.phase() {
            Phase::Failed => state.trouble = Some(Trouble::new(answer.reason().unwrap_or(Reason::Internal), message)),
            _ => {
                state.note = Some(Note {
                    reason: answer.reason(),
                    message,
                });
            }
        }
    }
    state
}
