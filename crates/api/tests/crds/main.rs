//! The CRDs as they are installed: what they say, what must hold for each of them, and that the types of this crate
//! read everything that they let through.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod examples;
mod image_rule;
mod invariants;
mod schema;
mod summary;
