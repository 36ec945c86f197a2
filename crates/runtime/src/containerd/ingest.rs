//! containerd's content store as a place for blobs.
//!
//! A blob grows in an ingest, whose name is the one that containerd's own fetcher gives it: each continues what the other
//! left, and while one writes, the other waits. containerd checks size and digest when an ingest is committed.

use std::{
    collections::HashMap,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use larder_registry::{
    fetch::{BlobSink, BlobStore, CommitError},
    manifest::Descriptor,
};
use larder_runtime_proto::containerd::services::content::v1::{
    AbortRequest, WriteAction, WriteContentRequest, WriteContentResponse,
};
use tokio::{sync::mpsc, time::Instant};
use tonic::{Code, Status, Streaming};
use tracing::warn;

use super::{
    leases::Lease,
    services::{Services, absent_is_none, scoped},
};
use crate::RuntimeError;

/// Bytes of one message. Small, because each blob on its way holds a few of them.
const MESSAGE: usize = 64 << 10;

/// Messages that are sent before the answer to the first of them is waited for.
const UNANSWERED: usize = 4;

/// First and longest pause before it is tried again to open a blob that has another writer.
const OTHER_PAUSE: Duration = Duration::from_millis(100);
const OTHER_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long another writer may bring nothing before the blob is left to it. CRI waits for it too.
const OTHER_STALLED: Duration = Duration::from_mins(2);

/// How long containerd may take to make a blob durable.
const COMMIT_LIMIT: Duration = Duration::from_mins(5);

/// The content store, under a lease.
pub(super) struct ContentStore<'a> {
    pub(super) services: &'a Services,
    pub(super) lease: &'a Lease,
    /// What each blob gets, as containerd itself labels it.
    pub(super) labels: HashMap<String, String>,
}

/// A blob on its way.
pub(super) struct Ingest {
    services: Services,
    reference: String,
    blob: Descriptor,
    labels: HashMap<String, String>,
    requests: mpsc::Sender<WriteContentRequest>,
    answers: Streaming<WriteContentResponse>,
    unanswered: usize,
    begins_at: u64,
    sent: u64,
    buffer: BytesMut,
}

impl ContentStore<'_> {
    /// Writes a document whose bytes are there.
    pub(super) async fn put(&self, blob: &Descriptor, bytes: &Bytes) -> Result<(), RuntimeError> {
        let Some(mut ingest) = self.open(blob).await? else {
            return Ok(());
        };
        let known = usize::try_from(ingest.begins_at())
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        ingest.append(bytes.slice(known..)).await?;
        match ingest.commit().await {
            Ok(()) => Ok(()),
            Err(CommitError::Store(error)) => Err(error),
            Err(CommitError::WrongContent) => Err(RuntimeError::NotShown {
                doing: format!("write {}", blob.digest),
            }),
        }
    }

    async fn try_open(&self, doing: &str, blob: &Descriptor) -> Result<Opened, RuntimeError> {
        let reference = reference(blob);
        let (requests, receiver) = mpsc::channel(UNANSWERED);
        let first = WriteContentRequest {
            action: WriteAction::Stat.into(),
            r#ref: reference.clone(),
            total: blob.size.cast_signed(),
            expected: blob.digest.to_string(),
            ..WriteContentRequest::default()
        };
        requests.try_send(first).ok();
        let request = self.lease.cover(scoped(Messages(receiver)))?;
        let mut client = self.services.content();
        let exchange = async {
            let mut answers = client.write(request).await?.into_inner();
            let first = answers.message().await?;
            Ok::<_, Status>((answers, first))
        };
        let opened = self
            .services
            .link
            .bounded(doing, async {
                match exchange.await {
                    Ok(opened) => Ok(Ok(opened)),
                    Err(status) => match status.code() {
                        Code::AlreadyExists => Ok(Err(Opened::Exists)),
                        // containerd says so of an ingest that has a writer; a broken connection has a cause on our side.
                        Code::Unavailable if std::error::Error::source(&status).is_none() => Ok(Err(Opened::Busy)),
                        _ => Err(status),
                    },
                }
            })
            .await?;
        let (answers, first) = match opened {
            Ok(opened) => opened,
            Err(other) => return Ok(other),
        };
        let offset = first.map_or(0, |first| first.offset.cast_unsigned());
        // More than there can be is begun again: a write at the beginning cuts the ingest off.
        let begins_at = if offset <= blob.size { offset } else { 0 };
        Ok(Opened::Ingest(Box::new(Ingest {
            services: self.services.clone(),
            reference,
            blob: blob.clone(),
            labels: self.labels.clone(),
            requests,
            answers,
            unanswered: 0,
            begins_at,
            sent: begins_at,
            buffer: BytesMut::new(),
        })))
    }
}

