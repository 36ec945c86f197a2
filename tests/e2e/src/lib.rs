//! A cluster with Larder installed as its users install it: the files in `deploy`, the programs as processes, each with
//! no more than its own permissions; and nodes that are real containerds.
//!
//! Everything ends with the [`Cluster`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

mod cluster;
mod edge_node;
mod edge_site;
mod edge_watch;
mod environment;
pub mod kubeedge;
mod node;
mod programs;
mod sampling;
mod setup;
mod storm;
mod writing;

pub use cluster::Cluster;
pub use edge_node::{EDGE, GROUP};
pub use edge_site::{EdgeSite, Line};
pub use edge_watch::{JobHistory, Said, StatusHistory};
pub use environment::seed;
pub use node::TestNode;
pub use sampling::{Orders, Results, Seen};
pub use setup::Setup;
pub use storm::{NODES as STORM_NODES, Part, Restore, Round, Storm};

use std::time::Duration;

/// Long enough for anything that happens at once, on a machine that also compiles.
pub const SOON: Duration = Duration::from_mins(1);
