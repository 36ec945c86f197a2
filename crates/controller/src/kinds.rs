//! What each kind of job means for the engine, and what the engine's progress means for the kind. Functions of values.

pub(crate) mod image_list_pull_job;
pub(crate) mod image_pre_pull_job;
pub(crate) mod image_pull_job;
