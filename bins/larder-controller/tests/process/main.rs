//! The controller as a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

mod cluster;
mod errands;
mod flags;
mod replicas;
