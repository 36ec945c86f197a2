//! Every decision of Larder, as functions of values: no client, no clock, no randomness, no environment. Time comes in as
//! an argument, and what should be spread out is spread by a hash of stable names ([`jitter`]).
//!
//! The controller's half is about **campaigns**: one image, onto the selected nodes, so many at once, until it ends. A job
//! of any kind is translated into a [`Campaign`], and the engine never sees the kind.
//!
//! | module | question |
//! |---|---|
//! | [`campaign`] | what is asked for? |
//! | [`select`] | which nodes? |
//! | [`progress`] | where does it stand, which node is next, which order is taken back? |
//! | [`fleet`] | how do jobs share what the whole fleet may pull at once? |
//! | [`finish`] | is it over? |
//! | [`refresh`] | when does a job that never ends look again? |
//! | [`order`] | what is written into a node's NodeImage? |
//! | [`retention`] | which entries leave it, and when? |
//! | [`status`] | what does a job say about itself? |
//! | [`explain`] | why did this node not move? |
//! | [`prepull`] | what is different for KubeEdge's jobs, which have several images and rules of their own? |
//!
//! The node's half is [`node`]: what one agent does next.
//!
//! [`Progress`] is fed one node at a time and keeps its counts as it goes: what a change costs depends on the change,
//! not on the size of the fleet.

pub mod campaign;
pub mod explain;
pub mod finish;
pub mod fleet;
pub mod jitter;
pub mod node;
pub mod order;
pub mod prepull;
pub mod progress;
pub mod refresh;
pub mod retention;
pub mod select;
pub mod status;
pub mod view;

mod meter;
mod seat;

pub use campaign::Campaign;
pub use progress::{Progress, Step};
pub use view::{Block, ClaimView, NodeKey, NodeView};
