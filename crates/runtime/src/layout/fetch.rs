//! Brings the blobs of an image into the folder: each once, checked, from where an earlier try broke off.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use larder_model::Digest;
use larder_registry::{
    Repository,
    client::BlobWriter,
    manifest::{Descriptor, PlatformImage},
};

use super::{
    files::{self, Files, failed},
    meter::Meter,
};
use crate::RuntimeError;

/// How many blobs of one image are fetched at once; what container runtimes do.
const AT_ONCE: usize = 3;

/// How often we look whether somebody else has finished a blob that we need too.
const OTHER_PAUSE: Duration = Duration::from_millis(50);

/// Fetches what is missing.
pub(super) async fn blobs(
    files: &Files,
    repository: &Repository,
    image: &PlatformImage,
    meter: &Meter,
    doing: &str,
) -> Result<(), RuntimeError> {
    let each_once: BTreeMap<&Digest, &Descriptor> = image.blobs().map(|blob| (&blob.digest, blob)).collect();
    let fetch = |descriptor| Fetch {
        files,
        repository,
        descriptor,
        meter,
        doing,
    };
    // Futures are made before they are streamed: the compiler cannot tell otherwise that they may change threads.
    let fetches: Vec<_> = each_once
        .into_values()
        .map(|descriptor| fetch(descriptor).run())
        .collect();
    stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
}

struct Fetch<'a> {
    files: &'a Files,
    repository: &'a Repository,
    descriptor: &'a Descriptor,
    meter: &'a Meter,
    doing: &'a str,
}

impl Fetch<'_> {
    async fn run(self) -> Result<(), RuntimeError> {
        let Descriptor { digest, size, .. } = self.descriptor;
        loop {
            if self.files.has_blob(digest, *size) {
                self.meter.is_whole(digest, *size);
                return Ok(());
            }
            match self.claim().map_err(failed(self.doing, &self.files.partial(digest)))? {
                Some(partial) => self.download(partial).await?,
                // Another pull, here or in another process, fetches the same blob. It may fail: look again.
                None => tokio::time::sleep(OTHER_PAUSE).await,
            }
        }
    }

    /// Opens the half-finished blob and locks it. `None`: somebody else has it.
    fn claim(&self) -> io::Result<Option<File>> {
        let path = self.files.partial(&self.descriptor.digest);
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

    async fn download(&self, partial: File) -> Result<(), RuntimeError> {
        let path = self.files.partial(&self.descriptor.digest);
        let failed = failed(self.doing, &path);
        if self.descriptor.size < partial.metadata().map_err(&failed)?.len() {
            partial.set_len(0).map_err(&failed)?;
        }
        let mut earlier = tokio::fs::File::open(&path).await.map_err(&failed)?;
        let kept = tokio::fs::File::from_std(partial);
        let writer = BlobWriter::continuing(self.descriptor, &mut earlier, kept).await;
        let mut writer = writer.map_err(&failed)?;
        let progress = writer.progress();
        self.meter.grows(&self.descriptor.digest, progress.clone());

        if let Err(source) = self.repository.blob(&mut writer).await {
            // All bytes and yet an error: they are the wrong ones, and going on from them would never help.
            if progress.bytes() == self.descriptor.size {
                fs::remove_file(&path).map_err(&failed)?;
            }
            return Err(RuntimeError::Registry {
                doing: self.doing.to_owned(),
                source,
            });
        }
        let file = writer.into_inner().into_std().await;
        let (target, path) = (self.files.blob(&self.descriptor.digest), path.clone());
        let doing = self.doing.to_owned();
        files::blocking(move || {
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
        })
        .await
    }
}
