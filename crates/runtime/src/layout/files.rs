//! The files of an image layout: where they are, how they are written so that nobody sees half of one, and who may
//! touch them when. Everything here blocks, except for waiting on locks that pulls hold for long.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use larder_model::{ByteSize, Digest};
use larder_registry::manifest::Descriptor;

use super::{blob_path, index::Index};
use crate::RuntimeError;

/// The version of the layout that we read and write.
pub(super) const LAYOUT_VERSION: &str = "1.0.0";

const LAYOUT_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";

/// Our own corner of the folder: locks and half-finished downloads. Readers of layouts do not look at it.
const WORK: &str = ".larder";

/// Largest manifest or index that is read. Registries refuse larger ones.
const MAX_DOCUMENT: u64 = 4 << 20;

/// How often a lock that somebody holds for long is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    /// Opens a layout, or makes an empty one.
    pub(super) fn open(folder: &Path) -> Result<Self, RuntimeError> {
        let files = Self {
            folder: std::path::absolute(folder).map_err(failed("open the image layout", folder))?,
        };
        for part in [Path::new("blobs/sha256"), &Path::new(WORK).join("partial")] {
            let path = files.folder.join(part);
            fs::create_dir_all(&path).map_err(failed("make the image layout", &path))?;
        }
        let marker = files.folder.join(LAYOUT_FILE);
        match fs::read(&marker) {
            Ok(text) => check_version(&marker, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!(r#"{{"imageLayoutVersion":"{LAYOUT_VERSION}"}}"#);
                files.write_whole(&marker, text.as_bytes())?;
            }
            Err(error) => return Err(failed("read the image layout", &marker)(error)),
        }
        // Readers expect the file even where nothing is in the folder yet.
        files.change_index(|_| Ok(()))?;
        Ok(files)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn index(&self) -> Result<Index, RuntimeError> {
        let path = self.folder.join(INDEX_FILE);
        match fs::read(&path) {
            Ok(bytes) => Index::parse(&bytes).map_err(|error| failed("read the list of images", &path)(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::default()),
            Err(error) => Err(failed("read the list of images", &path)(error)),
        }
    }

    /// Reads `index.json`, changes it and puts the new one in its place, while nobody else does.
    pub(super) fn change_index<T>(
        &self,
        change: impl FnOnce(&mut Index) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let lock = self.lock_file("index.lock")?;
        // Whoever holds this lock only rewrites a small file.
        lock.lock().map_err(failed("lock the list of images", &self.folder))?;
        let before = self.index()?;
        let mut after = before.clone();
        let answer = change(&mut after)?;
        let path = self.folder.join(INDEX_FILE);
        if after != before || !path.exists() {
            let bytes = after
                .to_bytes()
                .map_err(|error| failed("write the list of images", &path)(error.into()))?;
            self.write_whole(&path, &bytes)?;
        }
        Ok(answer)
    }

    /// Held by every pull while it runs, by any number of them at once.
    pub(super) async fn lock_for_pulling(&self, doing: &str) -> Result<File, RuntimeError> {
        let lock = self.lock_file("pulls.lock")?;
        loop {
            match lock.try_lock_shared() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(error)) => return Err(failed(doing, &self.folder)(error)),
            }
        }
    }

    /// Held while blobs are deleted. `None`: pulls run, here or in another process.
    pub(super) fn lock_for_deleting(&self) -> Result<Option<File>, RuntimeError> {
        let lock = self.lock_file("pulls.lock")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed("lock the image layout", &self.folder)(error)),
        }
    }

    /// Whether a blob is there with its right size. Its content was checked when it was written.
    pub(super) fn has_blob(&self, digest: &Digest, size: u64) -> bool {
        fs::metadata(self.blob(digest)).is_ok_and(|file| file.is_file() && file.len() == size)
    }

    /// A manifest or index. `None`: it is not there, or is no such thing.
    pub(super) fn read_document(&self, descriptor: &Descriptor) -> Option<Bytes> {
        if MAX_DOCUMENT < descriptor.size || !self.has_blob(&descriptor.digest, descriptor.size) {
            return None;
        }
        fs::read(self.blob(&descriptor.digest)).ok().map(Bytes::from)
    }

    /// Writes a document as a blob; the caller has checked its digest.
    pub(super) fn write_document(&self, digest: &Digest, bytes: &[u8]) -> Result<(), RuntimeError> {
        if self.has_blob(digest, bytes.len() as u64) {
            return Ok(());
        }
        self.write_whole(&self.blob(digest), bytes)
    }

    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.folder.join(blob_path(digest))
    }

    /// Where a blob grows until it is whole.
    pub(super) fn partial(&self, digest: &Digest) -> PathBuf {
        self.partials()
            .join(format!("{}-{}", digest.algorithm().as_str(), digest.hex()))
    }

    pub(super) fn partials(&self) -> PathBuf {
        self.folder.join(WORK).join("partial")
    }

    /// What all blobs together take up.
    pub(super) fn used(&self) -> Result<ByteSize, RuntimeError> {
        let mut used = ByteSize(0);
        for folder in children(&self.folder.join("blobs"))? {
            for blob in children(&folder)? {
                used += ByteSize(fs::metadata(&blob).map_or(0, |file| file.len()));
            }
        }
        Ok(used)
    }

    fn lock_file(&self, name: &str) -> Result<File, RuntimeError> {
        let path = self.folder.join(WORK).join(name);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        file.map_err(failed("open a lock", &path))
    }

    /// Puts a file in its place in one step: a reader, or a crash, finds the old one or the new one.
    fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<(), RuntimeError> {
        let failed = failed("write a file of the image layout", path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(&failed)?;
        }
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(self.folder.join(WORK))?;
            file.write_all(bytes)?;
            set_readable(file.as_file())?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(&failed)
    }
}

/// Runs something that blocks without blocking the async runtime.
pub(super) async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(job).await {
        Ok(answer) => answer,
        Err(error) => Err(failed("work on the image layout", Path::new("."))(io::Error::other(
            error,
        ))),
    }
}

/// The entries of a folder; none if it is not there.
pub(super) fn children(folder: &Path) -> Result<Vec<PathBuf>, RuntimeError> {
    let list = || {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(failed("list a folder of the image layout", folder)),
    }
}

pub(super) fn failed(doing: &str, path: &Path) -> impl Fn(io::Error) -> RuntimeError + use<> {
    let (doing, path) = (doing.to_owned(), path.to_owned());
    move |source| RuntimeError::Io {
        doing: doing.clone(),
        path: path.clone(),
        source,
    }
}

/// Temporary files are private; what stands in a layout may be read by those who may read the folder.
pub(super) fn set_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

fn check_version(path: &Path, text: &[u8]) -> Result<(), RuntimeError> {
    let marker: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| failed("read the image layout", path)(error.into()))?;
    match marker["imageLayoutVersion"].as_str() {
        Some(LAYOUT_VERSION) => Ok(()),
        other => Err(RuntimeError::Unsupported {
            doing: format!("use {} as an image layout", path.display()),
            why: format!("its version is {other:?}, and only {LAYOUT_VERSION} is known"),
        }),
    }
}
