//! One connection's work: brings one range, asks again from the byte where it broke off, and tries the next host where one
//! fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use larder_model::Reason;

use super::LineCounter;
use super::bandwidth::Bandwidth;
use super::ranges::Range;
use crate::client::{BlobRange, Failures, RangeBody, pause_after};
use crate::manifest::Descriptor;
use crate::{RegistryError, Repository};

/// How often one range may break off altogether, however far it comes each time.
const MAX_BREAKS: u32 = 100;

/// How often the registry is asked for a new address of a blob within one range.
const MAX_NEW_ADDRESSES: u32 = 3;

/// What a connection tells. The last event of each range is one of the last four.
pub(super) enum Event {
    /// Bytes, in order within the range.
    Bytes { range: Range, offset: u64, bytes: Bytes },
    /// A host serves this range.
    ServedBy(String),
    /// The host sends the whole blob; this connection, which is at the head, brings all of it.
    SendsWhole { range: Range, host: String },
    /// All bytes of the range have come.
    Done { range: Range },
    /// The host sends no ranges, and this one is not at the head.
    NoRanges { range: Range },
    /// The range is not wanted any more.
    Cancelled,
    /// No host can bring it.
    Failed(RegistryError),
}

pub(super) struct Work<'a> {
    pub(super) repository: &'a Repository,
    pub(super) blob: Descriptor,
    pub(super) range: Range,
    pub(super) bandwidth: Arc<Bandwidth>,
    pub(super) counter: LineCounter,
    pub(super) cancelled: Arc<AtomicBool>,
}

struct Worker<'a> {
    work: Work<'a>,
    at: u64,
    end: u64,
    host: usize,
    /// Hosts that could not bring this range, and why.
    tried: BTreeSet<usize>,
    failures: Failures,
    by_whole: bool,
    body: Option<RangeBody>,
    breaks: u32,
    without_progress: u32,
    new_addresses: u32,
    is_over: bool,
}

impl<'a> Work<'a> {
    /// The events of this range, up to the last.
    pub(super) fn events(self) -> BoxStream<'a, Event> {
        let tried = BTreeSet::new();
        let worker = Worker {
            at: self.range.start,
            end: self.range.end,
            host: self.repository.next_host(&self.blob.digest, &tried).unwrap_or_default(),
            work: self,
            tried,
            failures: Failures::default(),
            by_whole: false,
            body: None,
            breaks: 0,
            without_progress: 0,
            new_addresses: 0,
            is_over: false,
        };
        stream::unfold(worker, |mut worker| async {
            let event = worker.next().await?;
            Some((event, worker))
        })
        .boxed()
    }
}

impl Worker<'_> {
    async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let event = loop {
            // Its end would be taken for that of the range that replaces it.
            if self.work.cancelled.load(Ordering::Relaxed) {
                break Event::Cancelled;
            }
            if self.at == self.end {
                break Event::Done { range: self.work.range };
            }
            let step = match &mut self.body {
                None => self.ask().await,
                Some(_) => self.read().await,
            };
            // What comes after a range was cancelled would mix with what replaces it.
            if self.work.cancelled.load(Ordering::Relaxed) {
                break Event::Cancelled;
            }
            match step {
                Ok(Some(event)) => break event,
                Ok(None) => {}
                Err(error) => {
                    if let Some(error) = self.recover(error).await {
                        break Event::Failed(error);
                    }
                }
            }
        };
        self.is_over = matches!(
            event,
            Event::Done { .. } | Event::NoRanges { .. } | Event::Cancelled | Event::Failed(_)
        );
        Some(event)
    }

    async fn ask(&mut self) -> Result<Option<Event>, RegistryError> {
        let range = BlobRange {
            start: self.at,
            end: self.end,
            by_whole: self.by_whole,
        };
        let work = &self.work;
        let mut body = match work.repository.range(self.host, &work.blob, range).await {
            Err(error) if error.refuses_ranges() && !self.by_whole => {
                if !work.range.is_head {
                    return Ok(Some(Event::NoRanges { range: work.range }));
                }
                self.by_whole = true;
                return Ok(None);
            }
            asked => asked?,
        };
        let host = body.host.clone();
        if body.is_range || self.end == work.blob.size && work.range.is_head {
            self.body = Some(body);
            return Ok(Some(Event::ServedBy(host)));
        }
        if !work.range.is_head {
            return Ok(Some(Event::NoRanges { range: work.range }));
        }
        body.extend(work.blob.size - self.end);
        self.end = work.blob.size;
        self.body = Some(body);
        Ok(Some(Event::SendsWhole {
            range: work.range,
            host,
        }))
    }

    async fn read(&mut self) -> Result<Option<Event>, RegistryError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let Some((bytes, moved)) = body.next().await? else {
            return Err(RegistryError::new(Reason::Unreachable, "the range ended early"));
        };
        self.work.counter.add(moved);
        self.work.bandwidth.take(moved).await;
        let offset = self.at;
        self.at += bytes.len() as u64;
        self.without_progress = 0;
        Ok(Some(Event::Bytes {
            range: self.work.range,
            offset,
            bytes,
        }))
    }

    /// Makes ready for another try. An error comes back where there is none.
    async fn recover(&mut self, error: RegistryError) -> Option<RegistryError> {
        self.body = None;
        self.breaks += 1;
        if error.wants_a_new_address() && self.new_addresses < MAX_NEW_ADDRESSES {
            self.new_addresses += 1;
            return None;
        }
        if error.is_passing() && self.breaks < MAX_BREAKS {
            self.without_progress += 1;
            if self.without_progress < self.work.repository.tries_at(self.host) {
                // A connection that broke off after it brought something is worth another at once.
                if 1 < self.without_progress {
                    pause_after(self.without_progress - 1).await;
                }
                return None;
            }
        }
        let (repository, blob) = (self.work.repository, &self.work.blob.digest);
        let is_mirror = repository.gave_up(self.host, blob, &error);
        self.failures.add(is_mirror, error);
        self.tried.insert(self.host);
        let Some(host) = repository.next_host(blob, &self.tried) else {
            return Some(std::mem::take(&mut self.failures).into_error());
        };
        self.host = host;
        self.without_progress = 0;
        self.by_whole = false;
        None
    }
}
