//! Brings the blobs of an image into the content store before CRI pulls it.
//!
//! CRI then finds manifest, configuration and layers there and has only to unpack them; it names them, sets the labels of
//! garbage collection and keeps what it needs, so that nothing differs from a pull by CRI alone. Whatever is in the way of
//! fetching is a reason to leave the image to CRI, which may be configured differently and continues what was begun. Only
//! a full disk and a containerd that is away end the pull here: CRI would fare no better.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_model::{ByteSize, Digest, Reason};
use larder_registry::{
    BlobWriter, KnownContent, Platform, RegistryError, Repository,
    fetch::{BlobStore as _, Fetch, FetchError, LineCounter},
    manifest::{Descriptor, ManifestError, PlatformImage},
};
use larder_runtime_proto::containerd::services::snapshots::v1::{
    StatSnapshotRequest, snapshots_client::SnapshotsClient,
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    contents, filter,
    flights::FlightGuard,
    ingest::ContentStore,
    leases::{Lease, Leases},
    services::{Services, absent_is_none, scoped},
};
use crate::{FetchPath, Fetching, LeftToRuntime, PullRequest, RuntimeError, cri::CriRuntime};

pub(super) struct Prefetch<'a> {
    pub(super) fetching: &'a Fetching,
    pub(super) services: &'a Services,
    pub(super) leases: &'a Leases,
    pub(super) cri: &'a CriRuntime,
    pub(super) flight: &'a FlightGuard,
    pub(super) request: &'a PullRequest,
}

/// What came of it.
pub(super) struct Prefetched {
    pub(super) path: FetchPath,
    /// Keeps what was fetched until CRI has the image.
    pub(super) lease: Option<Lease>,
    line: LineCounter,
}

/// The largest configuration of an image that is kept in memory.
const CONFIG_MAX: u64 = 4 << 20;

/// Why fetching stopped before its end.
enum Stop {
    Left(LeftToRuntime, Option<String>),
    Failed(RuntimeError),
}

impl Prefetched {
    /// Fetching is off.
    pub(super) fn off() -> Self {
        Self {
            path: FetchPath::Runtime,
            lease: None,
            line: LineCounter::default(),
        }
    }

    /// Bytes that the pull brought: counted on the line where all came through us, otherwise as the content store tells.
    pub(super) fn line_bytes(&self, told: Option<ByteSize>) -> Option<ByteSize> {
        match self.path {
            FetchPath::Fetcher(_) => Some(ByteSize(self.line.bytes())),
            FetchPath::Runtime | FetchPath::LeftToRuntime(_) => told,
        }
    }
}

