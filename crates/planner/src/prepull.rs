//! KubeEdge's ImagePrePullJob: several images onto edge nodes, with checks, a tolerance for failures, per-image Secrets and
//! per-region rewrites, on the same engine as every other job.
//!
//! | module | question |
//! |---|---|
//! | [`campaign`] | what does the job ask for, and what is that to the engine? |
//! | [`images`], [`secret`] | which images, with which Secrets? |
//! | [`nodes`] | which nodes, and who fails before anything is tried? |
//! | [`overriders`], [`label_line`] | what do images and Secrets become on a node? |
//! | [`task`], [`reports`] | what is a node asked for, and what does it say to all of it? |
//! | [`time`] | whose time was over? |
//! | [`dress`] | what else do its entries need? |
//! | [`tolerance`], [`verdict`] | is it over, and how did it end? |
//! | [`status`], [`shed`] | what does the job say about itself? |
//! | [`explain`] | why does a node not move? |
//! | [`words`] | in which words? |
//!
//! A job runs like this: [`PrePull::of`] reads it, [`nodes::choose`] chooses its nodes, [`PrePull::tasks`] gives each its
//! images, [`PrePull::campaign`] makes it a [`Progress`](crate::Progress). Each node is looked at
//! by [`Reports::see`] and shown to the progress with [`NodeReport::claim_view`](task::NodeReport::claim_view) as its claim; a step of the progress is [`NodeTask::claim`] or
//! [`NodeTask::release`] on the node's NodeImage.

pub mod campaign;
pub mod dress;
pub mod explain;
pub mod images;
pub mod label_line;
pub mod nodes;
pub mod overriders;
pub mod reports;
pub mod secret;
pub mod shed;
pub mod status;
pub mod task;
pub mod time;
pub mod tolerance;
pub mod verdict;
pub mod words;

#[cfg(test)]
mod defects;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod stories;

pub use campaign::{PrePull, Refusal, Tasks};
pub use nodes::{Before, Candidate, Choice};
pub use reports::Reports;
pub use secret::SecretRef;
pub use status::Run;
pub use task::{NodeReport, NodeTask};
pub use time::NodeTime;
