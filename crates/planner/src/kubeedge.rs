//! KubeEdge's ImagePrePullJob: several images onto edge nodes, with checks, a tolerance for failures, per-image Secrets and
//! per-region rewrites, on the same engine as every other job.
//!
//! | module | question |
//! |---|---|
//! | [`dialect`] | how does the engine run such a job? |
//! | [`campaign`] | what does the job ask for, and which campaign is that? |
//! | [`images`] | which images, with which Secrets? |
//! | [`nodes`] | which nodes, and which of them fail before anything is tried? |
//! | [`overriders`], [`label_selector`] | what do images and Secrets become on a node? |
//! | [`reports`] | what have the nodes reported so far? |
//! | [`time`] | whose time was over? |
//! | [`tolerance`], [`verdict`] | how many nodes may fail, and how did it end? |
//! | [`status`], [`truncate_status`] | what does the job's status say? |
//! | [`explain`] | why does a node not move? |
//! | [`texts`] | in which words? |
//! | `recorded` | what does a status tell of the nodes when it is read back? |

pub mod campaign;
pub mod dialect;
pub mod explain;
pub mod images;
pub mod label_selector;
pub mod nodes;
pub mod overriders;
mod recorded;
pub mod reports;
pub mod status;
pub mod texts;
pub mod time;
pub mod tolerance;
pub mod truncate_status;
pub mod verdict;

#[cfg(test)]
mod defects;
#[cfg(test)]
mod job_proptests;
#[cfg(test)]
pub(crate) mod samples;

pub use campaign::{PrePull, SpecError};
pub use dialect::{PrePullJobs, PrePullRun};
pub use nodes::{Before, Choice};
pub use reports::Reports;
