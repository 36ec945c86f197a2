//! The controller against a Kubernetes API, with nodes whose agents are scripted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fleet;
mod image_pull_job;
mod stage;
