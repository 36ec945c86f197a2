//! Real servers for tests: one call each starts a private Kubernetes control plane, a container runtime or an image
//! registry on loopback, with free ports and a folder of its own, and stops it again.
//!
//! What this crate promises:
//!
//! - Nothing outlives the test. Servers end when their handle is dropped, when the test panics, and also when the test
//!   process is killed with SIGKILL (see [`Process`]).
//! - Nothing waits blindly. Every start waits for a condition with a deadline; the error carries the end of the
//!   server's log.
//! - Nothing is skipped. A program that is not there is an error that says how to get it: `tests/servers/setup`.
//!
//! It knows no other crate of Larder but the sample images, so that every one of them can use it in its tests.

mod command;
mod container_runtime;
mod containerd;
mod control_plane;
mod cri_o;
mod cri_proxy;
mod docker;
mod environment;
mod error;
mod go_client;
mod grpc;
mod helm;
mod kubectl;
mod kubernetes_version;
mod metaserver;
mod name;
mod node;
mod port;
mod process;
mod promtool;
mod registry;
mod scratch;
mod throttle;
mod wait;

pub use container_runtime::{ContainerRuntime, RuntimeKind, RuntimeOptions};
pub use containerd::{Containerd, ContainerdOptions, ContainerdVersion};
pub use control_plane::{Access, Backup, ControlPlane, Options};
pub use cri_proxy::{Call, CriProxy};
pub use error::Error;
pub use go_client::go_client;
pub use grpc::grpc_call;
pub use helm::helm;
pub use kubectl::{Kubectl, kubectl, kubectl_edit};
pub use kubernetes_version::KubernetesVersion;
pub use larder_sample_images as image;
pub use metaserver::{EdgeRequest, Identity, MetaServer, Uplink};
pub use name::unique_name;
pub use node::{Node, NodeOptions, PAUSE_IMAGE, runnable_image};
pub use port::Port;
pub use process::{Lifetime, Process, Program, is_running};
pub use promtool::promtool;
pub use registry::{Auth, Pushed, Registry, Served};
pub use scratch::Scratch;
pub use throttle::{Link, Throttle};
pub use wait::{wait_for, wait_until};

/// What a call of this crate gives back.
pub type Result<T, E = Error> = std::result::Result<T, E>;
