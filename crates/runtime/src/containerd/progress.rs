//! Bytes of a running CRI pull, read from the content store while containerd fills it.
//!
//! CRI says nothing until a pull ends. But the manifest is fetched first and gets labels that name its repository, so
//! the pull's own manifest can be found; it gives the total. What has arrived is the blobs that are complete, and of the
//! others how far their download is.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use larder_model::{ByteSize, Digest, ImageRef};
use larder_runtime_proto::containerd::services::content::v1::Info;

use super::{
    filter,
    flights::{Candidate, Flight, FlightGuard, Flights, Found, Moment},
    manifest::{Blobs, Document},
    services::Services,
};
use crate::{Progress, PullRequest, RuntimeError};

/// Most blobs that one reading asks containerd for. Blobs are fetched in order, and those that were seen complete are not
/// asked for again, so the next reading goes on behind them.
const LOOK_UPS: usize = 64;

/// Digests of blobs on their way, each with the bytes that have arrived.
type Downloads = HashMap<String, u64>;

pub(super) struct Gauge<'a> {
    services: &'a Services,
    flights: &'a Arc<Flights>,
}

impl<'a> Gauge<'a> {
    pub(super) fn new(services: &'a Services, flights: &'a Arc<Flights>) -> Self {
        Self { services, flights }
    }

    /// Enters a pull that is about to start. Asks nothing of the runtime: the pull must not wait for its gauge.
    pub(super) fn begin(&self, request: &PullRequest) -> FlightGuard {
        let digest = request.image.reference().digest();
        self.flights
            .begin(request.image.clone(), digest.map(ToString::to_string), now())
    }

    /// How far the pull of this image is.
    pub(super) async fn read(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        let Some(flight) = self.flights.of(image) else {
            return Ok(None);
        };
        let downloads = self.downloads().await?;
        let found = match &flight.found {
            Some(found) => Arc::clone(found),
            None => match self.find(&flight, &downloads).await? {
                Some(found) => {
                    let found = Arc::new(found);
                    self.flights.found(flight.number, &found);
                    found
                }
                None => return Ok(None),
            },
        };
        if !found.blobs.are_countable() {
            return Ok(None);
        }
        let done = self.done(&flight, &found.blobs, &downloads).await?;
        Ok(Some(Progress {
            done: ByteSize(done),
            total: ByteSize(found.blobs.total()),
        }))
    }

    /// What an image that has just been pulled consists of, even if the pull was over before its first reading.
    pub(super) async fn contents(&self, flight: &FlightGuard, target: Option<&Digest>) -> Option<Arc<Found>> {
        if let Some(found) = flight.found() {
            return Some(found);
        }
        // The image is there; that its size cannot be told is no failure of the pull.
        self.resolve(&target?.to_string()).await.ok().flatten().map(Arc::new)
    }

    /// Bytes of those blobs that came into the store since the pull began. `None` if one of them has left it again, or if
    /// there are too many.
    pub(super) async fn fetched(&self, flight: &FlightGuard, found: &Found) -> Option<ByteSize> {
        let since = flight.since()?;
        if !found.blobs.are_countable() {
            return None;
        }
        let mut fetched: u64 = 0;
        for (digest, size) in &found.blobs.sizes {
            let blob = self.services.blob(digest).await.ok().flatten()?;
            if blob.created_at.is_some_and(|at| since <= (at.seconds, at.nanos)) {
                fetched = fetched.saturating_add(*size);
            }
        }
        Some(ByteSize(fetched))
    }

