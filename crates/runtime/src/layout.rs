//! An OCI image layout folder, for machines without a container runtime. `skopeo` and `ctr image import` can read it.
//!
//! There is no runtime to ask, so this back end pulls by itself, through `larder-registry`: every blob is checked by its
//! digest, layers are fetched several at a time, shared between images, and taken up again where an earlier pull broke
//! off. An image is named in `index.json` only after all of it is there, and counts as present only while all of it
//! still is. Several processes may use one folder: what they must not do at once is guarded by file locks.
//!
//! Pins and second names are entries of `index.json` too. Nobody cleans the folder up but us, so a pin keeps nothing
//! that would go otherwise; it is kept so that it can be read back.

mod fetch;
mod files;
mod index;
mod meter;
mod oci;
mod sweep;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::{ByteSize, Digest, ImageRef};
use larder_registry::{
    Platform, RegistryClient,
    fetch::{FetchSettings, Fetcher, LineCounter},
    manifest::{Content, Descriptor, Document, Manifest, PlatformImage, best_for},
};
use tokio::time::Instant;

use self::{
    files::Files,
    index::{Entry, Index},
    meter::Meters,
};
use crate::{
    Capabilities, FetchPath, ImageEvents, ImageFs, ImageRuntime, LocalImage, OwnReference, Progress, PullRequest,
    PulledImage, RuntimeError, RuntimeVersion, Support, image_fs,
};

/// An index may point to an index; nobody nests deeper.
const MAX_DEPTH: usize = 4;

/// A folder of images.
pub struct LayoutRuntime {
    files: Arc<Files>,
    client: RegistryClient,
    machine: Platform,
    meters: Arc<Meters>,
    fetcher: Fetcher,
}

impl LayoutRuntime {
    /// Opens the folder, or makes it. Images are pulled for `machine`.
    pub fn open(folder: &Path, client: RegistryClient, machine: Platform) -> Result<Self, RuntimeError> {
        Ok(Self {
            files: Arc::new(Files::open(folder)?),
            client,
            machine,
            meters: Arc::new(Meters::default()),
            fetcher: Fetcher::new(FetchSettings::default()),
        })
    }

    /// Fetches with other limits.
    #[must_use]
    pub fn fetching(self, fetcher: Fetcher) -> Self {
        Self { fetcher, ..self }
    }

    /// Works in the folder on a thread that may block.
    async fn with_files<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Files, &Platform) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (files, machine) = (Arc::clone(&self.files), self.machine.clone());
        files::blocking(move || job(&files, &machine)).await
    }

    /// Changes `index.json` under its lock.
    async fn change<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Index) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let files = Arc::clone(&self.files);
        files::blocking(move || files.change_index(job)).await
    }

    /// Writes what leads to the blobs, from the manifest up: an index is there only when what it leads to is.
    async fn write_documents(&self, found: &PlatformImage, shown: &oci::Shown) -> Result<(), RuntimeError> {
        let fetched = found
            .documents
            .iter()
            .rev()
            .map(|document| (&document.descriptor.digest, &document.bytes));
        let converted = shown.converted.iter().map(|bytes| (&shown.target.shown.digest, bytes));
        let documents: Vec<(Digest, Bytes)> = fetched
            .chain(converted)
            .map(|(digest, bytes)| (digest.clone(), bytes.clone()))
            .collect();
        self.with_files(move |files, _| {
            documents
                .iter()
                .try_for_each(|(digest, bytes)| files.write_document(digest, bytes))
        })
        .await
    }

    /// Deletes what no entry needs. Not while pulls run: what they fetched is needed by no entry yet.
    async fn sweep(&self) -> Result<(), RuntimeError> {
        self.with_files(|files, _| sweep::sweep(files)).await
    }
}

#[async_trait]
impl ImageRuntime for LayoutRuntime {
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError> {
        Ok(Capabilities {
            events: Support::No("an image layout folder tells nobody when its files change".to_owned()),
            ..Capabilities::ALL
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        Ok(RuntimeVersion {
            name: "oci-layout".to_owned(),
            version: files::LAYOUT_VERSION.to_owned(),
        })
    }

    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        self.with_files(|files, machine| Ok(images(files, machine, &files.index()?)))
            .await
    }

    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError> {
        let image = image.clone();
        self.with_files(move |files, machine| {
            let mut images = images(files, machine, &files.index()?).into_iter();
            Ok(images.find(|held| held.answers_to(&image)))
        })
        .await
    }

    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError> {
        let doing = format!("pull {}", request.image);
        let refused = |source| RuntimeError::Registry {
            doing: doing.clone(),
            source,
        };
        let credentials = request.auth.iter().cloned().collect();
        let repository = self.client.repository(&request.image, credentials).map_err(refused)?;
        let repository = repository
            .waiting_until(Instant::now() + request.patience)
            .showing_waits(&request.wait);
        let found = repository.image_for(&self.machine).await.map_err(refused)?;
        let shown = oci::shown(&found).ok_or_else(|| RuntimeError::NotShown { doing: doing.clone() })?;

        let line = LineCounter::default();
        let (replaced, hosts) = {
            let _pulling = self.files.lock_for_pulling(&doing).await?;
            let meter = self.meters.begin(&request.image, found.download_size());
            let folder = fetch::Folder {
                files: Arc::clone(&self.files),
                meter: meter.meter(),
                doing: doing.clone(),
            };
            let hosts = fetch::blobs(&folder, &self.fetcher, &repository, &found, &line).await?;
            self.write_documents(&found, &shown).await?;
            let (image, target) = (request.image.clone(), shown.target.clone());
            let replaced = self.change(move |index| Ok(index.name(&image, &target))).await?;
            (replaced, hosts)
        };
        if replaced {
            self.sweep().await?;
        }
        let there = self
            .status(&request.image)
            .await?
            .ok_or(RuntimeError::NotShown { doing })?;
        Ok(PulledImage {
            id: there.id,
            digest: Some(shown.target.source.digest),
            size: there.size,
            download: Some(found.download_size()),
            fetched: Some(ByteSize(line.bytes())),
            path: FetchPath::Fetcher(hosts),
        })
    }

    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let gone = image.clone();
        self.change(move |index| {
            index.remove(&gone);
            Ok(())
        })
        .await?;
        self.sweep().await
    }

