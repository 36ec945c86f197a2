//! How often things are written: no object again and again while nothing changes.

use std::collections::{BTreeMap, VecDeque};

use crate::api::{Key, Kind};
use crate::queue::Millis;

/// Writes are counted in windows of this length.
const WINDOW: Millis = 60_000;

/// Writes of one NodeImage's spec that a replica sends in a window, at most: a few for each job, also while a list is
/// replaced again and again.
const NODE_IMAGE_WRITES: usize = 240;

/// Writes of one job in a window: its status at most once a second, and its children.
const JOB_WRITES: usize = 100;

/// Reports of one agent in a window.
const REPORTS: usize = 120;

/// Turns of one replica's loop in a second. Each event makes at most one.
const TURNS: usize = 900;

/// Moments of the last window.
#[derive(Default)]
struct Window(VecDeque<Millis>);

impl Window {
    /// Counts one more; how many there are in the window.
    fn count(&mut self, now: Millis, length: Millis) -> usize {
        while self.0.front().is_some_and(|at| *at + length < now) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len()
    }
}

/// What was written when.
#[derive(Default)]
pub(super) struct Rates {
    writes: BTreeMap<Key, Window>,
    reports: BTreeMap<Key, Window>,
    turns: BTreeMap<usize, Window>,
    /// Writes of each object since all was settled.
    pub(super) since_settled: Option<BTreeMap<Key, usize>>,
}

impl Rates {
    /// A replica sends a write; says what is wrong with that.
    pub(super) fn controller_writes(&mut self, key: &Key, now: Millis) -> Option<String> {
        self.count_settled(key);
        let count = self.writes.entry(key.clone()).or_default().count(now, WINDOW);
        let most = match key.kind {
            Kind::NodeImage => NODE_IMAGE_WRITES,
            _ => JOB_WRITES,
        };
        (most < count).then(|| format!("{:?} {} is written {count} times in a minute", key.kind, key.name))
    }

    pub(super) fn agent_writes(&mut self, key: &Key, now: Millis) -> Option<String> {
        let count = self.reports.entry(key.clone()).or_default().count(now, WINDOW);
        (REPORTS < count).then(|| format!("the agent of {} reports {count} times in a minute", key.name))
    }

    pub(super) fn turns(&mut self, replica: usize, now: Millis) -> Option<String> {
        let count = self.turns.entry(replica).or_default().count(now, 1_000);
        (TURNS < count).then(|| format!("the loop of replica {replica} turns {count} times in a second"))
    }

    fn count_settled(&mut self, key: &Key) {
        if let Some(writes) = &mut self.since_settled {
            *writes.entry(key.clone()).or_default() += 1;
        }
    }
}
