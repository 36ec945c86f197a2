//! What a service shows of itself: logs on standard error, metrics and health over HTTP.
//!
//! - [`logs::init`]: text for people, JSON for collectors, one filter for both
//! - [`Health`]: named parts, each ready or not and why; ready when all are
//! - [`instance_name`]: what this process calls itself
//! - [`server`]: `/healthz`, `/readyz` and `/metrics` on one address, metrics to whom [`MetricsAccess`] allows
//!
//! Nothing is global except the subscriber of `tracing`: `main` creates the metrics registry and the health and passes them to
//! the parts that need them.

mod access;
pub mod health;
mod instance;
pub mod logs;
pub mod server;

pub use access::MetricsAccess;
pub use health::{Health, Part};
pub use instance::instance_name;
pub use prometheus_client::registry::Registry;
