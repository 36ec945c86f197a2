//! The controller: watches jobs, nodes and NodeImages, decides with the planner, writes orders and job status.
//!
//! The shell around its core: [`run`] starts and ends everything, [`lease`] says whether this replica may write,
//! [`crd_check`] whether the CRDs can hold what it writes, [`policy_probe`] whether the node policy is enforced, [`args`] what was typed and [`settings`] what is meant.
//!
//! Hidden modules are public for the simulation (`larder-simulate`), which drives them without an API server.

pub mod args;
mod blocked_jobs;
mod clock;
pub mod connect;
pub mod core;
pub mod crd_check;
#[doc(hidden)]
pub mod engine;
pub mod error_chain;
pub mod explain;
#[doc(hidden)]
pub mod facts;
pub mod feature_gates;
mod health;
#[doc(hidden)]
pub mod kinds;
pub mod lease;
#[doc(hidden)]
pub mod lists;
mod permit;
pub mod policy_probe;
pub mod run;
pub mod settings;
mod warm;
