//! The agent against a real kube-apiserver: with a scripted runtime where time and order matter, with real containerds
//! and a real registry where the truth does.

#![expect(clippy::unwrap_used, reason = "what tests share fails by panicking, as tests do")]

mod api;
mod clocks;
mod containerd;
mod credentials;
mod dry_run;
mod duplicate;
mod fetching;
mod losses;
mod metaserver;
mod offline;
mod once;
mod patience;
mod scene;
mod trouble;
