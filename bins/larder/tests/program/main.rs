//! The program as people use it: its output, its exit codes, its signals, in a pipe and in a terminal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the whole crate is a test; what goes wrong fails it"
)]

mod demo;
mod doctor;
mod go_client;
mod hostile;
mod jobs;
mod larder;
mod life;
mod offline;
mod plans;
mod pull;
mod refusals;
mod terminal;
mod up;
mod without_node_policy;
mod workloads;
