//! Everything about registries: whose credentials fit an image, where its bytes lie, and how they are fetched.
//!
//! | module | promise |
//! |---|---|
//! | [`credential`] | a name and a password that never show up in a log |
//! | [`docker_config`] | pull secrets and docker's configuration files become credentials; a broken entry hides no other |
//! | [`keyring`] | the kubelet's rules for which credentials fit which image, in which order |
//! | [`provider`] | the kubelet's credential-provider plugins, run on this machine |
//! | [`hosts`] | containerd's `hosts.toml`: mirrors and certificates per registry |
//! | [`fetch`] | blobs at the speed of the line: several at once, in ranges, from where they broke off |
//! | [`client`] | manifests by platform, blobs checked by digest, errors as [`larder_model::Reason`] |
//!
//! Nothing here knows Kubernetes objects or container runtimes, and nothing decides what to pull.

pub mod client;
pub mod credential;
pub mod docker_config;
pub mod fetch;
#[cfg(test)]
mod fuzz;
pub mod hosts;
pub mod keyring;
pub mod manifest;
pub mod platform;
pub mod provider;

pub use client::{
    BlobWriter, KnownContent, LoginServers, MirrorLogin, Progress, RegistryClient, RegistryError, RegistryWait,
    Repository, Settings,
};
pub use credential::Credential;
pub use keyring::Keyring;
pub use platform::Platform;
