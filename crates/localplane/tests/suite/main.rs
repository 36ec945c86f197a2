//! The server as its clients see it: in process, over TLS, from kubectl, after a crash, under faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod bad_input;
mod connections;
mod crash;
mod deletion;
mod faults;
mod http;
mod kubectl;
mod lists;
mod network;
mod time;
mod watches;
mod writes;
