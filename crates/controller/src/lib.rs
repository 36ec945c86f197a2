//! The controller: watches jobs, nodes and NodeImages, decides with the planner, writes orders and job status.
//!
//! The shell around it: [`lease`] says whether this replica may write, [`crd_check`] whether the CRDs can hold what it
//! writes.

pub mod crd_check;
mod error_chain;
pub mod lease;
