//! Where one entry stands. This is what the agent keeps on disk.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::node_image::LastSucceeded;
use larder_model::{Phase, Reason};
use serde::{Deserialize, Serialize};

use super::Image;

/// What stands in the way, as a word and as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// One of the closed set.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

impl Trouble {
    /// Both.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Something to say about an image that is no failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// One of the closed set, where one fits.
    pub reason: Option<Reason>,
    /// For people.
    pub message: String,
}

/// What happens to an entry right now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// To be looked up in the runtime, after a pause if there was trouble. Where a fresh pull is wanted, the look is
    /// left out.
    Look {
        /// Not before.
        until: Duration,
    },
    /// Being looked up.
    Looking {
        /// Number of the question.
        run: u64,
    },
    /// Waits for a slot.
    Queued {
        /// Since when; the earliest starts first.
        since: Duration,
    },
    /// Being pulled.
    Running {
        /// Number of the try.
        run: u64,
    },
    /// Answered: Succeeded or Failed.
    Done(Phase),
}

/// Bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// On the node.
    pub done: u64,
    /// All of it, compressed.
    pub total: u64,
}

/// Where the bytes of an image that is there came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Over the line, during the try that succeeded.
    pub fetched: u64,
    /// On the node when that try began.
    pub present: u64,
    /// The hosts that sent something, where that is known.
    pub hosts: BTreeSet<String>,
}

impl Origin {
    /// Where the bytes of a pulled image came from; None where the runtime did not tell.
    pub(super) fn of(image: &Image) -> Option<Self> {
        let fetched = image.fetched?;
        Some(Self {
            fetched,
            present: image.bytes?.saturating_sub(fetched),
            hosts: image.hosts.clone(),
        })
    }
}

/// Where one entry stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryState {
    /// The version that this is about.
    pub version: i64,
    /// When this version was first seen, on the node's steady clock.
    pub seen: Duration,
    /// Time that had passed before `seen`, in earlier lives of the machine.
    pub spent: Duration,
    /// What happens now.
    pub stage: Stage,
    /// Since when.
    pub changed: Duration,
    /// Real tries.
    pub attempts: u32,
    /// Waits for the world in a row.
    pub waits: u32,
    /// How often the image vanished after a success.
    pub lost: u32,
    /// Pulled again because it vanished: this version has been answered, so its deadline is no longer looked at.
    pub again: bool,
    /// Why it waits, or why it failed.
    pub trouble: Option<Trouble>,
    /// The image is there, but not pinned or not named as it should be; or it vanished.
    pub note: Option<Note>,
    /// When the first try began, by the node's clock.
    pub start_time: Option<Time>,
    /// When it was answered, by the node's clock.
    pub completion_time: Option<Time>,
    /// How far it is.
    pub bytes: Option<Bytes>,
    /// Where the bytes came from, once they are all there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Digest of the manifest.
    pub digest: Option<String>,
    /// The runtime's id.
    pub image_id: Option<String>,
    /// The newest success.
    pub last_succeeded: Option<LastSucceeded>,
}

impl EntryState {
    pub(super) fn new(version: i64, stage: Stage, now: Duration) -> Self {
        Self {
            version,
            seen: now,
            spent: Duration::ZERO,
            stage,
            changed: now,
            attempts: 0,
            waits: 0,
            lost: 0,
            again: false,
            trouble: None,
            note: None,
            start_time: None,
            completion_time: None,
            bytes: None,
            origin: None,
            digest: None,
            image_id: None,
            last_succeeded: None,
        }
    }

    /// Time since this version was first seen.
    pub fn elapsed(&self, now: Duration) -> Duration {
        self.spent + now.saturating_sub(self.seen)
    }

    /// What is left of a deadline; without one, time without end.
    pub(super) fn left_of(&self, deadline: Option<Duration>, now: Duration) -> Duration {
        match deadline {
            Some(deadline) if !self.again => deadline.saturating_sub(self.elapsed(now)),
            _ => Duration::MAX,
        }
    }

    pub(super) fn enter(&mut self, stage: Stage, now: Duration) {
        self.stage = stage;
        self.changed = now;
    }

    /// Whether it is answered.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done(_))
    }

    /// Whether the image was there when last looked at.
    pub fn is_there(&self) -> bool {
        self.stage == Stage::Done(Phase::Succeeded)
    }

    pub(super) fn run(&self) -> Option<u64> {
        match self.stage {
            Stage::Looking { run } | Stage::Running { run } => Some(run),
            Stage::Look { .. } | Stage::Queued { .. } | Stage::Done(_) => None,
        }
    }

    /// Continues in a later life of the agent: what ran is gone. On another boot the clock has started anew, and only
    /// the time up to `saved` is known to have passed.
    #[must_use]
    pub fn resumed(mut self, saved: Duration, same_boot: bool, now: Duration) -> Self {
        if !same_boot {
            self.spent = self.elapsed(saved);
            self.seen = now;
        }
        if matches!(self.stage, Stage::Running { .. }) {
            // It did not fail, it was not seen to its end.
            self.attempts = self.attempts.saturating_sub(1);
        }
        if !self.is_done() {
            self.stage = Stage::Look { until: now };
        }
        self.changed = now;
        self
    }
}
