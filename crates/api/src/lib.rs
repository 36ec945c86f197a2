//! The four kinds that Larder serves, as Rust types and as CustomResourceDefinitions.
//!
//! | kind | group | versions (stored one first) | scope |
//! |---|---|---|---|
//! | [`ImagePullJob`] | `apps.kruise.io` | v1beta1, v1alpha1 | namespaced |
//! | [`ImageListPullJob`] | `apps.kruise.io` | v1beta1, v1alpha1 | namespaced |
//! | [`NodeImage`] | `apps.kruise.io` | v1beta1, v1alpha1 | cluster |
//! | [`ImagePrePullJob`] | `operations.kubeedge.io` | v1alpha2, v1alpha1 | cluster |
//!
//! There is one type per kind, not one per version: both versions carry the same schema, so that a write through either
//! of them loses nothing (conversion strategy `None`). Versions differ in their printer columns alone; see [`crd`].
//!
//! Defaults and refusals live in the schema, as defaults and CEL rules ([`rules`]), never in a webhook.
//!
//! [`contract`] is what the controller and a node's agent agree on: how to read and write a NodeImage between them.
//!
//! This crate holds no decision, knows no client and no clock.

pub mod conditions;
pub mod contract;
pub mod crd;
pub mod image_list_pull_job;
pub mod image_pre_pull_job;
pub mod image_pull_job;
pub mod names;
pub mod node_image;
pub mod progress;
pub mod rules;
mod schema;
pub mod template;
mod time;
pub mod window;

pub use crd::crds;
pub use image_list_pull_job::{ImageListPullJob, ImageListPullJobSpec, ImageListPullJobStatus};
pub use image_pre_pull_job::{ImagePrePullJob, ImagePrePullJobSpec, ImagePrePullJobStatus};
pub use image_pull_job::{ImagePullJob, ImagePullJobSpec, ImagePullJobStatus};
pub use node_image::{NodeImage, NodeImageSpec, NodeImageStatus};
