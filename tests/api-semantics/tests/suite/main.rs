//! How the API behaves, told by requests: what is accepted, completed, refused, kept, printed.
//!
//! The suite knows the CRDs and the servers that they are installed on, and nothing of how either is made. Each test
//! runs on every [`target::Target`]; where two servers differ, kube-apiserver is right.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod case;
mod kind;
mod server;
mod target;
mod yaml;

mod builtin;
mod columns;
mod contract;
mod creating;
mod deleting;
mod differential;
mod examples;
mod full;
mod image_list_pull_job;
mod image_pre_pull_job;
mod image_pull_job;
mod image_references;
mod kubectl;
mod lists;
mod node_image;
mod patching;
mod protobuf;
mod pruning;
mod requests;
mod selectors;
mod sizes;
mod status;
mod superset;
mod template;
mod updates;
mod watches;
