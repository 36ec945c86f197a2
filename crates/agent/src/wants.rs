//! What travels between the tasks.

use std::sync::Arc;

use larder_api::contract::OrderId;
use larder_api::{NodeImageSpec, NodeImageStatus};
use larder_model::ByteSize;
use larder_planner::node::{Holdings, Shown};

/// What is asked of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Orders {
    /// Nobody has said anything yet.
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
    /// What it remembers of our answers.
    pub(crate) said: Option<Arc<NodeImageStatus>>,
}

/// What the API showed last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
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
pub(crate) struct Picture {
    /// Name and version.
    pub(crate) runtime: String,
    /// Images and names.
    pub(crate) holdings: Holdings,
    /// Size and free bytes of the image filesystem.
    pub(crate) image_fs: Option<(ByteSize, ByteSize)>,
}

/// What the status shall say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// The object that it is for.
    pub(crate) uid: String,
    /// Generation of the spec that it answers.
    pub(crate) generation: i64,
    /// Results and their urgency.
    pub(crate) shown: Shown,
    /// Name and version of the runtime, once known.
    pub(crate) runtime: Option<String>,
    /// Room on the image filesystem.
    pub(crate) image_fs: Option<(ByteSize, ByteSize)>,
}