/// A queue as a stream.
struct Messages(mpsc::Receiver<WriteContentRequest>);

impl Stream for Messages {
    type Item = WriteContentRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

enum Opened {
    Ingest(Box<Ingest>),
    Exists,
    Busy,
}

impl BlobStore for ContentStore<'_> {
    type Sink = Ingest;
    type Error = RuntimeError;

    async fn open(&self, blob: &Descriptor) -> Result<Option<Ingest>, RuntimeError> {
        let doing = format!("write blob {}", blob.digest);
        let mut other = OtherWriter::new();
        loop {
            match self.try_open(&doing, blob).await? {
                Opened::Ingest(ingest) => return Ok(Some(*ingest)),
                Opened::Exists => return Ok(None),
                Opened::Busy => {}
            }
            let at = self.written_by_other(&reference(blob)).await?;
            let Some(pause) = other.pause(at, Instant::now()) else {
                let stalled = Status::unavailable("another writer has the blob and brings nothing");
                return Err(self.services.link.refused(&doing, &stalled));
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl ContentStore<'_> {
    /// How far an ingest is that another writer has.
    async fn written_by_other(&self, reference: &str) -> Result<Option<i64>, RuntimeError> {
        let ingests = self.services.ingests().await?;
        let found = ingests.iter().find(|ingest| ingest.r#ref == reference);
        Ok(found.map(|ingest| ingest.offset))
    }
}

/// Waits for another writer as long as it brings something.
struct OtherWriter {
    pause: Duration,
    seen: Option<(Option<i64>, Instant)>,
}

impl OtherWriter {
    fn new() -> Self {
        Self {
            pause: OTHER_PAUSE,
            seen: None,
        }
    }

    /// How long to wait, given how far the writer is. `None`: it brings nothing.
    fn pause(&mut self, at: Option<i64>, now: Instant) -> Option<Duration> {
        let since = match self.seen {
            Some((before, since)) if before == at => since,
            _ => now,
        };
        self.seen = Some((at, since));
        if OTHER_STALLED <= now - since {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(OTHER_PAUSE_MAX);
        Some(pause)
    }
}

impl Ingest {
    fn doing(&self) -> String {
        format!("write blob {}", self.blob.digest)
    }

    async fn send(&mut self, action: WriteAction, data: Bytes) -> Result<(), RuntimeError> {
        if UNANSWERED <= self.unanswered {
            self.answer().await?;
        }
        let length = data.len() as u64;
        let is_commit = action == WriteAction::Commit;
        let message = WriteContentRequest {
            action: action.into(),
            offset: self.sent.cast_signed(),
            total: self.blob.size.cast_signed(),
            expected: if is_commit {
                self.blob.digest.to_string()
            } else {
                String::new()
            },
            labels: if is_commit { self.labels.clone() } else { HashMap::new() },
            data,
            ..WriteContentRequest::default()
        };
        if self.requests.send(message).await.is_err() {
            // The exchange is over; its last answer says why.
            self.answer().await?;
            return Err(self.ended_early());
        }
        self.unanswered += 1;
        self.sent += length;
        Ok(())
    }

    async fn answer(&mut self) -> Result<WriteContentResponse, RuntimeError> {
        let doing = self.doing();
        let link = self.services.link.clone();
        let answer = link.bounded(&doing, self.answers.message()).await?;
        self.unanswered = self.unanswered.saturating_sub(1);
        answer.ok_or_else(|| self.ended_early())
    }

    fn ended_early(&self) -> RuntimeError {
        let ended = Status::aborted("the content store ended the exchange");
        self.services.link.refused(&self.doing(), &ended)
    }

    /// Waits for the answer to a commit. True: the blob is in the store.
    async fn committed(&mut self) -> Result<bool, Status> {
        loop {
            match self.answers.message().await {
                Ok(Some(answer)) if answer.action() == WriteAction::Commit => return Ok(true),
                Ok(Some(_)) => {}
                Ok(None) => return Err(Status::aborted("the content store ended the exchange")),
                Err(status) if status.code() == Code::AlreadyExists => return Ok(true),
                Err(status) if status.code() == Code::FailedPrecondition => return Ok(false),
                Err(status) => return Err(status),
            }
        }
    }

    async fn commit_or_abort(mut self) -> Result<bool, RuntimeError> {
        let rest = self.buffer.split().freeze();
        self.send(WriteAction::Commit, rest).await?;
        let doing = self.doing();
        let link = self.services.link.clone();
        let is_there = match tokio::time::timeout(COMMIT_LIMIT, self.committed()).await {
            Ok(answer) => answer.map_err(|status| link.refused(&doing, &status))?,
            Err(_) => return Err(self.ended_early()),
        };
        if !is_there {
            self.abort().await?;
        }
        Ok(is_there)
    }

    async fn abort(self) -> Result<(), RuntimeError> {
        let request = AbortRequest {
            r#ref: self.reference.clone(),
        };
        let (mut client, doing) = (self.services.content(), format!("throw away {}", self.reference));
        let link = self.services.link.clone();
        // Ends the exchange, which holds the ingest.
        drop(self);
        let exchange = async { absent_is_none(client.abort(scoped(request)).await).map(drop) };
        link.bounded(&doing, exchange).await
    }
}

impl BlobSink for Ingest {
    type Error = RuntimeError;

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    async fn append(&mut self, bytes: Bytes) -> Result<(), RuntimeError> {
        self.buffer.extend_from_slice(&bytes);
        while MESSAGE <= self.buffer.len() {
            let message = self.buffer.split_to(MESSAGE).freeze();
            self.send(WriteAction::Write, message).await?;
        }
        Ok(())
    }

    async fn commit(self) -> Result<(), CommitError<RuntimeError>> {
        match self.commit_or_abort().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(CommitError::WrongContent),
            Err(error) => Err(CommitError::Store(error)),
        }
    }

    async fn discard(self) {
        if let Err(error) = self.abort().await {
            warn!(error = error.text(), "a half-finished blob stays in the content store");
        }
    }
}

/// The name of a blob's ingest, as containerd's own fetcher calls it.
fn reference(blob: &Descriptor) -> String {
    let kind = match &*blob.media_type {
        kind if kind.ends_with("manifest.v1+json") || kind.ends_with("manifest.v2+json") => "manifest",
        kind if kind.ends_with("index.v1+json") || kind.ends_with("manifest.list.v2+json") => "index",
        kind if kind.contains(".config.v1+json") || kind.contains("container.image.v1+json") => "config",
        _ => "layer",
    };
    format!("{kind}-{}", blob.digest)
}

#[cfg(test)]
mod tests {
    use larder_model::Digest;
    use larder_registry::manifest::{DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
    use rstest::rstest;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn another_writer_is_waited_for_as_long_as_it_brings_something() {
        let mut other = OtherWriter::new();
        for at in 0..1_000 {
            let pause = other.pause(Some(at), Instant::now()).unwrap();
            assert!((OTHER_PAUSE..=OTHER_PAUSE_MAX).contains(&pause));
            tokio::time::advance(OTHER_STALLED / 2).await;
        }
        let mut waited = Duration::ZERO;
        while let Some(pause) = other.pause(None, Instant::now()) {
            waited += pause;
            tokio::time::advance(pause).await;
        }
        assert!(waited <= OTHER_STALLED + OTHER_PAUSE_MAX, "{waited:?}");
    }

    #[rstest]
    #[case(OCI_MANIFEST, "manifest")]
    #[case(DOCKER_MANIFEST, "manifest")]
    #[case(OCI_INDEX, "index")]
    #[case(DOCKER_LIST, "index")]
    #[case("application/vnd.oci.image.config.v1+json", "config")]
    #[case("application/vnd.docker.container.image.v1+json", "config")]
    #[case("application/vnd.oci.image.layer.v1.tar+gzip", "layer")]
    #[case("application/vnd.docker.image.rootfs.diff.tar.gzip", "layer")]
    fn ingests_are_called_as_containerd_calls_them(#[case] media_type: &str, #[case] kind: &str) {
        let digest = Digest::sha256(&"a".repeat(64)).unwrap();
        let blob = Descriptor {
            media_type: media_type.to_owned(),
            digest: digest.clone(),
            size: 1,
            platform: None,
        };
        assert_eq!(reference(&blob), format!("{kind}-{digest}"));
    }
}
