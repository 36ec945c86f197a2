//! What the agent counts.

use std::collections::BTreeMap;

use larder_runtime::LeftToRuntime;
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

/// Who fetched the layers of a pulled image, while the agent's own fetcher is on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FetchLabels {
    /// `agent` or `runtime`.
    pub(crate) by: &'static str,
    /// Why it was left to the runtime; empty otherwise.
    pub(crate) reason: &'static str,
}

impl FetchLabels {
    pub(crate) fn fetched() -> Self {
        Self {
            by: "agent",
            reason: "",
        }
    }

    pub(crate) fn left(why: LeftToRuntime) -> Self {
        Self {
            by: "runtime",
            reason: why.as_str(),
        }
    }
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
    pub(crate) fetches: Family<FetchLabels, Counter>,
    pub(crate) bytes: Counter,
    pub(crate) seconds: Histogram,
    pub(crate) running: Gauge,
    pub(crate) queued: Gauge,
    pub(crate) writes: Family<WriteLabels, Counter>,
    pub(crate) conflicts: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            pulls: Family::default(),
            fetches: Family::default(),
            bytes: Counter::default(),
            // From a tenth of a second to almost an hour.
            seconds: Histogram::new(exponential_buckets(0.1, 2.0, 16)),
            running: Gauge::default(),
            queued: Gauge::default(),
            writes: Family::default(),
            conflicts: Counter::default(),
        }
    }
}

impl Metrics {
    /// Registers them all.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pulls", "Tries to pull an image, by how they ended", self.pulls.clone());
        registry.register(
            "fetches",
            "Pulled images by who fetched their layers, with --fetch=auto; with the reason where it was left to the runtime",
            self.fetches.clone(),
        );
        registry.register_with_unit(
            "pulled",
            "Bytes that pulls fetched, where the runtime reports it",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit("pull_duration", "Time of one try", Unit::Seconds, self.seconds.clone());
        registry.register("pulls_running", "Pulls that run", self.running.clone());
        registry.register(
            "pulls_queued",
            "Entries that wait for a runtime_handle or for the end of a pause",
            self.queued.clone(),
        );
        registry.register("api_writes", "Status writes, by how they ended", self.writes.clone());
        registry.register(
            "status_conflicts",
            "Times that another agent with the name of this node overwrote the status",
            self.conflicts.clone(),
        );
    }
}

/// Bytes of running pulls, by their number, to tell what they fetched. What was there at the first look was there before,
/// unless the runtime says at the end what the pull itself brought.
#[derive(Default)]
pub(crate) struct Fetched(BTreeMap<u64, Looked>);

#[derive(Default)]
struct Looked {
    done: u64,
    counted: u64,
}

impl Fetched {
    /// Bytes that are new since the last look.
    pub(crate) fn looked(&mut self, run: u64, done: u64) -> u64 {
        let looked = self.0.entry(run).or_insert(Looked { done, counted: 0 });
        let new = done.saturating_sub(looked.done);
        looked.done = done;
        looked.counted += new;
        new
    }

    /// Bytes that were not counted yet, of a pull that ended with all of them, and that brought so many, where that is known.
    pub(crate) fn ended(&mut self, run: u64, all: Option<u64>, fetched: Option<u64>) -> u64 {
        match (self.0.remove(&run), fetched, all) {
            (looked, Some(fetched), _) => fetched.saturating_sub(looked.unwrap_or_default().counted),
            (Some(looked), None, Some(all)) => all.saturating_sub(looked.done),
            (_, None, _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_last_look_are_counted_too() {
        let mut fetched = Fetched::default();
        assert_eq!(fetched.looked(1, 100), 0, "they may have been there");
        assert_eq!(fetched.looked(1, 300), 200);
        assert_eq!(fetched.ended(1, Some(1_000), None), 700);
        assert_eq!(fetched.ended(1, Some(1_000), None), 0, "once");
    }

    #[test]
    fn what_came_before_the_first_look_is_counted_where_the_runtime_tells() {
        let mut fetched = Fetched::default();
        assert_eq!(
            fetched.ended(1, Some(1_000), Some(600)),
            600,
            "there was no look at all"
        );
        fetched.looked(2, 100);
        fetched.looked(2, 300);
        assert_eq!(fetched.ended(2, Some(1_000), Some(900)), 700, "200 were counted");
        fetched.looked(3, 100);
        fetched.looked(3, 300);
        assert_eq!(fetched.ended(3, Some(300), Some(150)), 0, "nothing is taken back");
    }

    #[test]
    fn a_pull_that_failed_or_whose_bytes_are_unknown_adds_nothing() {
        let mut fetched = Fetched::default();
        fetched.looked(1, 100);
        assert_eq!(fetched.ended(1, None, None), 0);
        assert_eq!(fetched.ended(2, Some(1_000), None), 0);
    }
}
