//! The ways to change an object by telling the difference. Pure functions on JSON.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;
