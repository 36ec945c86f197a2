//! Blobs: streamed to a writer, counted, checked by digest, taken up again where they broke off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_model::{Algorithm, Digest, Reason};
use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, Response, StatusCode};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::repository::{Door, Read, Repository, pause_after};
use super::{Failures, RegistryError};
use crate::manifest::Descriptor;

/// How often one blob may break off altogether, however far it comes each time.
const MAX_BREAKS: u32 = 100;

/// How many bytes of a blob have arrived; can be read from elsewhere while it is being fetched.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts bytes that have arrived.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Takes in one blob, and knows at the end whether it is the right one.
pub struct BlobWriter<W> {
    inner: W,
    blob: Descriptor,
    hasher: ContentHasher,
    written: Progress,
}

impl<W: AsyncWrite + Unpin> BlobWriter<W> {
    /// Begins at the first byte.
    pub fn new(blob: &Descriptor, inner: W) -> Self {
        let hasher = ContentHasher::new(blob.digest.algorithm());
        Self {
            inner,
            blob: blob.clone(),
            hasher,
            written: Progress::default(),
        }
    }

    /// A handle on how far it is.
    pub fn progress(&self) -> Progress {
        self.written.clone()
    }

    /// The writer, to be closed or looked at.
    pub fn into_inner(self) -> W {
        self.inner
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.written.add(bytes.len() as u64);
    }

    async fn take(&mut self, doing: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.inner
            .write_all(bytes)
            .await
            .map_err(|error| RegistryError::from_write(doing, error))?;
        self.count(bytes);
        Ok(())
    }

    fn missing(&self) -> u64 {
        self.blob.size.saturating_sub(self.written.bytes())
    }

    async fn finish(&mut self) -> Result<(), RegistryError> {
        let doing = format!("writing blob {}", self.blob.digest);
        self.inner
            .flush()
            .await
            .map_err(|error| RegistryError::from_write(&doing, error))?;
        let found = self.hasher.digest();
        if self.written.bytes() == self.blob.size && found.as_ref() == Some(&self.blob.digest) {
            return Ok(());
        }
        let message = format!(
            "the content of blob {} does not have its digest and was thrown away; push the image again, or clear the \
             cache or proxy between node and registry",
            self.blob.digest
        );
        Err(RegistryError::new(Reason::InvalidImage, message))
    }
}

impl Repository {
    /// Fetches what the writer still lacks. After an error other than a wrong digest the writer can be given again.
    pub async fn blob<W: AsyncWrite + Unpin>(&self, into: &mut BlobWriter<W>) -> Result<(), RegistryError> {
        let mut failures = Failures::default();
        let digest = into.blob.digest.clone();
        for door in self.doors(Some(&digest), |endpoint| endpoint.serves) {
            match self.blob_behind(door, into).await {
                Ok(()) => return into.finish().await,
                // Nothing that another host serves would help.
                Err(error) if error.reason == Reason::NoSpace => return Err(error),
                Err(error) => {
                    self.note_failure(door, Some(&digest), &error);
                    failures.add(door.endpoint.is_mirror, error);
                }
            }
        }
        Err(failures.into_error())
    }

    async fn blob_behind<W: AsyncWrite + Unpin>(
        &self,
        door: &Door,
        into: &mut BlobWriter<W>,
    ) -> Result<(), RegistryError> {
        let in_a_row = if door.endpoint.is_mirror {
            1
        } else {
            self.transport.settings.tries.max(1)
        };
        let mut without_progress = 0;
        for _ in 0..MAX_BREAKS {
            if into.missing() == 0 {
                return Ok(());
            }
            let before = into.missing();
            let Err(error) = self.blob_once(door, into).await else {
                return Ok(());
            };
            without_progress = if into.missing() < before {
                0
            } else {
                without_progress + 1
            };
            if !error.is_passing() || in_a_row <= without_progress {
                return Err(error);
            }
            tracing::debug!(image = %self.image, blob = %into.blob.digest, missing = into.missing(), "blob broke off");
            if 0 < without_progress {
                pause_after(without_progress).await;
            }
        }
        let message = format!("blob {} broke off {MAX_BREAKS} times", into.blob.digest);
        Err(RegistryError::new(Reason::Unreachable, message))
    }

    async fn blob_once<W: AsyncWrite + Unpin>(
        &self,
        door: &Door,
        into: &mut BlobWriter<W>,
    ) -> Result<(), RegistryError> {
        let doing = format!("fetching blob {} of {}", into.blob.digest, self.image);
        let path = format!("blobs/{}", into.blob.digest);
        let from_byte = into.written.bytes();
        let read = Read {
            doing: &doing,
            method: Method::GET,
            path: &path,
            accept: None,
            from_byte,
            to_byte: None,
        };
        let mut response = self.send_with_access(door, &read).await?;
        let mut skip = bytes_to_skip(&doing, &response, from_byte)?;
        let limit = self.transport.settings.stall_after;
        while 0 < into.missing() {
            let waited = tokio::time::timeout(limit, response.chunk()).await;
            let chunk = waited.map_err(|_| {
                let message = format!("{doing} stood still for {} s", limit.as_secs_f64());
                RegistryError::new(Reason::Stalled, message)
            })?;
            let chunk = chunk.map_err(|error| RegistryError::from_send(&doing, error))?;
            let Some(chunk) = chunk else {
                return Err(RegistryError::new(Reason::Unreachable, format!("{doing} broke off")));
            };
            let known = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
            skip -= known as u64;
            let new = &chunk[known..];
            if into.missing() < new.len() as u64 {
                return Err(RegistryError::new(
                    Reason::InvalidImage,
                    format!("{doing} brought more bytes than it has"),
                ));
            }
            into.take(&doing, new).await?;
        }
        Ok(())
    }
}

/// A registry that does not know ranges begins anew; what we have already is then passed over.
fn bytes_to_skip(doing: &str, response: &Response, from_byte: u64) -> Result<u64, RegistryError> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return Ok(from_byte);
    }
    let range = response
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok())
        .unwrap_or_default();
    let start = range
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('-'))
        .map(|(start, _)| start);
    match start.and_then(|start| start.trim().parse::<u64>().ok()) {
        Some(start) if start <= from_byte => Ok(from_byte - start),
        _ => Err(RegistryError::new(
            Reason::InvalidImage,
            format!("{doing} was answered with another range"),
        )),
    }
}

/// The digest of bytes that come one after the other.
#[derive(Clone)]
pub struct ContentHasher(Hasher);

#[derive(Clone)]
enum Hasher {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl ContentHasher {
    /// Begins before the first byte.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha384 => Hasher::Sha384(Sha384::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        })
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha384(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest so far. `None` cannot happen: the text is made to fit. It is treated as a digest that differs.
    pub fn digest(&self) -> Option<Digest> {
        let text = match &self.0 {
            Hasher::Sha256(hasher) => format!("sha256:{}", hex(&hasher.clone().finalize())),
            Hasher::Sha384(hasher) => format!("sha384:{}", hex(&hasher.clone().finalize())),
            Hasher::Sha512(hasher) => format!("sha512:{}", hex(&hasher.clone().finalize())),
        };
        Digest::parse(&text).ok()
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").ok();
            text
        })
}

/// The digest of some bytes; SHA-256 unless asked otherwise.
pub(crate) fn digest_of(algorithm: Option<Algorithm>, bytes: &[u8]) -> Option<Digest> {
    let mut hasher = ContentHasher::new(algorithm.unwrap_or(Algorithm::Sha256));
    hasher.update(bytes);
    hasher.digest()
}
