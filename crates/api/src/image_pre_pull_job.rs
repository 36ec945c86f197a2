//! `ImagePrePullJob`: KubeEdge's kind. Images onto edge nodes, with checks, a tolerance for failures, and the per-image
//! secrets and per-region overriders that KubeEdge proposed.

mod images;
mod overriders;
mod spec;
mod status;

pub use images::{ImageParts, PrePullImage};
pub use overriders::{ComponentOverride, Overrider, OverriderItem, Overriders};
pub use spec::{ImagePrePullJob, ImagePrePullJobSpec, ImagePrePullTemplate};
pub use status::{
    ActionFlowEntry, ImagePrePullJobStatus, ImagePullResult, LegacyImageStatus, LegacyNodeStatus, LegacyTaskStatus,
    NodeTaskStatus, OmittedNodes,
};
