//! What the core counts: every way a call can end, and how much is under way.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use larder_planner::node_gate::GateReason;

use super::forbidden_log::ForbiddenLog;
use crate::engine::Engine;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum CallOutcome {
    Done,
    Absent,
    Refused,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
    outcome: CallOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReleaseLabels {
    reason: &'static str,
}

/// What the core counts, and of which forbidden calls it has warned. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    slots: Gauge,
    nodes: Gauge,
    running_jobs: Gauge,
    dropped_events: Gauge,
    turns: Histogram,
    longest_turn: Gauge<f64, AtomicU64>,
    restores: Counter,
    withheld: Gauge,
    gated_nodes: Gauge,
    released_nodes: Family<ReleaseLabels, Counter>,
    pub(super) forbidden: ForbiddenLog,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            slots: Gauge::default(),
            nodes: Gauge::default(),
            running_jobs: Gauge::default(),
            dropped_events: Gauge::default(),
            // From ten microseconds to ten seconds.
            turns: Histogram::new(exponential_buckets(1e-5, 4.0, 11)),
            longest_turn: Gauge::default(),
            restores: Counter::default(),
            withheld: Gauge::default(),
            gated_nodes: Gauge::default(),
            released_nodes: Family::default(),
            forbidden: ForbiddenLog::default(),
        }
    }
}

impl Metrics {
    /// Makes the numbers and shows them in a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "api_calls",
            "Calls to the API server, by how they ended",
            metrics.calls.clone(),
        );
        registry.register(
            "active_pulls",
            "Orders without a result, over all jobs",
            metrics.slots.clone(),
        );
        registry.register(
            "nodes",
            "Nodes that have an agent, or are to have one",
            metrics.nodes.clone(),
        );
        registry.register("running_jobs", "Jobs that run", metrics.running_jobs.clone());
        registry.register(
            "dropped_events",
            "Events that were never written",
            metrics.dropped_events.clone(),
        );
        registry.register(
            "turn_seconds",
            "Time from something that happened to the requests that follow from it",
            metrics.turns.clone(),
        );
        registry.register(
            "longest_turn_seconds",
            "The longest of these since the start",
            metrics.longest_turn.clone(),
        );
        registry.register(
            "restores",
            "Times that resource versions went backwards, as after a restore of etcd",
            metrics.restores.clone(),
        );
        registry.register(
            "credentials_withheld",
            "Whether nodes are sent no logins because the node policy is not known to be enforced",
            metrics.withheld.clone(),
        );
        registry.register(
            "gated_nodes",
            "New nodes that wait for the images of jobs with nodeGate",
            metrics.gated_nodes.clone(),
        );
        registry.register(
            "released_nodes",
            "New nodes that wait no more, by the reason in their condition; WaitLimitReached: without all images",
            metrics.released_nodes.clone(),
        );
        metrics
    }

    /// Resource versions went backwards.
    pub(super) fn went_backwards(&self) {
        self.restores.inc();
    }

    /// A new node waits no more.
    pub(super) fn node_released(&self, reason: GateReason) {
        let reason = reason.as_str();
        self.released_nodes.get_or_create(&ReleaseLabels { reason }).inc();
    }

    pub(super) fn count(&self, call: &'static str, outcome: CallOutcome) {
        self.calls.get_or_create(&CallLabels { call, outcome }).inc();
    }

    /// One iteration of the loop took so long.
    pub(super) fn iterated(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.turns.observe(seconds);
        if self.longest_turn.get() < seconds {
            self.longest_turn.set(seconds);
        }
    }

    /// Another replica leads now, and shows what runs.
    pub(super) fn step_down(&self) {
        self.slots.set(0);
        self.running_jobs.set(0);
        self.withheld.set(0);
        self.gated_nodes.set(0);
    }

    pub(super) fn show(&self, engine: &Engine) {
        let sizes = engine.sizes();
        self.slots.set(number(sizes.slots));
        self.nodes.set(number(sizes.nodes));
        self.running_jobs.set(number(sizes.running_jobs));
        self.gated_nodes.set(number(sizes.gated_nodes));
        self.withheld.set(i64::from(engine.withholds_credentials()));
        self.dropped_events
            .set(i64::try_from(sizes.dropped_events).unwrap_or(i64::MAX));
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
