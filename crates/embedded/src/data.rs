//! The data folder: what is where, readable by its owner alone.
//!
//! ```text
//! DATA/lock                  held by the one process that uses the folder
//! DATA/larder.log            what the parts have to say; the part before the last 10 MB is larder.log.1
//! DATA/kubeconfig            for kubectl; written anew with every start, and the same as long as the port is
//! DATA/token                 the password of the API server
//! DATA/server.crt, .key      the certificate of the API server
//! DATA/port                  where it listened last
//! DATA/objects.redb          all objects
//! DATA/nodes/NAME/state/     key and ledger of a node's agent
//! DATA/nodes/NAME/images/    its images, where there is no container runtime
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use larder_localplane::{Identity, IdentityError};
use larder_private_files::{self as private_files, DirectoryError, require_directory, require_subdirectory};
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

/// A log that has grown beyond this is put aside when the next process begins.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// What is wrong with the data folder.
#[derive(Debug, Error)]
pub enum DataError {
    /// It can be neither made nor read.
    #[error("the data folder cannot be used: {path}; choose another one with --data")]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file in it cannot be read or written.
    #[error("{path} in the data folder cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        #[source]
        source: io::Error,
    },
    /// Other users can enter it.
    #[error(transparent)]
    Directory(DirectoryError),
    /// The certificate of the API server can neither be made nor used.
    #[error(
        "the certificate in {folder} cannot be used; delete server.crt and server.key there, and a new one is made"
    )]
    Identity {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: IdentityError,
    },
    /// Another process uses it.
    #[error("another larder is running on {folder}; stop it, or choose another folder with --data")]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
}

impl DataError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

impl From<DirectoryError> for DataError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Unusable { path, source } => Self::Unusable { path, source },
            other => Self::Directory(other),
        }
    }
}

/// The data folder, ours alone until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DataFolder {
    folder: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Opens the folder, or makes it, and keeps others out.
    pub fn open(folder: &Path) -> Result<Self, DataError> {
        Self::prepare(folder)?;
        let path = folder.join("lock");
        let lock = private_files::open(&path).map_err(DataError::at(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                folder: folder.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(DataError::Busy {
                folder: folder.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(DataError::at(&path)(error)),
        }
    }

    /// Makes the folder, or makes sure that other users cannot enter it.
    pub fn prepare(folder: &Path) -> Result<(), DataError> {
        Ok(require_directory(folder)?)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Where the log is.
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("larder.log")
    }

    /// The log, to write on at its end.
    pub fn open_log(&self) -> Result<File, DataError> {
        let path = self.log_path();
        let long = fs::symlink_metadata(&path).is_ok_and(|file| LOG_BYTES_MAX < file.len());
        if long {
            fs::rename(&path, path.with_extension("log.1")).map_err(DataError::at(&path))?;
        }
        private_files::append(&path).map_err(DataError::at(&path))
    }

    /// The file of all objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.join("objects.redb")
    }

    /// The folder of one node.
    pub(crate) fn node(&self, name: &str) -> Result<PathBuf, DataError> {
        let nodes = require_subdirectory(&self.folder, "nodes")?;
        Ok(require_subdirectory(&nodes, name)?)
    }

    /// The token of this folder; the same after a restart.
    pub(crate) fn token(&self) -> Result<SecretString, DataError> {
        let path = self.folder.join("token");
        match read(&path)? {
            Some(token) if !token.trim().is_empty() => Ok(SecretString::from(token.trim().to_owned())),
            _ => new_token(&path),
        }
    }

    /// The certificate of this folder; the same after a restart, so that kubeconfigs that were copied go on working.
    pub(crate) fn identity(&self) -> Result<Identity, DataError> {
        let (certificate, key) = (self.folder.join("server.crt"), self.folder.join("server.key"));
        if let (Some(certificate), Some(key)) = (read(&certificate)?, read(&key)?) {
            return Ok(Identity {
                certificate,
                key: SecretString::from(key),
            });
        }
        let made = Identity::generate().map_err(|source| DataError::Identity {
            folder: self.folder.clone(),
            source,
        })?;
        write(&key, made.key.expose_secret())?;
        write(&certificate, &made.certificate)?;
        Ok(made)
    }

    /// Where the API server listened last, if that can be read.
    pub(crate) fn last_port(&self) -> Option<u16> {
        let text = private_files::read_to_string(&self.folder.join("port")).ok()?;
        text.trim().parse().ok().filter(|port| 0 < *port)
    }

    pub(crate) fn remember_port(&self, port: u16) -> Result<(), DataError> {
        write(&self.folder.join("port"), &port.to_string())
    }

    /// Writes the kubeconfig, and says where.
    pub(crate) fn write_kubeconfig(&self, text: &SecretString) -> Result<PathBuf, DataError> {
        let path = self.folder.join("kubeconfig");
        write(&path, text.expose_secret())?;
        Ok(path)
    }
}

fn new_token(path: &Path) -> Result<SecretString, DataError> {
    let token: String = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(43)
        .map(char::from)
        .collect();
    write(path, &token)?;
    Ok(SecretString::from(token))
}

/// None if there is no such file.
fn read(path: &Path) -> Result<Option<String>, DataError> {
    match private_files::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataError::at(path)(error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), DataError> {
    private_files::write(path, text.as_bytes()).map_err(DataError::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that is there already, and private.
    fn folder() -> tempfile::TempDir {
        let private = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().permissions(private).tempdir().unwrap()
    }

    #[test]
    fn the_token_stays_and_only_the_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(&folder.path().join("deep/larder")).unwrap();
        let first = data.token().unwrap();
        assert_eq!(first.expose_secret().len(), 43);
        assert_eq!(data.token().unwrap().expose_secret(), first.expose_secret());
        let mode = fs::metadata(data.folder.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused_with_the_command_that_fixes_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = DataFolder::open(folder.path()).map(drop).unwrap_err();
        let command = format!("run: chmod 700 {}", folder.path().display());
        assert!(error.to_string().ends_with(&command), "{error}");
    }

    #[test]
    fn a_port_that_cannot_be_read_is_none() {
        let folder = folder();
        let data = DataFolder::open(folder.path()).unwrap();
        assert_eq!(data.last_port(), None);
        data.remember_port(4711).unwrap();
        assert_eq!(data.last_port(), Some(4711));
        for text in ["", "0", "many", "70000"] {
            fs::write(folder.path().join("port"), text).unwrap();
            assert_eq!(data.last_port(), None, "{text}");
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DataFolder::open(&file).map(drop).unwrap_err();
        assert!(error.to_string().contains("choose another one with --data"), "{error}");
    }

    #[test]
    fn nobody_else_gets_in_until_it_is_free() {
        let folder = folder();
        let first = DataFolder::open(folder.path()).unwrap();
        let error = DataFolder::open(folder.path()).map(drop).unwrap_err();
        assert!(
            error.to_string().starts_with("another larder is running on /"),
            "{error}"
        );
        drop(first);
        DataFolder::open(folder.path()).unwrap();
    }

    #[test]
    fn a_long_log_is_put_aside() {
        let folder = folder();
        let data = DataFolder::open(folder.path()).unwrap();
        data.open_log().unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
        let mut log = data.open_log().unwrap();
        log.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(data.log_path()).unwrap(), "new");
        let aside = folder.path().join("larder.log.1");
        assert_eq!(fs::metadata(aside).unwrap().len(), LOG_BYTES_MAX + 1);
    }
}
