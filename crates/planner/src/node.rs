//! What one node does next, as a function of values: orders, what is there, what runs, how much time has passed.
//!
//! [`NodeScheduler`] holds one [`EntryState`] per entry. The agent's driver passes events to it (new orders, the
//! end of a pull, an image that vanished), asks [`NodeScheduler::decide`] for the next [`NodeStep`]s and carries them out; it
//! decides nothing.
//! Time comes in as a [`Duration`](std::time::Duration) since some fixed moment, on a clock that never jumps. Wall time
//! is only passed through, for people to read.
//!
//! - A version is answered once. A new version, or a new entry, starts over; `lastSucceeded` stays.
//! - `IfNotPresent` is answered by looking, which takes no slot. `Always`, and an empty or unknown policy, pull.
//! - Pauses of 1, 2, 4 … 30 s stand between tries only. A permanent reason ends the entry, one that waits for the world
//!   uses up no try.
//! - An image that others removed is pulled again, with pauses that grow if that happens again and again, and not before there
//!   is room for it.
//! - The entry that waited longest starts first; entries of one job that came together start in the order of their positions.
//! - Nothing here knows a runtime, a registry or an API server.

mod checks;
mod duplicate;
mod entry;
mod entry_state;
mod loss;
mod message;
mod node_inventory;
mod pause;
mod scheduler;
mod status;

pub use checks::{Measured, Promise, USAGE_MAX, judge, room_before_clean_up, room_for};
pub use duplicate::{AgentIdentity, DuplicateDetector, QUIET_TIME};
pub use entry::{Entry, Key, entries};
pub use entry_state::{Bytes, EntryState, Note, Origin, Stage, Trouble};
pub use message::{own_words, pull_message};
pub use node_inventory::{NodeInventory, OwnName, PinOp};
pub use pause::pause_after;
pub use scheduler::{Ended, Found, Image, NodeScheduler, NodeStep, PATIENCE_MAX};
pub use status::{TimedStatus, fit};

#[cfg(test)]
mod tests;
