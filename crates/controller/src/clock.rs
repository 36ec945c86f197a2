//! The one place where the core reads the time of day.

use jiff::Timestamp;

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
