//! How the ledger's records look on disk. A golden file per version keeps old ones readable.

use std::sync::Arc;
use std::time::Duration;

use larder_api::NodeImageSpec;
use larder_api::contract::OrderId;
use larder_planner::node::{EntryState, Key, Stage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::messages::Given;

/// A state that waits for its deadline is written again after this time, so that a machine that loses its power does
/// not start the count over.
const TOUCH: Duration = Duration::from_mins(1);

/// A record of a known version.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Record<T> {
    /// The first.
    V1(T),
}

impl<T: Serialize + DeserializeOwned> Record<T> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Our own types have text keys and no failing serializer; a record that is empty is not read back.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// None: of a later version, or damaged. It is then as if it had not been written.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes)
            .inspect_err(|error| tracing::warn!(%error, "a record of the ledger cannot be read and is passed over"))
            .ok()
    }
}

/// The last orders.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredOrders {
    order: OrderId,
    spec: NodeImageSpec,
}

impl StoredOrders {
    pub(super) fn of(given: &Given) -> Self {
        Self {
            order: given.order.clone(),
            spec: (*given.spec).clone(),
        }
    }

    pub(super) fn given(self) -> Given {
        Given {
            order: self.order,
            spec: Arc::new(self.spec),
            said: None,
        }
    }
}

/// One entry.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredEntryState {
    key: Key,
    boot: String,
    saved: Duration,
    #[serde(rename = "track")]
    state: EntryState,
}

impl StoredEntryState {
    pub(super) fn of(key: &Key, state: &EntryState, boot: &str, now: Duration) -> Self {
        let mut state = state.clone();
        // Bytes of a running pull are not worth a write; after a restart they are counted anew.
        if !state.is_done() {
            state.bytes = None;
        }
        // Numbers of runs mean nothing in another life, and would make every look a change.
        state.stage = match state.stage {
            Stage::Looking { .. } => Stage::Look { until: state.changed },
            Stage::Running { .. } => Stage::Running { run: 0 },
            other => other,
        };
        Self {
            key: key.clone(),
            boot: boot.to_owned(),
            saved: now,
            state,
        }
    }

    /// Whether what is on disk need not be written again.
    pub(super) fn is_as_good_as(&self, newer: &Self) -> bool {
        let fresh = newer.state.is_done() || newer.saved.saturating_sub(self.saved) < TOUCH;
        self.state == newer.state && self.boot == newer.boot && fresh
    }

    pub(super) fn resumed(self, boot: &str, now: Duration) -> (Key, EntryState) {
        let same_boot = !boot.is_empty() && self.boot == boot && self.saved <= now;
        (self.key, self.state.resumed(self.saved, same_boot, now))
    }
}