    async fn image_fs(&self) -> Result<ImageFs, RuntimeError> {
        let used = self.with_files(|files, _| files.used()).await?;
        image_fs::measure(Path::new("/"), self.files.folder().to_owned(), Some(used)).await
    }

    async fn progress(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        Ok(self.meters.read(image))
    }

    async fn held_blobs(&self, blobs: &[Digest]) -> Result<Option<BTreeSet<Digest>>, RuntimeError> {
        let blobs = blobs.to_vec();
        self.with_files(move |files, _| {
            // What is not whole yet lies elsewhere.
            let held = blobs.into_iter().filter(|digest| files.blob(digest).is_file());
            Ok(Some(held.collect()))
        })
        .await
    }

    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let (doing, image) = (format!("pin {image}"), image.clone());
        self.change(move |index| {
            if index.pin(&image) {
                Ok(())
            } else {
                Err(RuntimeError::Missing { doing })
            }
        })
        .await
    }

    async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let image = image.clone();
        self.change(move |index| {
            index.unpin(&image);
            Ok(())
        })
        .await
    }

    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("give {image} the name {name}");
        let (image, name) = (image.clone(), name.clone());
        self.change(move |index| index.alias(doing, &image, &name)).await
    }

    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        self.with_files(|files, _| Ok(files.index()?.own_references())).await
    }

    async fn events(&self) -> Result<ImageEvents, RuntimeError> {
        Err(RuntimeError::Unsupported {
            doing: "listen to image events".to_owned(),
            why: "an image layout folder tells nobody when its files change".to_owned(),
        })
    }
}

/// Every image that is there with all its blobs, under all its names.
fn images(files: &Files, machine: &Platform, index: &Index) -> Vec<LocalImage> {
    let mut by_id: BTreeMap<Digest, LocalImage> = BTreeMap::new();
    for entry in index.entries() {
        let Some((name, manifest)) = entry.image().zip(manifest_of(files, machine, &entry.target().shown)) else {
            continue;
        };
        let blobs: BTreeMap<&Digest, u64> = manifest
            .layers
            .iter()
            .chain([&manifest.config])
            .map(|blob| (&blob.digest, blob.size))
            .collect();
        if !blobs.iter().all(|(digest, size)| files.has_blob(digest, *size)) {
            continue;
        }
        let image = by_id
            .entry(manifest.config.digest.clone())
            .or_insert_with(|| LocalImage {
                id: manifest.config.digest.to_string(),
                tags: Vec::new(),
                digests: Vec::new(),
                size: blobs.values().map(|size| ByteSize(*size)).sum(),
                pinned: false,
            });
        image.pinned |= entry.is_pinned();
        note_names(image, &name, entry);
    }
    by_id.into_values().collect()
}

/// An entry by tag makes the image known by its digest too, as runtimes do.
fn note_names(image: &mut LocalImage, name: &ImageRef, entry: &Entry) {
    let by_digest = ImageRef::from_parts(name.name(), &entry.digest().to_string()).ok();
    if name.reference().digest().is_none() && !image.tags.contains(name) {
        image.tags.push(name.clone());
    }
    if let Some(by_digest) = by_digest.filter(|by_digest| !image.digests.contains(by_digest)) {
        image.digests.push(by_digest);
    }
}

/// The manifest for this machine behind a descriptor, if all documents on the way to it are there.
fn manifest_of(files: &Files, machine: &Platform, root: &Descriptor) -> Option<Manifest> {
    let mut descriptor = root.clone();
    for _ in 0..MAX_DEPTH {
        let bytes = files.read_document(&descriptor)?;
        match (Document { descriptor, bytes }).content().ok()? {
            Content::Manifest(manifest) => return Some(manifest),
            Content::Index(builds) => descriptor = best_for(machine, &builds)?.clone(),
        }
    }
    None
}

/// Where blobs of a layout lie, relative to its folder.
fn blob_path(digest: &Digest) -> PathBuf {
    Path::new("blobs").join(digest.algorithm().as_str()).join(digest.hex())
}
