//! Where the time of day comes from: the one place of this crate that may read it.
//!
//! A paused test sees time move with tokio's clock, so that timestamps, TTLs and timeouts agree with each other.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Source of `creationTimestamp`, `deletionTimestamp` and of the age of events.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// Starts at `base` and moves with tokio's clock, which stands still in paused tests.
    Tokio {
        /// Time of day at `start`.
        base: Timestamp,
        /// Moment at which the time of day was `base`.
        start: Instant,
    },
}

impl Clock {
    /// A clock that shows `base` now and moves with tokio's time. Must be called inside a runtime.
    pub fn tokio(base: Timestamp) -> Self {
        Self::Tokio {
            base,
            start: Instant::now(),
        }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
            Self::System => Timestamp::now(),
            Self::Tokio { base, start } => {
                let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
                base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

/// A timestamp as Kubernetes writes it in metadata: whole seconds, UTC.
pub(crate) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
