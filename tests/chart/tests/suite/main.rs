//! The chart, as an operator meets it: rendered for old and new clusters, with each set of values that it ships, applied
//! to a real API server, fed with wrong values; and what it lets each ServiceAccount do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

mod apply;
mod chart;
mod everything;
mod kruise;
mod kruise_values;
mod refusals;
mod render;
mod rights;
mod selectors;
mod values;
