//! What the agent counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// How a pull ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PullLabels {
    /// `succeeded`, `present` or `failed`.
    pub(crate) result: &'static str,
    /// The reason of a failure; empty otherwise.
    pub(crate) reason: &'static str,
}

/// How a write to the API ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WriteLabels {
    /// `ok` or `failed`.
    pub(crate) result: &'static str,
}

/// The agent's counters. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) pulls: Family<PullLabels, Counter>,
    pub(crate) bytes: Counter,
    pub(crate) seconds: Histogram,
    pub(crate) running: Gauge,
    pub(crate) queued: Gauge,
    pub(crate) writes: Family<WriteLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            pulls: Family::default(),
            bytes: Counter::default(),
            // From a tenth of a second to almost an hour.
            seconds: Histogram::new(exponential_buckets(0.1, 2.0, 16)),
            running: Gauge::default(),
            queued: Gauge::default(),
            writes: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers them all.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pulls", "Tries to pull an image, by how they ended", self.pulls.clone());
        registry.register_with_unit(
            "pulled",
            "Bytes that pulls fetched, as far as the runtime tells",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit("pull_duration", "Time of one try", Unit::Seconds, self.seconds.clone());
        registry.register("pulls_running", "Pulls that run", self.running.clone());
        registry.register(
            "pulls_queued",
            "Entries that wait for a slot or for the end of a pause",
            self.queued.clone(),
        );
        registry.register("api_writes", "Status writes, by how they ended", self.writes.clone());
    }
}
