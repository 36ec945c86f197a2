//! What comes back from the runtime: looks, bytes, ends of tries, chores, pictures of what it holds.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::node_image::LastSucceeded;
use larder_model::{Phase, Reason, Retry};

use super::super::holdings::Holdings;
use super::super::pause_after;
use super::super::track::{Bytes, Note};
use super::{
    Board, CHORE_PAUSE, Chore, Ended, Entry, Found, Image, Key, Pace, Run, Stage, Track, Trouble, pull_message,
};

/// An image that vanishes once is pulled again at once; one that vanishes again and again is probably the kubelet's
/// clean-up, and pulling it each time would only fill the disk. The pause doubles up to an hour.
fn pause_after_loss(lost: u32) -> Duration {
    match lost {
        0 | 1 => Duration::ZERO,
        more => Duration::from_mins(1 << (more - 2).min(6)).min(Duration::from_hours(1)),
    }
}

/// The longest time that a registry may ask to be left alone. Some say a day, and are mended in a minute.
pub const PATIENCE_MAX: Duration = Duration::from_hours(1);

/// A pull that ran out of time did not take too long but stood still, if nothing had come for this time, or for half of a
/// time that is short itself.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// A look older than this says nothing about the end of a pull. Looks follow each other every second, unless the runtime does
/// not answer.
const LOOK_HOLDS: Duration = Duration::from_secs(5);

impl Run {
    /// How long nothing has come of a pull that began to come, as far as somebody looked. While everything is there and
    /// is being unpacked, it does not stand still.
    fn stands_still(&self, now: Duration) -> Option<Duration> {
        let pace = self.pace.filter(|pace| pace.done < pace.total)?;
        let unseen = now.saturating_sub(pace.seen);
        (unseen <= LOOK_HOLDS).then(|| pace.seen.saturating_sub(pace.since))
    }
}

