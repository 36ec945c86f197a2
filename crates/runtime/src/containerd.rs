//! containerd: CRI for pulling, and containerd's own services on the same socket for what CRI hides.
//!
//! - bytes of a running pull, from the content store (`progress`)
//! - pins and second names, as references of our own (`references`)
//! - images that others delete, from the event stream (`events`)
//!
//! - layers at the speed of the line, into the content store (`prefetch`)
//!
//! Every image is pulled by CRI, so that its metadata, snapshotter and events stay right. Layers that were fetched before are
//! in the content store, where CRI finds them.

mod contents;
mod events;
mod filter;
mod flights;
mod ingest;
mod leases;
mod manifest;
mod prefetch;
mod progress;
mod references;
mod services;
mod version;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use larder_model::{ByteSize, Digest, ImageRef};
use larder_registry::Platform;
use tokio::time::Instant;
use tracing::warn;

use self::{
    flights::{FlightGuard, Flights},
    leases::Leases,
    prefetch::{Prefetch, Prefetched},
    progress::Gauge,
    references::References,
    services::Services,
};
use crate::{
    Capabilities, Fetching, ImageEvents, ImageFs, ImageRuntime, LocalImage, OwnReference, Progress, PullRequest,
    PulledImage, RuntimeEndpoint, RuntimeError, RuntimeVersion, Support, cri::CriRuntime,
};

/// How long containerd's CRI may take to notice a reference: it learns of it by an event.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);

/// How often we look meanwhile.
const NOTICE_PAUSE: Duration = Duration::from_millis(20);

/// A containerd with its CRI plugin.
pub struct ContainerdRuntime {
    cri: CriRuntime,
    services: Services,
    flights: Arc<Flights>,
    leases: Leases,
    fetching: Option<Fetching>,
}

impl ContainerdRuntime {
    /// Connects with the first call. Must be called inside a tokio runtime.
    ///
    /// `host_root` is where this process sees the node's root filesystem: `/`, or where a container has it mounted.
    pub fn new(endpoint: &RuntimeEndpoint, host_root: impl Into<PathBuf>) -> Result<Self, RuntimeError> {
        let cri = CriRuntime::new(endpoint, host_root)?;
        Ok(Self {
            services: Services::new(cri.link().clone()),
            flights: Arc::new(Flights::default()),
            leases: Leases::default(),
            fetching: None,
            cri,
        })
    }

    /// Fetches layers before CRI does.
    #[must_use]
    pub fn fetching(self, fetching: Fetching) -> Self {
        Self {
            fetching: Some(fetching),
            ..self
        }
    }

    fn references(&self) -> References<'_> {
        References::new(&self.services)
    }

    fn gauge(&self) -> Gauge<'_> {
        Gauge::new(&self.services, &self.flights)
    }

    /// Fetches what the image lacks. Only what CRI could not do better is an error.
    async fn prefetch(&self, request: &PullRequest, flight: &FlightGuard) -> Result<Prefetched, RuntimeError> {
        let Some(fetching) = &self.fetching else {
            return Ok(Prefetched::off());
        };
        let prefetch = Prefetch {
            fetching,
            services: &self.services,
            leases: &self.leases,
            cri: &self.cri,
            flight,
            request,
        };
        prefetch.run().await
    }

    async fn check_pins(&self, doing: &str) -> Result<(), RuntimeError> {
        match version::pins(&self.version().await?) {
            Support::Yes => Ok(()),
            Support::No(why) => Err(RuntimeError::Unsupported {
                doing: doing.to_owned(),
                why,
            }),
        }
    }

    /// Waits until CRI shows what a reference of ours should change.
    async fn wait_shown(
        &self,
        doing: &str,
        image: &ImageRef,
        shown: impl Fn(Option<&LocalImage>) -> bool,
    ) -> Result<(), RuntimeError> {
        let end = Instant::now() + NOTICE_LIMIT;
        loop {
            if shown(self.cri.status(image).await?.as_ref()) {
                return Ok(());
            }
            if end <= Instant::now() {
                return Err(RuntimeError::NotShown {
                    doing: doing.to_owned(),
                });
            }
            tokio::time::sleep(NOTICE_PAUSE).await;
        }
    }

    /// The manifest or index that the reference points to; CRI's list may name several for one image.
    async fn target(&self, image: &ImageRef) -> Result<Option<Digest>, RuntimeError> {
        let target = self.services.image_target(&image.canonical()).await?;
        Ok(target.and_then(|target| Digest::parse(&target.digest).ok()))
    }
}

#[async_trait]
impl ImageRuntime for ContainerdRuntime {
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError> {
        Ok(Capabilities {
            pin: version::pins(&self.version().await?),
            ..Capabilities::ALL
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        self.cri.version().await
    }

    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        self.cri.list().await
    }

    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError> {
        self.cri.status(image).await
    }

    async fn platform(&self, image: &ImageRef) -> Result<Option<Platform>, RuntimeError> {
        self.cri.platform(image).await
    }

    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError> {
        let before = self.target(&request.image).await?;
        let flight = self.gauge().begin(request);
        let prefetched = self.prefetch(request, &flight).await?;
        let pulled = self.cri.pull(request).await;
        if let Some(lease) = &prefetched.lease {
            match &pulled {
                Ok(_) => lease.release().await,
                Err(error) => lease.pull_failed(error.reason()).await,
            }
        }
        let pulled = pulled?;
        let digest = self.target(&request.image).await?;
        let found = self.gauge().contents(&flight, digest.as_ref()).await;
        let download = found.as_ref().map(|found| ByteSize(found.blobs.total()));
        let fetched = match &found {
            Some(found) => self.gauge().fetched(&flight, found).await,
            None => None,
        };
        drop(flight);
        if before.is_some() && before != digest {
            // The image is there, which is what was asked for; a pin that could not follow is found by the next `pin`.
            if let Err(error) = self.references().follow(&request.image).await {
                warn!(image = %request.image, error = error.text(), "own references did not follow a pulled image");
            }
        }
        Ok(PulledImage {
            digest,
            download,
            fetched: prefetched.line_bytes(fetched),
            path: prefetched.path,
            ..pulled
        })
    }

    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        self.cri.remove(image).await
    }

    async fn drop_unfinished(&self, wanted: &BTreeSet<ImageRef>) -> Result<(), RuntimeError> {
        self.leases.sweep(&self.services, wanted).await
    }

    async fn image_fs(&self) -> Result<ImageFs, RuntimeError> {
        self.cri.image_fs().await
    }

    async fn progress(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        self.gauge().read(image).await
    }

    /// Where containerd is told to discard layers once they are unpacked, they count as missing.
    async fn held_blobs(&self, blobs: &[Digest]) -> Result<Option<BTreeSet<Digest>>, RuntimeError> {
        let mut held = BTreeSet::new();
        for blob in blobs {
            if self.services.blob(&blob.to_string()).await?.is_some() {
                held.insert(blob.clone());
            }
        }
        Ok(Some(held))
    }

    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("pin {image}");
        self.check_pins(&doing).await?;
        self.references().pin(&doing, image).await?;
        self.wait_shown(&doing, image, |shown| shown.is_some_and(|image| image.pinned))
            .await
    }

    async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        self.references().unpin(image).await
    }

    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("give {image} the name {name}");
        self.references().alias(&doing, image, name).await?;
        self.wait_shown(&doing, name, |shown| shown.is_some()).await
    }

    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        self.references().list().await
    }

    async fn events(&self) -> Result<ImageEvents, RuntimeError> {
        self.version().await?;
        Ok(events::subscribe(&self.services))
    }
}
