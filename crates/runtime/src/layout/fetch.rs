//! The folder as a place for blobs: each is written once, checked, and continued where an earlier try broke off.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use larder_model::Digest;
use larder_registry::{
    Progress, Repository,
    client::ContentHasher,
    fetch::{BlobSink, BlobStore, CommitError, Fetch, FetchError, Fetcher, LineCounter},
    manifest::{Descriptor, PlatformImage},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    files::{self, Files, failed},
    meter::Meter,
};
use crate::RuntimeError;

/// How often we look whether somebody else has finished a blob that we need too.
const OTHER_PAUSE: Duration = Duration::from_millis(50);

/// How much of an earlier part is read at once.
const READ: usize = 64 << 10;

/// Fetches what is missing, and returns the hosts that sent something.
pub(super) async fn blobs(
    folder: &Folder,
    fetcher: &Fetcher,
    repository: &Repository,
    image: &PlatformImage,
    line: &LineCounter,
) -> Result<BTreeSet<String>, RuntimeError> {
    let each_once: BTreeMap<&Digest, &Descriptor> = image.blobs().map(|blob| (&blob.digest, blob)).collect();
    let fetch = Fetch {
        repository,
        blobs: each_once.into_values().cloned().collect(),
        counter: line.clone(),
        stops_on_fast_lines: false,
    };
    match fetcher.fetch(fetch, folder).await {
        Ok(done) => Ok(done.hosts),
        Err(FetchError::Store(error)) => Err(error),
        Err(FetchError::Registry(source)) => Err(RuntimeError::Registry {
            doing: folder.doing.clone(),
            source,
        }),
    }
}

/// The folder during one pull.
#[derive(Clone)]
pub(super) struct Folder {
    pub(super) files: Arc<Files>,
    pub(super) meter: Arc<Meter>,
    pub(super) doing: String,
}

/// A blob that grows.
pub(super) struct Partial {
    folder: Folder,
    blob: Descriptor,
    file: tokio::fs::File,
    hasher: ContentHasher,
    begins_at: u64,
    progress: Progress,
}

impl Folder {
    /// Opens the half-finished blob and locks it. `None`: somebody else has it.
    fn claim(&self, digest: &Digest) -> io::Result<Option<File>> {
        let path = self.files.partial(digest);
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .append(true)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Whoever had the lock before may have moved or deleted the file that we opened.
        let ours = file.metadata()?.ino();
        let there = fs::metadata(&path).map(|there| there.ino());
        if there.is_ok_and(|there| there == ours) {
            Ok(Some(file))
        } else {
            Ok(None)
        }
    }

    /// Reads what an earlier try left, to go on behind it.
    async fn go_on(&self, blob: &Descriptor, partial: File) -> io::Result<Partial> {
        if blob.size < partial.metadata()?.len() {
            partial.set_len(0)?;
        }
        let mut earlier = tokio::fs::File::open(self.files.partial(&blob.digest)).await?;
        let mut hasher = ContentHasher::new(blob.digest.algorithm());
        let (mut buffer, mut begins_at) = (vec![0; READ], 0);
        loop {
            let read = earlier.read(&mut buffer).await?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            begins_at += read as u64;
        }
        let progress = Progress::default();
        progress.add(begins_at);
        self.meter.grows(&blob.digest, progress.clone());
        Ok(Partial {
            folder: self.clone(),
            blob: blob.clone(),
            file: tokio::fs::File::from_std(partial),
            hasher,
            begins_at,
            progress,
        })
    }
}

impl BlobStore for Folder {
    type Sink = Partial;
    type Error = RuntimeError;

    async fn open(&self, blob: &Descriptor) -> Result<Option<Partial>, RuntimeError> {
        let failed = failed(&self.doing, &self.files.partial(&blob.digest));
        loop {
            if self.files.has_blob(&blob.digest, blob.size) {
                self.meter.is_whole(&blob.digest, blob.size);
                return Ok(None);
            }
            match self.claim(&blob.digest).map_err(&failed)? {
                Some(partial) => return self.go_on(blob, partial).await.map(Some).map_err(&failed),
                // Another pull, here or in another process, fetches the same blob. It may fail: look again.
                None => tokio::time::sleep(OTHER_PAUSE).await,
            }
        }
    }
}

impl BlobSink for Partial {
    type Error = RuntimeError;

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    async fn append(&mut self, bytes: Bytes) -> Result<(), RuntimeError> {
        let path = self.folder.files.partial(&self.blob.digest);
        self.file
            .write_all(&bytes)
            .await
            .map_err(failed(&self.folder.doing, &path))?;
        self.hasher.update(&bytes);
        self.progress.add(bytes.len() as u64);
        Ok(())
    }

    async fn commit(mut self) -> Result<(), CommitError<RuntimeError>> {
        let (files, doing) = (Arc::clone(&self.folder.files), self.folder.doing.clone());
        let (path, target) = (files.partial(&self.blob.digest), files.blob(&self.blob.digest));
        let failed = failed(&doing, &path);
        self.file
            .flush()
            .await
            .map_err(|error| CommitError::Store(failed(error)))?;
        let is_right =
            self.progress.bytes() == self.blob.size && self.hasher.digest().as_ref() == Some(&self.blob.digest);
        if !is_right {
            // Going on from wrong bytes would never help.
            fs::remove_file(&path).map_err(|error| CommitError::Store(failed(error)))?;
            return Err(CommitError::WrongContent);
        }
        let file = self.file.into_std().await;
        let finished = files::blocking(move || {
            let finish = || {
                files::set_readable(&file)?;
                file.sync_all()?;
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent)?;
                }
                // Still locked: nobody opens it as half-finished in between.
                fs::rename(&path, &target)
            };
            finish().map_err(files::failed(&doing, &target))
        });
        finished.await.map_err(CommitError::Store)?;
        self.folder.meter.is_whole(&self.blob.digest, self.blob.size);
        Ok(())
    }

    async fn discard(self) {
        let path = self.folder.files.partial(&self.blob.digest);
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!(path = %path.display(), %error, "a half-finished blob stays");
        }
    }
}
