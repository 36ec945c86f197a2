//! What the controller costs: a real kube-apiserver, the controller as a process, and thousands of hollow nodes in this
//! process, each with the real agent, a client and a watch of its own, and a runtime that only waits.
//!
//! | module | what it does |
//! |---|---|
//! | [`stage`] | starts the servers and the controller, and reads what they say about themselves |
//! | [`hollow`] | the nodes |
//! | [`watching`] | when the API showed what |
//! | [`job`] | one job from its creation to its end, with everything that can be measured about it |
//! | [`bare`] | the floor: a client that writes the same patches, and nothing else |
//! | [`rows`] | which figures there are |
//! | [`crowd`] | ten thousand nodes, two hundred jobs: objects without agents |
//! | [`virtual_time`] | a large campaign without any clock |
//! | [`table`] | goal, floor and result as people read them |
//!
//! Nothing here judges a time: a benchmark on a busy machine is slow, not wrong. That every node pulls once and every job
//! ends is asserted everywhere.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing to say")]
#![allow(clippy::panic, reason = "the same")]

pub mod bare;
pub mod crowd;
pub mod hollow;
pub mod job;
pub mod rows;
pub mod stage;
pub mod table;
pub mod virtual_time;
pub mod watching;

use std::time::Duration;

/// Nothing that is waited for takes longer, on a machine that compiles at the same time.
pub const LIMIT: Duration = Duration::from_mins(10);

/// How long every pull takes.
pub const PULL: Duration = Duration::from_millis(200);
