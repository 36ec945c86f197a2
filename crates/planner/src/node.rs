//! What one node does next, as a function of values: orders, what is there, what runs, how much time has passed.
//!
//! [`Board`] holds one [`Track`] per entry. Whoever drives it tells it what happened (new orders, the end of a pull, an
//! image that vanished) and asks [`Board::decide`] for the next [`Step`]s; it carries them out and makes no choices.
//! Time comes in as a [`Duration`](std::time::Duration) since some fixed moment, on a clock that never jumps. Wall time
//! is only passed through, for people to read.
//!
//! - A version is answered once. A new version, or a new entry, starts over; `lastSucceeded` stays.
//! - `IfNotPresent` is answered by looking, which takes no slot. `Always`, and an empty or unknown policy, pull.
//! - Pauses of 1, 2, 4 … 30 s stand between tries only. A permanent reason ends the entry, one that waits for the world
//!   uses up no try.
//! - Slots go to who waited longest; images of one job that came together take their places in the order that it says.
//! - Nothing here knows a runtime, a registry or an API server.

mod board;
mod checks;
mod duplicate;
mod entry;
mod holdings;
mod message;
mod pause;
mod status;
mod track;

pub use board::{Board, Ended, Found, Image, PATIENCE_MAX, Step};
pub use checks::{Measured, Promise, USAGE_MAX, judge, room_for};
pub use duplicate::{AgentIdentity, DuplicateDetector, QUIET_TIME};
pub use entry::{Entry, Key, entries};
pub use holdings::{Chore, Holdings, OwnName};
pub use message::pull_message;
pub use pause::pause_after;
pub use status::{Shown, fit};
pub use track::{Bytes, Note, Stage, Track, Trouble};

#[cfg(test)]
mod tests;
