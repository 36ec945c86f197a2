//! The controller: watches jobs, nodes and NodeImages, decides with the planner, writes orders and job status.
//!
//! The shell around its core: [`run`] starts and ends everything, [`lease`] says whether this replica may write,
//! [`crd_check`] whether the CRDs can hold what it writes, [`args`] what was typed and [`settings`] what is meant.

pub mod args;
mod clock;
pub mod connect;
pub mod core;
pub mod crd_check;
pub mod error_chain;
pub mod explain;
mod facts;
pub mod feature_gates;
mod health;
mod index;
mod kinds;
pub mod lease;
mod merge;
mod permit;
pub mod run;
pub mod settings;
