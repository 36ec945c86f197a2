//! What comes from outside the runtime: orders, what the API remembers, what the ledger remembers.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::node_image::{ImageTagStatus, NodeImageStatus};
use larder_model::{Phase, PullWhen, Reason, Retry};

use super::super::track::{Bytes, Note};
use super::{Board, Entry, Key, Stage, Track, Trouble};

impl Board {
    /// Takes up what was known in an earlier life of the agent, before any orders.
    pub fn resume(&mut self, tracks: BTreeMap<Key, Track>) {
        self.tracks = tracks;
    }

    /// Obeys these orders from now on. `said` is what the API remembers of our answers: it counts where the ledger
    /// knows nothing.
    pub fn orders(&mut self, entries: BTreeMap<Key, Entry>, said: Option<&NodeImageStatus>, now: Duration) {
        let mut before = std::mem::take(&mut self.tracks);
        for (key, entry) in &entries {
            let known = self.entries.as_ref().and_then(|known| known.get(key));
            let changed = known.is_some_and(|known| known != entry);
            let track = match before.remove(key) {
                Some(track) if track.version == entry.version => kept(track, changed, now),
                Some(track) if known.is_some_and(|known| answers_both(&track, known, entry)) => Track {
                    version: entry.version,
                    seen: now,
                    spent: Duration::ZERO,
                    ..track
                },
                Some(track) => Track {
                    last_succeeded: track.last_succeeded,
                    ..fresh(entry, now)
                },
                None => match answered(said, key) {
                    Some(answer) => adopted(entry, answer, now),
                    None => fresh(entry, now),
                },
            };
            self.tracks.insert(key.clone(), track);
        }
        self.entries = Some(entries);
    }

    /// Takes all orders back: nothing more is pulled, and what runs is given up. Pins stay, because an object that was
    /// deleted by mistake comes back in a moment.
    pub fn withdraw(&mut self) {
        self.tracks.clear();
        self.entries = None;
    }

    /// What these were waiting for has happened: they try now.
    pub fn wake(&mut self, now: Duration, reason: Reason) {
        let waits = |track: &&mut Track| track.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason);
        for track in self.tracks.values_mut().filter(waits) {
            wake(track, now);
        }
    }
}

/// Whether the pull that runs for the version before will also do for this one: it brings the image there, which is all
/// that is asked, and it would be begun again in the same way.
fn answers_both(track: &Track, before: &Entry, now: &Entry) -> bool {
    let pulls = matches!(track.stage, Stage::Running { .. }) && !before.dry_run && !now.dry_run;
    let same_way = before.credentials == now.credentials
        && before.secrets_named == now.secrets_named
        && before.checks == now.checks
        && before.alias == now.alias;
    pulls && now.when == PullWhen::IfNotPresent && same_way
}

fn fresh(entry: &Entry, now: Duration) -> Track {
    Track::new(entry.version, Stage::Look { until: now }, now)
}

fn kept(mut track: Track, changed: bool, now: Duration) -> Track {
    if changed {
        wake(&mut track, now);
    }
    track
}

fn wake(track: &mut Track, now: Duration) {
    let waits = track
        .trouble
        .as_ref()
        .is_some_and(|trouble| trouble.reason.retry() == Retry::Later);
    if let Stage::Look { until } = &mut track.stage
        && waits
    {
        *until = now;
        track.waits = 0;
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

/// A final answer to this version stands; whether the image is still there is seen with the next picture of the
/// runtime. Of anything else only the newest success is kept.
fn adopted(entry: &Entry, answer: &ImageTagStatus, now: Duration) -> Track {
    let mut track = Track {
        last_succeeded: answer.last_succeeded.clone(),
        ..fresh(entry, now)
    };
    if answer.version() != entry.version || !answer.phase().is_final() {
        return track;
    }
    track.stage = Stage::Done(answer.phase());
    track.attempts = answer
        .attempts
        .and_then(|attempts| u32::try_from(attempts).ok())
        .unwrap_or(0);
    track.start_time.clone_from(&answer.start_time);
    track.completion_time.clone_from(&answer.completion_time);
    track.digest.clone_from(&answer.digest);
    let id = answer.image_id.as_deref().and_then(|id| id.split_once('@'));
    track.image_id = id.map(|(_, id)| id.to_owned());
    let bytes = (answer.bytes_done, answer.bytes_total);
    if let (Some(done), Some(total)) = bytes {
        track.bytes = Some(Bytes {
            done: done.unsigned_abs(),
            total: total.unsigned_abs(),
        });
    }
    if let Some(message) = answer.message.clone() {
        match answer.phase() {
            Phase::Failed => track.trouble = Some(Trouble::new(answer.reason().unwrap_or(Reason::Internal), message)),
            _ => {
                track.note = Some(Note {
                    reason: answer.reason(),
                    message,
                });
            }
        }
    }
    track
}