impl Board {
    /// The answer to a look.
    pub fn looked(&mut self, run: u64, found: Found, now: Duration, wall: &Time) {
        let Some((key, track)) = self.end_run(run) else {
            return;
        };
        match found {
            Found::Present(image) => succeed(track, image, now, wall),
            // In line since the question was asked, so that quick answers overtake nobody.
            Found::Absent => {
                let since = track.changed;
                track.enter(Stage::Queued { since }, now);
            }
            Found::Unknown(reason, words) => {
                track.waits += 1;
                track.trouble = Some(Trouble::new(reason, pull_message(&key, reason, &words)));
                let until = now + pause_after(track.waits);
                track.enter(Stage::Look { until }, now);
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
        let track = key
            .and_then(|key| self.tracks.get_mut(&key))
            .filter(|track| track.run() == Some(run));
        if let Some(track) = track {
            let before = track.bytes.map_or(0, |bytes| bytes.done);
            track.bytes = Some(Bytes {
                done: done.max(before).min(total),
                total,
            });
        }
    }

    /// The end of a pull or dry run.
    pub fn ended(&mut self, run: u64, end: Ended, now: Duration, wall: &Time) {
        let entry = self.runs.get(&run).and_then(|run| self.entry(&run.key)).cloned();
        let still = self.runs.get(&run).and_then(|run| run.stands_still(now));
        let Some((key, track)) = self.end_run(run) else {
            return;
        };
        let Some(entry) = entry else {
            return;
        };
        match end {
            Ended::Pulled(image) => succeed(track, image, now, wall),
            Ended::Failed {
                reason,
                words,
                retry_after,
            } => failed_try(track, &entry, (reason, &words, retry_after), now, wall),
            Ended::TimedOut if track.left_of(entry.deadline, now).is_zero() => {
                fail(track, deadline_exceeded(&key), now, wall);
            }
            Ended::TimedOut => {
                let mut words = format!("the try took longer than its {} s", entry.timeout.as_secs());
                let mut reason = Reason::Timeout;
                if let Some(still) = still.filter(|still| STALLED_AFTER.min(entry.timeout / 2) <= *still) {
                    reason = Reason::Stalled;
                    words = format!("{words}, and in the last {} s nothing arrived", still.as_secs());
                }
                failed_try(track, &entry, (reason, &words, None), now, wall);
            }
            // Nobody asked for it, so something above us is going down: the next life takes it up again.
            Ended::Canceled => {
                track.attempts = track.attempts.saturating_sub(1);
                track.enter(Stage::Look { until: now }, now);
            }
            Ended::Report { verdict, bytes, digest } => {
                track.bytes = bytes.map(Bytes::from);
                track.digest = digest;
                track.completion_time = Some(wall.clone());
                match verdict {
                    Ok(message) => {
                        track.trouble = None;
                        track.note = Some(Note { reason: None, message });
                        track.enter(Stage::Done(Phase::Succeeded), now);
                    }
                    Err(trouble) => fail(track, trouble, now, wall),
                }
            }
        }
    }

    /// The end of a chore.
    pub fn chore_ended(&mut self, chore: &Chore, end: Result<(), Note>, now: Duration) {
        self.chores_running.remove(chore);
        match end {
            Ok(()) => drop(self.chores_done.insert(chore.clone(), now)),
            Err(note) => drop(self.chores_failed.insert(chore.clone(), (now + CHORE_PAUSE, note))),
        }
    }

    /// A new picture of what the runtime holds. What was there and is not in it was removed behind our back.
    pub fn picture(&mut self, holdings: Holdings, now: Duration) {
        for (key, entry) in self.entries.iter().flatten().filter(|(_, entry)| !entry.dry_run) {
            let (Ok(image), Some(track)) = (&entry.image, self.tracks.get_mut(key)) else {
                continue;
            };
            // Not what arrived after the picture was taken.
            if track.is_there() && track.changed <= holdings.taken && !holdings.names.contains_key(image) {
                vanish(track, now);
            }
        }
        self.chores_done.retain(|_, done| *done > holdings.taken);
        self.holdings = Some(holdings);
    }

    /// Forgets a run, and returns its track if the run is what the track waits for.
    fn end_run(&mut self, number: u64) -> Option<(Key, &mut Track)> {
        let run = self.runs.remove(&number)?;
        let track = self
            .tracks
            .get_mut(&run.key)
            .filter(|track| track.run() == Some(number))?;
        Some((run.key, track))
    }
}

fn vanish(track: &mut Track, now: Duration) {
    track.lost += 1;
    track.again = true;
    track.attempts = 0;
    track.waits = 0;
    track.start_time = None;
    track.completion_time = None;
    track.bytes = None;
    track.note = Some(Note {
        reason: None,
        message: "The image was removed from the node by somebody else; it is pulled again.".to_owned(),
    });
    let until = now + pause_after_loss(track.lost);
    track.enter(Stage::Look { until }, now);
}

fn succeed(track: &mut Track, image: Image, now: Duration, wall: &Time) {
    track.trouble = None;
    track.note = None;
    track.waits = 0;
    track.completion_time = Some(wall.clone());
    track.bytes = match (image.bytes, track.bytes) {
        (Some(total), _) => Some(total),
        (None, seen) => seen.map(|bytes| bytes.total),
    }
    .map(|total| Bytes { done: total, total });
    track.last_succeeded = Some(LastSucceeded {
        version: track.version,
        digest: image.digest.clone(),
        completion_time: Some(wall.clone()),
    });
    track.digest = image.digest;
    track.image_id = Some(image.id);
    track.enter(Stage::Done(Phase::Succeeded), now);
}

fn failed_try(
    track: &mut Track,
    entry: &Entry,
    (reason, words, retry_after): (Reason, &str, Option<Duration>),
    now: Duration,
    wall: &Time,
) {
    let trouble = Trouble::new(reason, pull_message(&entry.key, reason, words));
    let pause = match reason.retry() {
        Retry::Permanent => None,
        Retry::Backoff if entry.tries <= track.attempts => None,
        Retry::Backoff => {
            track.waits = 0;
            Some(pause_after(track.attempts))
        }
        Retry::Later => {
            track.attempts = track.attempts.saturating_sub(1);
            track.waits += 1;
            Some(pause_after(track.waits))
        }
    };
    let Some(pause) = pause else {
        fail(track, trouble, now, wall);
        return;
    };
    track.trouble = Some(trouble);
    let until = now + pause.max(retry_after.unwrap_or_default().min(PATIENCE_MAX));
    track.enter(Stage::Look { until }, now);
}

pub(super) fn fail(track: &mut Track, trouble: Trouble, now: Duration, wall: &Time) {
    track.trouble = Some(trouble);
    track.note = None;
    track.completion_time = Some(wall.clone());
    track.enter(Stage::Done(Phase::Failed), now);
}

pub(super) fn deadline_exceeded(key: &Key) -> Trouble {
    let words = "pulling exceeds the activeDeadlineSeconds";
    Trouble::new(
        Reason::DeadlineExceeded,
        pull_message(key, Reason::DeadlineExceeded, words),
    )
}
