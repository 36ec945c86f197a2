//! Bytes of a running CRI pull, read from the content store while containerd fills it.
//!
//! CRI says nothing until a pull ends. But the manifest is fetched first and gets labels that name its repository, so
//! the pull's own manifest can be found; it gives the total. What has arrived is the blobs that are complete, and of the
//! others how far their download is.

use std::{collections::HashMap, sync::Arc};

use larder_model::{ByteSize, ImageRef};

use super::{
    filter,
    flights::{Flight, FlightGuard, Flights, Found, Touched},
    manifest::{Blobs, Document},
    services::Services,
};
use crate::{Progress, PullRequest, RuntimeError};

pub(super) struct Gauge<'a> {
    services: &'a Services,
    flights: &'a Arc<Flights>,
}

impl<'a> Gauge<'a> {
    pub(super) fn new(services: &'a Services, flights: &'a Arc<Flights>) -> Self {
        Self { services, flights }
    }

    /// Enters a pull that is about to start.
    pub(super) async fn begin(&self, request: &PullRequest) -> Result<FlightGuard, RuntimeError> {
        let known = request.image.reference().digest().or(request.hint.as_ref());
        let before = match known {
            Some(_) => Touched::new(),
            None => self.manifests(&request.image).await?,
        };
        let hint = known.map(ToString::to_string);
        Ok(self.flights.begin(request.image.clone(), hint, before))
    }

    /// How far the pull of this image is.
    pub(super) async fn read(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        let Some(flight) = self.flights.of(image) else {
            return Ok(None);
        };
        let found = match &flight.found {
            Some(found) => Arc::clone(found),
            None => match self.find(&flight).await? {
                Some(found) => {
                    let found = Arc::new(found);
                    self.flights.found(flight.number, &found);
                    found
                }
                None => return Ok(None),
            },
        };
        let done = self.done(&flight, &found.blobs).await?;
        Ok(Some(Progress {
            done: ByteSize(done),
            total: ByteSize(found.blobs.total()),
        }))
    }

    async fn find(&self, flight: &Flight) -> Result<Option<Found>, RuntimeError> {
        if let Some(hint) = &flight.hint {
            return self.resolve(hint).await;
        }
        let now = self.manifests(&flight.image).await?;
        match self.flights.only_candidate(flight, &now) {
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

    async fn done(&self, flight: &Flight, blobs: &Blobs) -> Result<u64, RuntimeError> {
        let ingests = self.services.ingests().await?;
        // A download is called by its kind and the digest of its blob: `layer-sha256:…`, `config-sha256:…`.
        let offsets: HashMap<&str, u64> = ingests
            .iter()
            .filter_map(|ingest| Some((ingest.r#ref.split_once('-')?.1, u64::try_from(ingest.offset).ok()?)))
            .collect();
        let mut done: u64 = 0;
        let mut complete = Vec::new();
        for (digest, size) in &blobs.sizes {
            let arrived = if flight.complete.contains(digest) {
                *size
            } else if let Some(offset) = offsets.get(digest.as_str()) {
                (*offset).min(*size)
            } else if self.services.blob(digest).await?.is_some() {
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

    /// The manifests of the image's repository, and when each was touched last.
    async fn manifests(&self, image: &ImageRef) -> Result<Touched, RuntimeError> {
        let blobs = self.services.blobs_where(vec![filter::manifests_of(image)]).await?;
        let touched = blobs.into_iter().map(|blob| {
            let at = blob.updated_at.map_or((0, 0), |at| (at.seconds, at.nanos));
            (blob.digest, at)
        });
        Ok(touched.collect())
    }
}
