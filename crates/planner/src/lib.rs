//! Every decision of Larder, as functions of values: no client, no clock, no randomness, no environment. Time comes in as
//! an argument, and what should be spread out is spread by a hash of stable names ([`jitter`]).
//!
//! The controller's half is about **campaigns**: an ordered list of images for each selected node, so many nodes at once,
//! until the campaign ends. Every kind of job is a [`Dialect`](dialect::Dialect): it becomes a [`Campaign`], and the
//! campaign's progress becomes that kind's status. The engine knows no kind.
//!
//! | module | question |
//! |---|---|
//! | [`campaign`] | what is asked for? |
//! | [`task`], [`secret`] | of one node? |
//! | [`select`], `pod_nodes` | which nodes? |
//! | [`agent_nodes`] | which of them have an agent? |
//! | [`view`], [`report`] | what is known of one node? |
//! | [`progress`] | where does the campaign stand, which node is next, which order is taken back? |
//! | [`fleet`] | how do jobs share what the whole fleet may pull at once? |
//! | `node_state` | where does one node stand in it? |
//! | `eta` | how long will it take? |
//! | [`priority`] | what does a lower priority get? |
//! | [`finish`] | is it over? |
//! | [`windows`] | when may work be handed out? |
//! | [`refresh`], [`schedule`] | when does a job that never ends look again? |
//! | [`node_gate`] | may pods be scheduled on a new node? |
//! | [`node_policy`] | may logins be sealed for nodes? |
//! | [`node_spec`] | what should a node's NodeImage say? |
//! | [`occupancy`] | who occupies it, and who may occupy more? |
//! | [`claim`] | how is an image claimed in it, and what is read back? |
//! | [`checks_and_aliases`] | what else do its entries need? |
//! | [`retention`] | which entries leave it, and when? |
//! | [`explain`] | why did this node not move? |
//! | [`conditions`] | which conditions does a job have? |
//! | [`not_served`] | what does a job say while none is served? |
//! | [`workload`] | which images, nodes and Secrets do the pods of a workload need? |
//! | [`dialect`] | what is a kind of job to the engine? |
//! | [`kruise`], [`kubeedge`] | the kinds |
//!
//! The node's half is [`node`]: what one agent does next.
//!
//! [`Progress`] is fed one node at a time and keeps its counts as it goes: what a change costs depends on the change,
//! not on the size of the fleet.

pub mod agent_nodes;
pub mod campaign;
pub mod checks_and_aliases;
pub mod claim;
pub mod conditions;
pub mod dialect;
pub mod explain;
pub mod finish;
pub mod fleet;
pub mod jitter;
pub mod kruise;
pub mod kubeedge;
pub mod node;
pub mod node_gate;
pub mod node_policy;
pub mod node_spec;
pub mod not_served;
pub mod occupancy;
pub mod priority;
pub mod progress;
pub mod refresh;
pub mod report;
pub mod retention;
pub mod schedule;
pub mod secret;
pub mod select;
pub mod task;
pub mod view;
pub mod windows;
pub mod workload;

mod eta;
mod node_state;
mod pod_nodes;

pub use campaign::Campaign;
pub use progress::{Progress, Step};
pub use secret::SecretRef;
pub use view::{Block, ClaimView, Heard, NodeKey, NodeView};
