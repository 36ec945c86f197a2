//! The controller against a Kubernetes API, with nodes whose agents are scripted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod events;
mod fleet;
mod gauges;
mod image_list_pull_job;
mod image_pre_pull_job;
mod image_pull_job;
mod kubernetes;
mod node_image;
mod pods;
mod secrets;
mod stage;
