//! OpenKruise's kinds: ImagePullJob, one image onto many nodes, and ImageListPullJob, which is a parent of one
//! ImagePullJob for each image.
//!
//! | module | question |
//! |---|---|
//! | [`dialect`] | how does the engine run an ImagePullJob? |
//! | [`campaign`] | which campaign does it ask for? |
//! | [`status`] | what does its status say? |
//! | [`list`] | which children does an ImageListPullJob have, and what does its status say? |

pub mod campaign;
pub mod dialect;
pub mod list;
pub mod status;

pub use dialect::PullJobs;
