//! Runs one fetch: gives ranges to connections, puts what they bring in order, and appends it to the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, SelectAll, StreamExt as _};
use larder_model::Reason;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ranges::{Next, Range, Ranges, shared_range};
use super::store::{BlobSink, BlobStore, CommitError, FetchError};
use super::worker::{Event, Work};
use super::{Connections, Fetch, Fetched, Fetcher, MEMORY_UNIT};
use crate::RegistryError;

/// How often the rate is measured.
const MEASURE: Duration = Duration::from_millis(250);

/// A measurement needs so many bytes of each connection, or it lasts longer.
const MEASURE_BYTES: u64 = 64 << 10;

/// After so many bytes it is decided whether the line is fast.
const FIRST_BYTES: u64 = 8 << 20;

type Committed<E> = (usize, Result<(), CommitError<E>>);
type Opened<S> = (usize, Result<Option<<S as BlobStore>::Sink>, <S as BlobStore>::Error>);

/// A blob that is being written.
struct Writing<K> {
    sink: K,
    was_continued: bool,
    /// Bytes that arrived before those in front of them, by their offset.
    ahead: BTreeMap<u64, Bytes>,
    /// Memory for ranges ahead, with their ends.
    memory: Vec<(u64, OwnedSemaphorePermit)>,
    /// The ranges under way, by their number.
    ranges: BTreeMap<u64, (Range, Arc<AtomicBool>)>,
}

pub(super) struct Engine<'a, S: BlobStore> {
    fetcher: &'a Fetcher,
    fetch: Fetch<'a>,
    store: &'a S,
    ranges: Ranges,
    /// Memory for one range ahead.
    memory_units: u32,
    writing: BTreeMap<usize, Writing<S::Sink>>,
    connections: Connections,
    workers: SelectAll<BoxStream<'a, Event>>,
    running: usize,
    opening: FuturesUnordered<BoxFuture<'a, Opened<S>>>,
    commits: FuturesUnordered<BoxFuture<'a, Committed<S::Error>>>,
    /// Blobs that were begun again, because an earlier writer had left wrong bytes.
    begun_again: BTreeSet<usize>,
    hosts: BTreeSet<String>,
    left: usize,
    first_bytes_at: Option<Instant>,
    measured: (Instant, u64),
}

