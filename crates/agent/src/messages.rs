//! The messages between the tasks.

use std::sync::Arc;

use larder_api::contract::OrderId;
use larder_api::{NodeImageSpec, NodeImageStatus};
use larder_model::ByteSize;
use larder_planner::node::{NodeInventory, TimedStatus};

/// What is asked of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Orders {
    /// Neither the ledger nor the API has shown any yet.
    #[default]
    Unknown,
    /// The NodeImage was deleted.
    Withdrawn,
    /// This.
    Given(Given),
}

/// One state of the NodeImage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    /// Which state.
    pub(crate) order: OrderId,
    /// What it asks for.
    pub(crate) spec: Arc<NodeImageSpec>,
    /// The status that stood beside it.
    pub(crate) said: Option<Arc<NodeImageStatus>>,
}

/// The NodeImage as the API showed it last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedNodeImage {
    /// Uid of the object.
    pub(crate) uid: String,
    /// Its resource version, empty where the server gives none.
    pub(crate) resource_version: String,
    /// Bytes of its JSON without the status.
    pub(crate) rest_bytes: usize,
    /// Its status.
    pub(crate) status: Option<NodeImageStatus>,
}

/// The runtime as of one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuntimeSnapshot {
    /// Name and version.
    pub(crate) runtime: String,
    /// Images and names.
    pub(crate) inventory: NodeInventory,
    /// Size and free bytes of the image filesystem.
    pub(crate) image_fs: Option<(ByteSize, ByteSize)>,
}

/// The status that the API should show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredStatus {
    /// The object that it is for.
    pub(crate) uid: String,
    /// Generation of the spec that it answers.
    pub(crate) generation: i64,
    /// Results, and when each of them is worth a write.
    pub(crate) entries: TimedStatus,
    /// Name and version of the runtime, once known.
    pub(crate) runtime: Option<String>,
    /// Room on the image filesystem.
    pub(crate) image_fs: Option<(ByteSize, ByteSize)>,
}
