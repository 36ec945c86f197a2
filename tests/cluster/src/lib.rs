//! A cluster as people have it: control plane, scheduler, nodes with real kubelets and containerds; and Larder installed into
//! it by Helm, from the chart and the image archives that this repository makes.
//!
//! Everything ends with the [`Cluster`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

mod cluster;
mod images;
mod install;
mod jobs;
mod larder;
mod look;
mod pods;
mod proxied;

pub use cluster::Cluster;
pub use install::{NAMESPACE, RELEASE};
pub use larder::build_larder;
pub use proxied::{HIDDEN, Proxied};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Long enough for anything that happens at once, on a machine that also compiles.
pub const SOON: Duration = Duration::from_mins(2);

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