impl Prefetch<'_> {
    pub(super) async fn run(self) -> Result<Prefetched, RuntimeError> {
        let line = LineCounter::default();
        let mut lease = None;
        let path = match self.fetch(&line, &mut lease).await {
            Ok(hosts) => FetchPath::Fetcher(hosts),
            Err(Stop::Failed(error)) => {
                if let Some(lease) = &lease {
                    lease.pull_failed(error.reason()).await;
                }
                return Err(error);
            }
            Err(Stop::Left(why, detail)) => {
                let (image, reason, detail) = (&self.request.image, why.as_str(), detail.unwrap_or_default());
                if why.is_fallback() {
                    warn!(%image, reason, detail, "{why}");
                } else {
                    info!(%image, reason, "{why}");
                }
                FetchPath::LeftToRuntime(why)
            }
        };
        Ok(Prefetched { path, lease, line })
    }

    async fn fetch(&self, line: &LineCounter, lease: &mut Option<Lease>) -> Result<BTreeSet<String>, Stop> {
        let registry = self.request.image.registry();
        if self.fetching.unreached.contains(registry) {
            return Err(Stop::Left(LeftToRuntime::Unconnected, None));
        }
        let snapshotter = self.snapshotter().await?;
        let credentials = self.request.auth.iter().cloned().collect();
        let repository = self.fetching.client.repository(&self.request.image, credentials);
        let repository = repository.map_err(|error| self.registry(error))?;
        let repository = repository
            .waiting_until(Instant::now() + self.request.patience)
            .showing_waits(&self.request.wait);
        let found = repository
            .image_for_with(&Platform::of_this_machine(), self.services)
            .await;
        let found = found.map_err(|error| self.first_request(error))?;
        self.flight.knows(&found);
        let mut missing = self.missing(&found).await?;
        let Some(manifest) = found.documents.last().map(|document| &document.descriptor.digest) else {
            return Err(Stop::Left(LeftToRuntime::Registry, None));
        };
        if missing.is_empty() && self.has_documents(&found).await? {
            return Err(Stop::Left(LeftToRuntime::Small, None));
        }
        let owner = self.fetching.owner;
        let created = self.leases.create(self.services, owner, &self.request.image, manifest);
        let lease = &*lease.insert(created.await.map_err(store)?);
        let store = ContentStore {
            services: self.services,
            lease,
            labels: [filter::source(&self.request.image)].into(),
        };
        self.keep_present(&store, &found, &mut missing).await?;
        // What was asked of the registry is kept, whoever goes on: registries count requests for manifests.
        let config = self.config(&repository, &found, &store, line).await?;
        self.put_documents(&store, &found).await?;
        if !found.manifest.layers.iter().all(contents::is_ordinary_layer) {
            return Err(Stop::Left(LeftToRuntime::Layers, None));
        }
        if contents::is_small(&missing) {
            return Err(Stop::Left(LeftToRuntime::Small, None));
        }
        self.drop_unpacked(&snapshotter, &config, &found, &mut missing).await?;
        self.fetch_layers(&repository, missing, &store, line).await
    }

    async fn has_documents(&self, found: &PlatformImage) -> Result<bool, Stop> {
        for document in &found.documents {
            let digest = document.descriptor.digest.to_string();
            if self.services.blob(&digest).await.map_err(store)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn snapshotter(&self) -> Result<String, Stop> {
        let left = |error: RuntimeError| Stop::Left(LeftToRuntime::Services, Some(error.text()));
        let name = self.cri.snapshotter().await.map_err(left)?.unwrap_or_default();
        if contents::is_local_snapshotter(&name) {
            Ok(name)
        } else {
            Err(Stop::Left(LeftToRuntime::Snapshotter, Some(name)))
        }
    }

    /// Layers that are not in the store, each once, from the bottom up.
    async fn missing(&self, found: &PlatformImage) -> Result<Vec<Descriptor>, Stop> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for layer in &found.manifest.layers {
            if seen.insert(&layer.digest)
                && self
                    .services
                    .blob(&layer.digest.to_string())
                    .await
                    .map_err(store)?
                    .is_none()
            {
                missing.push(layer.clone());
            }
        }
        Ok(missing)
    }

    /// Takes the layers that are there under the lease: the pull that brought them may end its own before CRI has this image.
    /// Those that have just gone are missing.
    async fn keep_present(
        &self,
        content: &ContentStore<'_>,
        found: &PlatformImage,
        missing: &mut Vec<Descriptor>,
    ) -> Result<(), Stop> {
        for layer in &found.manifest.layers {
            let is_missing = missing.iter().any(|other| other.digest == layer.digest);
            // Opening a blob that is there puts it under the lease, and opens nothing.
            if !is_missing && content.open(layer).await.map_err(store)?.is_some() {
                missing.push(layer.clone());
            }
        }
        Ok(())
    }

    /// The image's configuration: from the store, or from the registry into the store.
    async fn config(
        &self,
        repository: &Repository,
        found: &PlatformImage,
        content: &ContentStore<'_>,
        line: &LineCounter,
    ) -> Result<Bytes, Stop> {
        let config = &found.manifest.config;
        let there = self
            .services
            .manifest(&config.digest.to_string())
            .await
            .map_err(store)?;
        if let Some(there) = there {
            return Ok(there.into());
        }
        if CONFIG_MAX < config.size {
            let detail = format!("the configuration claims to have {} bytes", config.size);
            return Err(Stop::Left(LeftToRuntime::Layers, Some(detail)));
        }
        let bytes = if let Some(read) = &found.config {
            read.clone()
        } else {
            let mut writer = BlobWriter::new(config, Vec::new());
            let fetched = repository.blob(&mut writer).await;
            fetched.map_err(|error| self.registry(error))?;
            Bytes::from(writer.into_inner())
        };
        line.add(bytes.len() as u64);
        content.put(config, &bytes).await.map_err(store)?;
        Ok(bytes)
    }

    /// Manifest and index, so that CRI need not ask for them again: registries count such requests.
    async fn put_documents(&self, content: &ContentStore<'_>, found: &PlatformImage) -> Result<(), Stop> {
        for document in found.documents.iter().rev() {
            content
                .put(&document.descriptor, &document.bytes)
                .await
                .map_err(store)?;
        }
        Ok(())
    }

    /// CRI fetches no layer that it has unpacked already. Where containerd is told to discard unpacked layers, they are not
    /// in the store any more.
    async fn drop_unpacked(
        &self,
        snapshotter: &str,
        config: &[u8],
        found: &PlatformImage,
        missing: &mut Vec<Descriptor>,
    ) -> Result<(), Stop> {
        let layers = &found.manifest.layers;
        let Some(keys) = contents::snapshot_keys(config, layers.len()) else {
            let detail = "the configuration does not fit the layers".to_owned();
            return Err(Stop::Left(LeftToRuntime::Layers, Some(detail)));
        };
        let mut needed: BTreeMap<&Digest, bool> = BTreeMap::new();
        let mut all_below = true;
        for (layer, key) in layers.iter().zip(keys) {
            all_below = all_below && self.has_snapshot(snapshotter, &key).await?;
            *needed.entry(&layer.digest).or_default() |= !all_below;
        }
        missing.retain(|layer| needed.get(&layer.digest) != Some(&false));
        Ok(())
    }

    async fn has_snapshot(&self, snapshotter: &str, key: &str) -> Result<bool, Stop> {
        let request = StatSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            key: key.to_owned(),
        };
        let link = &self.services.link;
        let mut client = SnapshotsClient::new(link.channel());
        let exchange = async { Ok(absent_is_none(client.stat(scoped(request)).await)?.is_some()) };
        link.bounded("look up a snapshot", exchange).await.map_err(store)
    }

    async fn fetch_layers(
        &self,
        repository: &Repository,
        blobs: Vec<Descriptor>,
        content: &ContentStore<'_>,
        line: &LineCounter,
    ) -> Result<BTreeSet<String>, Stop> {
        let fetch = Fetch {
            repository,
            blobs,
            counter: line.clone(),
            stops_on_fast_lines: true,
        };
        match self.fetching.fetcher.fetch(fetch, content).await {
            Ok(fetched) if fetched.is_complete => Ok(fetched.hosts),
            Ok(_) => Err(Stop::Left(LeftToRuntime::FastLine, None)),
            Err(FetchError::Registry(error)) => Err(self.registry(error)),
            Err(FetchError::Store(error)) => Err(store(error)),
        }
    }

    /// The registry was not asked before: where no connection can be made, the next pulls need not find that out again.
    fn first_request(&self, error: RegistryError) -> Stop {
        if let Some(ManifestError::TooManyLayers(_)) = error.manifest_error() {
            // containerd refuses it too, or asks for every layer of an image that cannot be mounted.
            return Stop::Failed(self.failed(error));
        }
        if !error.is_unconnected {
            return self.registry(error);
        }
        self.fetching.unreached.add(self.request.image.registry());
        Stop::Left(LeftToRuntime::Unconnected, Some(self.failed(error).text()))
    }

    fn registry(&self, error: RegistryError) -> Stop {
        Stop::Left(LeftToRuntime::Registry, Some(self.failed(error).text()))
    }

    fn failed(&self, source: RegistryError) -> RuntimeError {
        RuntimeError::Registry {
            doing: format!("pull {}", self.request.image),
            source,
        }
    }
}

