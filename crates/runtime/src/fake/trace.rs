//! What the fake was asked to do.

use std::collections::{BTreeMap, VecDeque};

use larder_model::ImageRef;
use tokio::time::Instant;

/// Calls that are kept. Enough for any test; bounded, because hollow nodes live long.
const LIMIT: usize = 4096;

/// A call that changed something, or tried to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A pull began.
    Pull(PullCall),
    /// A pull's future was dropped before its end.
    Cancelled(ImageRef),
    /// An image was removed.
    Remove(ImageRef),
    /// An image was pinned.
    Pin(ImageRef),
    /// A pin was taken back.
    Unpin(ImageRef),
    /// The first image got the second name.
    Alias(ImageRef, ImageRef),
}

/// What a pull was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullCall {
    /// The image.
    pub image: ImageRef,
    /// As whom; `None` for an anonymous pull.
    pub username: Option<String>,
    /// Labels of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the sandbox, the marker included.
    pub annotations: BTreeMap<String, String>,
    /// When it began.
    pub at: Instant,
}

#[derive(Default)]
pub(super) struct Trace(VecDeque<Call>);

impl Trace {
    pub(super) fn record(&mut self, call: Call) {
        if LIMIT <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.0.iter().cloned().collect()
    }
}
