//! Container runtimes as Larder sees them: [`ImageRuntime`] and its back ends.
//!
//! - [`cri`]: any CRI v1 socket
//! - [`containerd`]: the same socket, with what containerd's own services add: bytes of a running pull, pins, aliases,
//!   events
//! - [`layout`]: an OCI image layout folder, for machines without a runtime
//! - [`fake`]: a scripted runtime in memory, for tests and for thousands of hollow nodes in one process
//!
//! [`detect`] finds the socket, [`connect()`] decides which back end it gets. Nothing here knows jobs, NodeImages or
//! Kubernetes; when and what to pull is decided elsewhere. A runtime that goes away is an error of the call under way
//! ([`Reason::RuntimeDown`](larder_model::Reason::RuntimeDown)); the next call finds it again, so callers just wait.

mod capability;
mod classify;
mod connect;
mod endpoint;
mod error;
mod event;
mod fetching;
mod image;
mod image_fs;
mod image_runtime;
mod link;
mod pull_request;
mod sha256;
#[cfg(test)]
mod test_server;

pub mod containerd;
pub mod cri;
pub mod detect;
pub mod fake;
pub mod layout;

pub use capability::{Capabilities, Support};
pub use connect::{connect, connect_with};
pub use endpoint::{RuntimeEndpoint, RuntimeEndpointError};
pub use error::{RuntimeError, RuntimeText};
pub use event::{ImageEvent, ImageEvents};
pub use fetching::{FetchOwner, FetchPath, Fetching, LeftToRuntime};
pub use image::{ImageFs, LocalImage, OwnReference, Progress, PulledImage, Purpose, RuntimeVersion};
pub use image_runtime::ImageRuntime;
pub use larder_registry::{Credential, LoginServers, MirrorLogin};
pub use pull_request::{MARKER_ANNOTATION, PullRequest, Sandbox};