/// The content store knows what it has.
impl KnownContent for Services {
    async fn get(&self, content: &Descriptor) -> Option<Bytes> {
        let bytes = self.manifest(&content.digest.to_string()).await.ok().flatten();
        bytes.map(Bytes::from)
    }
}

/// A failure of containerd's services. One call that is not answered does not mean that containerd is away: CRI is asked.
fn store(error: RuntimeError) -> Stop {
    match &error {
        RuntimeError::Unanswered { .. } => Stop::Left(LeftToRuntime::Store, Some(error.text())),
        RuntimeError::Unsupported { .. } => Stop::Left(LeftToRuntime::Services, Some(error.text())),
        _ if matches!(error.reason(), Reason::NoSpace | Reason::RuntimeDown) => Stop::Failed(error),
        _ => Stop::Left(LeftToRuntime::Store, Some(error.text())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::RuntimeText;

    #[test]
    fn only_a_containerd_that_is_away_and_a_full_disk_end_a_pull() {
        let (doing, endpoint) = ("create a lease".to_owned(), "unix:///run/c.sock".to_owned());
        let refused = |reason| RuntimeError::Refused {
            doing: doing.clone(),
            reason,
            source: RuntimeText::new("no"),
        };
        let unanswered = RuntimeError::Unanswered {
            doing: doing.clone(),
            endpoint: endpoint.clone(),
            after: Duration::from_secs(30),
        };
        let down = RuntimeError::Down {
            doing: doing.clone(),
            endpoint,
            source: RuntimeText::new("gone"),
        };
        assert!(matches!(store(unanswered), Stop::Left(LeftToRuntime::Store, Some(_))));
        assert!(matches!(
            store(refused(Reason::Internal)),
            Stop::Left(LeftToRuntime::Store, _)
        ));
        assert!(matches!(store(refused(Reason::NoSpace)), Stop::Failed(_)));
        assert!(matches!(store(down), Stop::Failed(_)));
    }
}