    async fn find(&self, flight: &Flight, downloads: &Downloads) -> Result<Option<Found>, RuntimeError> {
        if let Some(digest) = &flight.digest {
            return self.resolve(digest).await;
        }
        if downloads.is_empty() {
            return Ok(None);
        }
        let manifests = self
            .services
            .blobs_where(vec![filter::manifests_of(&flight.image)])
            .await?;
        let mut candidates = Vec::new();
        for manifest in manifests.iter().filter(|manifest| is_active(manifest, downloads)) {
            // Lists of older versions do not tell when a blob was touched.
            if let Some(at) = self
                .services
                .blob(&manifest.digest)
                .await?
                .and_then(|blob| blob.updated_at)
            {
                candidates.push(Candidate {
                    digest: manifest.digest.clone(),
                    touched: (at.seconds, at.nanos),
                });
            }
        }
        match self.flights.only_candidate(flight, &candidates) {
            Some(manifest) => self.resolve(&manifest).await,
            None => Ok(None),
        }
    }

    /// Reads a manifest, or of an index the child that is there: containerd fetches the node's platform alone.
    async fn resolve(&self, digest: &str) -> Result<Option<Found>, RuntimeError> {
        let children = match self.document(digest).await? {
            Some(Document::Manifest(blobs)) => {
                return Ok(Some(Found {
                    manifest: digest.to_owned(),
                    blobs,
                }));
            }
            Some(Document::Index(children)) => children,
            None => return Ok(None),
        };
        for manifest in children {
            if let Some(Document::Manifest(blobs)) = self.document(&manifest).await? {
                return Ok(Some(Found { manifest, blobs }));
            }
        }
        Ok(None)
    }

    async fn document(&self, digest: &str) -> Result<Option<Document>, RuntimeError> {
        let bytes = self.services.manifest(digest).await?;
        Ok(bytes.and_then(|bytes| Document::parse(&bytes)))
    }

    async fn done(&self, flight: &Flight, blobs: &Blobs, downloads: &Downloads) -> Result<u64, RuntimeError> {
        let mut done: u64 = 0;
        let mut complete = Vec::new();
        let mut look_ups = 0..LOOK_UPS;
        for (digest, size) in &blobs.sizes {
            let arrived = if flight.complete.contains(digest) {
                *size
            } else if let Some(offset) = downloads.get(digest) {
                (*offset).min(*size)
            } else if look_ups.next().is_some() && self.services.blob(digest).await?.is_some() {
                complete.push(digest.clone());
                *size
            } else {
                0
            };
            done = done.saturating_add(arrived);
        }
        self.flights.complete(flight.number, complete);
        Ok(done)
    }

    /// What is being downloaded at this moment, by anybody.
    async fn downloads(&self) -> Result<Downloads, RuntimeError> {
        let ingests = self.services.ingests().await?;
        // A download is called by its kind and the digest of its blob: `layer-sha256:…`, `config-sha256:…`.
        let downloads = ingests.into_iter().filter_map(|ingest| {
            let (_, digest) = ingest.r#ref.split_once('-')?;
            Some((digest.to_owned(), u64::try_from(ingest.offset).ok()?))
        });
        Ok(downloads.collect())
    }
}

/// Whether something of this manifest is being downloaded: its labels name its configuration and its layers.
fn is_active(manifest: &Info, downloads: &Downloads) -> bool {
    manifest.labels.values().any(|child| downloads.contains_key(child))
}

/// The one place that reads the wall clock, to be compared with times that containerd took from the same clock.
#[expect(
    clippy::disallowed_methods,
    reason = "content has wall-clock times, and no other mark of its age"
)]
fn now() -> Moment {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    (seconds, since_1970.subsec_nanos().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board that starts in 1970 has manifests from what looks like the future; they are complete, though.
    #[test]
    fn a_manifest_is_active_while_one_of_its_blobs_is_on_its_way() {
        let downloads: Downloads = [("sha256:a".to_owned(), 5)].into();
        let manifest = |layer: &str| Info {
            labels: [
                (
                    "containerd.io/distribution.source.docker.io".to_owned(),
                    "library/app".to_owned(),
                ),
                ("containerd.io/gc.ref.content.l.0".to_owned(), layer.to_owned()),
            ]
            .into(),
            ..Info::default()
        };
        assert!(is_active(&manifest("sha256:a"), &downloads));
        assert!(!is_active(&manifest("sha256:b"), &downloads));
    }
}
