//! Blobs at the speed of the line: several at once, several ranges of one at once, from where they broke off.
//!
//! A [`Fetcher`] holds what all fetches of a process share: the limit on bandwidth, and the memory for ranges that arrive
//! before the ones in front of them. Each [`Fetcher::fetch`] opens blobs in a [`BlobStore`] and appends to them in order;
//! the store checks the digest. The number of connections starts as container runtimes do and grows while that brings more
//! bytes a second ([`Connections`]).
//!
//! Nothing here knows which blobs are needed, or what a store is.

mod bandwidth;
mod connections;
mod engine;
mod ranges;
mod store;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use self::bandwidth::Bandwidth;
pub use self::connections::Connections;
pub use self::store::{BlobSink, BlobStore, CommitError, FetchError};
use crate::Repository;
use crate::manifest::Descriptor;

/// Memory for ranges that have to wait for the ones in front of them, over all fetches.
const AHEAD_BYTES: u64 = 20 << 20;

/// The unit in which that memory is handed out.
const MEMORY_UNIT: u64 = 64 << 10;

/// A line is fast when the first connections bring so many bytes a second together: unpacking is not faster.
const FAST_LINE: u64 = 160 << 20;

/// What may be set.
#[derive(Debug, Clone, Copy)]
pub struct FetchSettings {
    /// Most connections of one fetch.
    pub connections: usize,
    /// Most bytes a second of all fetches together.
    pub max_bandwidth: Option<NonZeroU64>,
    /// Bytes a second from which on a line is fast; see [`Fetch::stops_on_fast_lines`].
    pub fast_line: u64,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            connections: 8,
            max_bandwidth: None,
            fast_line: FAST_LINE,
        }
    }
}

/// Fetches blobs. Clones share their limits.
#[derive(Clone)]
pub struct Fetcher {
    connections: usize,
    bandwidth: Arc<Bandwidth>,
    ahead: Arc<Semaphore>,
    fast_line: u64,
    /// Tests of what happens in between do not wait until the number of connections has grown.
    #[cfg(test)]
    starts_with_all: bool,
}

/// One fetch.
pub struct Fetch<'a> {
    /// Whose blobs.
    pub repository: &'a Repository,
    /// The blobs, each once, the most urgent first.
    pub blobs: Vec<Descriptor>,
    /// Counts while it runs.
    pub counter: LineCounter,
    /// Ends early where single connections are so fast that more of them would not help.
    pub stops_on_fast_lines: bool,
}

/// Bytes that crossed the line, those that came twice included; can be read while a fetch runs.
#[derive(Debug, Clone, Default)]
pub struct LineCounter(Arc<AtomicU64>);

impl LineCounter {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts bytes that came otherwise than by a fetch.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How a fetch ended well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// All blobs are in the store. Otherwise the line is fast, and what is missing is left to others.
    pub is_complete: bool,
    /// The hosts that sent something, mirrors among them.
    pub hosts: BTreeSet<String>,
}

impl Fetcher {
    /// A fetcher with these limits.
    pub fn new(settings: FetchSettings) -> Self {
        let ahead = usize::try_from(AHEAD_BYTES / MEMORY_UNIT).unwrap_or(1);
        Self {
            connections: settings.connections.max(1),
            bandwidth: Arc::new(Bandwidth::new(settings.max_bandwidth)),
            ahead: Arc::new(Semaphore::new(ahead)),
            fast_line: settings.fast_line,
            #[cfg(test)]
            starts_with_all: false,
        }
    }

    fn first_connections(&self) -> Connections {
        #[cfg(test)]
        if self.starts_with_all {
            return Connections::all(self.connections);
        }
        Connections::new(self.connections)
    }

    /// Brings the blobs into the store. Dropping the future ends all its connections; what the store has stays there, to be
    /// continued.
    pub async fn fetch<S: BlobStore>(&self, fetch: Fetch<'_>, store: &S) -> Result<Fetched, FetchError<S::Error>> {
        engine::Engine::new(self, fetch, store).run().await
    }
}
