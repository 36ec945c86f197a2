//! The agent against a real kube-apiserver: with a scripted runtime where time and order matter, with real containerds
//! and a real registry where the truth does.

mod api;
mod clocks;
mod containerd;
mod credentials;
mod offline;
mod scene;
mod trouble;
