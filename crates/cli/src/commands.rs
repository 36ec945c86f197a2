//! One file for each command.

pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod doctor;
pub(crate) mod lint;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod why;
