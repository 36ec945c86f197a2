//! `NodeImage`: the work order of one node. The controller alone writes the spec, the node's agent alone the status.
//!
//! Its name is the node's name. Everything that grows with the number of nodes lives here, never in a job.
//! [`crate::contract`] says how the two sides read and write it.

mod spec;
mod status;

pub use spec::{
    Claim, ImageSpec, ImageTagPullPolicy, ImageTagSpec, NodeImage, NodeImageSpec, PullSecretReference, SealedCredential,
};
pub use status::{AgentStatus, ImageFsStatus, ImageStatus, ImageTagStatus, LastSucceeded, NodeImageStatus, SyncStatus};