impl<'a, S: BlobStore> Engine<'a, S>
where
    S::Sink: 'a,
{
    pub(super) fn new(fetcher: &'a Fetcher, fetch: Fetch<'a>, store: &'a S) -> Self {
        let total = fetch
            .blobs
            .iter()
            .fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
        let shared_range = shared_range(total, fetcher.connections);
        Self {
            ranges: Ranges::new(fetch.blobs.iter().map(|blob| blob.size), shared_range),
            memory_units: u32::try_from(shared_range.div_ceil(MEMORY_UNIT)).unwrap_or(1),
            left: fetch.blobs.len(),
            measured: (Instant::now(), fetch.counter.bytes()),
            connections: fetcher.first_connections(),
            fetcher,
            fetch,
            store,
            writing: BTreeMap::new(),
            workers: SelectAll::new(),
            running: 0,
            opening: FuturesUnordered::new(),
            commits: FuturesUnordered::new(),
            begun_again: BTreeSet::new(),
            hosts: BTreeSet::new(),
            first_bytes_at: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<Fetched, FetchError<S::Error>> {
        let ended = self.drive().await;
        if matches!(&ended, Err(FetchError::Registry(error)) if error.reason == Reason::InvalidImage) {
            // A host that sent wrong bytes once may have sent others that were not noticed yet.
            for writing in std::mem::take(&mut self.writing).into_values() {
                writing.sink.discard().await;
            }
        }
        Ok(Fetched {
            is_complete: ended?,
            hosts: self.hosts,
        })
    }

    /// Runs to the end. False: the line is fast, and the rest is left to others.
    async fn drive(&mut self) -> Result<bool, FetchError<S::Error>> {
        let mut measure = interval(MEASURE);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while 0 < self.left {
            self.hand_out();
            if self.running == 0 && self.opening.is_empty() && self.commits.is_empty() {
                let message = format!(
                    "{} blobs are left, and nothing fetches them; report it as a bug",
                    self.left
                );
                return Err(FetchError::Registry(RegistryError::new(Reason::Internal, message)));
            }
            tokio::select! {
                Some(event) = self.workers.next() => self.take_in(event).await?,
                Some((place, opened)) = self.opening.next() => self.opened(place, opened.map_err(FetchError::Store)?),
                Some((place, committed)) = self.commits.next() => self.committed(place, committed)?,
                _ = measure.tick() => self.measure(),
            }
            if self.fetch.stops_on_fast_lines && self.line_is_fast() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives work to every connection that is free.
    fn hand_out(&mut self) {
        while self.running < self.connections.count() {
            let memory = Arc::clone(&self.fetcher.ahead)
                .try_acquire_many_owned(self.memory_units)
                .ok();
            match self.ranges.next(self.connections.count(), memory.is_some()) {
                Some(Next::Open(place)) => self.open(place),
                Some(Next::Fetch(range)) => self.start(range, memory),
                None => return,
            }
        }
    }

    fn open(&mut self, place: usize) {
        let (store, blob) = (self.store, self.fetch.blobs[place].clone());
        self.opening
            .push(Box::pin(async move { (place, store.open(&blob).await) }));
    }

    fn opened(&mut self, place: usize, sink: Option<S::Sink>) {
        let Some(sink) = sink else {
            self.ranges.is_there(place);
            self.left -= 1;
            return;
        };
        let written = sink.begins_at();
        self.ranges.opened(place, written);
        let writing = Writing {
            sink,
            was_continued: 0 < written,
            ahead: BTreeMap::new(),
            memory: Vec::new(),
            ranges: BTreeMap::new(),
        };
        self.writing.insert(place, writing);
        if self.fetch.blobs[place].size <= written {
            self.commit(place);
        }
    }

    fn start(&mut self, range: Range, memory: Option<OwnedSemaphorePermit>) {
        let Some(writing) = self.writing.get_mut(&range.blob) else {
            return;
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        writing.ranges.insert(range.id, (range, Arc::clone(&cancelled)));
        if !range.is_head {
            writing.memory.extend(memory.map(|memory| (range.end, memory)));
        }
        let work = Work {
            repository: self.fetch.repository,
            blob: self.fetch.blobs[range.blob].clone(),
            range,
            bandwidth: Arc::clone(&self.fetcher.bandwidth),
            counter: self.fetch.counter.clone(),
            cancelled,
        };
        self.workers.push(work.events());
        self.running += 1;
    }

    async fn take_in(&mut self, event: Event) -> Result<(), FetchError<S::Error>> {
        match event {
            Event::Bytes { range, offset, bytes } => return self.bytes(range, offset, bytes).await,
            Event::ServedBy(host) => {
                self.hosts.insert(host);
            }
            Event::SendsWhole { range, host } => {
                self.hosts.insert(host);
                self.keep_only(range, true);
            }
            Event::Done { range } => {
                self.running -= 1;
                if let Some(writing) = self.writing.get_mut(&range.blob) {
                    writing.ranges.remove(&range.id);
                }
            }
            Event::NoRanges { range } => {
                self.running -= 1;
                let head = self.writing.get(&range.blob);
                let head = head.and_then(|writing| writing.ranges.values().find(|(other, _)| other.is_head));
                match head.map(|(head, _)| *head) {
                    Some(head) => self.keep_only(head, false),
                    None => self.drop_ranges(range.blob),
                }
            }
            Event::Cancelled => self.running -= 1,
            Event::Failed(error) => return Err(FetchError::Registry(error)),
        }
        Ok(())
    }

    /// One connection, at the head, brings its range or all of the blob; all others of this blob stop.
    fn keep_only(&mut self, head: Range, brings_all: bool) {
        let end = if brings_all { u64::MAX } else { head.end };
        self.ranges.only_by_whole(head.blob, end);
        if let Some(writing) = self.writing.get_mut(&head.blob) {
            writing.cancel_all_but(Some(head.id));
        }
    }

    fn drop_ranges(&mut self, blob: usize) {
        self.ranges.only_by_whole(blob, 0);
        if let Some(writing) = self.writing.get_mut(&blob) {
            writing.cancel_all_but(None);
        }
    }

    async fn bytes(&mut self, range: Range, offset: u64, bytes: Bytes) -> Result<(), FetchError<S::Error>> {
        self.first_bytes_at.get_or_insert_with(Instant::now);
        let Some(writing) = self.writing.get_mut(&range.blob) else {
            return Ok(());
        };
        if !writing.ranges.contains_key(&range.id) {
            return Ok(());
        }
        writing.ahead.insert(offset, bytes);
        // Whatever is next for the store, and what follows on it.
        while let Some(next) = writing.ahead.remove(&self.ranges.written(range.blob)) {
            let length = next.len() as u64;
            writing.sink.append(next).await.map_err(FetchError::Store)?;
            if self.ranges.wrote(range.blob, length) {
                self.commit(range.blob);
                return Ok(());
            }
        }
        let written = self.ranges.written(range.blob);
        writing.memory.retain(|(end, _)| written < *end);
        Ok(())
    }

    fn commit(&mut self, place: usize) {
        let Some(mut writing) = self.writing.remove(&place) else {
            return;
        };
        // The blob may be begun again before its last connections have told that they are done.
        writing.cancel_all_but(None);
        if writing.was_continued {
            // Should its digest be wrong, it is begun again once.
            self.begun_again.insert(place);
        }
        let sink = writing.sink;
        self.commits.push(Box::pin(async move { (place, sink.commit().await) }));
    }

    fn committed(
        &mut self,
        place: usize,
        committed: Result<(), CommitError<S::Error>>,
    ) -> Result<(), FetchError<S::Error>> {
        match committed {
            Ok(()) => self.left -= 1,
            Err(CommitError::Store(error)) => return Err(FetchError::Store(error)),
            Err(CommitError::WrongContent) if self.begun_again.remove(&place) => self.ranges.reopen(place),
            Err(CommitError::WrongContent) => {
                let message = format!(
                    "the content of blob {} does not have its digest and was thrown away; push the image again, or clear \
                     the cache or proxy between node and registry",
                    self.fetch.blobs[place].digest
                );
                return Err(FetchError::Registry(RegistryError::new(Reason::InvalidImage, message)));
            }
        }
        Ok(())
    }

    /// Measures the rate, where all connections had work.
    fn measure(&mut self) {
        let (since, before) = self.measured;
        let (now, bytes) = (Instant::now(), self.fetch.counter.bytes());
        let wanted = MEASURE_BYTES * self.connections.count() as u64;
        if self.running < self.connections.count() || self.first_bytes_at.is_none() {
            self.measured = (now, bytes);
        } else if before + wanted <= bytes && MEASURE / 2 < now - since {
            self.connections.measured(rate(bytes - before, now - since));
            self.measured = (now, bytes);
        }
    }

    fn line_is_fast(&mut self) -> bool {
        let bytes = self.fetch.counter.bytes();
        if bytes < FIRST_BYTES {
            return false;
        }
        // Asked once: what comes later is measured with more connections.
        self.fetch.stops_on_fast_lines = false;
        self.first_bytes_at
            .is_some_and(|at| self.fetcher.fast_line <= rate(bytes, at.elapsed()))
    }
}

impl<K> Writing<K> {
    /// Stops the ranges under way except for one, and forgets what they brought.
    fn cancel_all_but(&mut self, id: Option<u64>) {
        self.ranges.retain(|range, (_, cancelled)| {
            let stays = Some(*range) == id;
            cancelled.store(!stays, Ordering::Relaxed);
            stays
        });
        self.ahead.clear();
        self.memory.clear();
    }
}

fn rate(bytes: u64, time: Duration) -> u64 {
    let micros = time.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX)
}
