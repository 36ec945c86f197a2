//! What the generated RBAC and the policy grant and refuse, on a real kube-apiserver, with real tokens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

mod agent;
mod cluster;
mod controller;
mod files;
mod policy;
mod without_node_policy;
