//! The data folder: what is where, and that nobody else may read it.
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

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_localplane::{Identity, IdentityError};
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

/// A log that has grown beyond this is put aside when the next process begins.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// What is wrong with the data folder.
#[derive(Debug, Error)]
pub enum DataError {
    /// It cannot be read or written.
    #[error("the data folder cannot be used: {path}; choose another one with --data")]
    Unusable {
        /// What of it.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
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
        move |source| Self::Unusable {
            path: path.to_owned(),
            source,
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
        make(folder)?;
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(DataError::at(&path))?;
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
        let long = fs::metadata(&path).is_ok_and(|file| LOG_BYTES_MAX < file.len());
        if long {
            fs::rename(&path, path.with_extension("log.1")).map_err(DataError::at(&path))?;
        }
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).mode(0o600).open(&path);
        opened.map_err(DataError::at(&path))
    }

    /// The file of all objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.join("objects.redb")
    }

    /// The folder of one node.
    pub(crate) fn node(&self, name: &str) -> Result<PathBuf, DataError> {
        let folder = self.folder.join("nodes").join(name);
        make(&folder)?;
        Ok(folder)
    }

    /// The token of this folder; the same after a restart.
    pub(crate) fn token(&self) -> Result<SecretString, DataError> {
        let path = self.folder.join("token");
        match fs::read_to_string(&path) {
            Ok(token) if !token.trim().is_empty() => Ok(SecretString::from(token.trim().to_owned())),
            Ok(_) => self.new_token(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.new_token(&path),
            Err(error) => Err(DataError::at(&path)(error)),
        }
    }

    /// The certificate of this folder; the same after a restart, so that kubeconfigs that were copied go on working.
    pub(crate) fn identity(&self) -> Result<Identity, DataError> {
        let (certificate, key) = (self.folder.join("server.crt"), self.folder.join("server.key"));
        if let (Ok(certificate), Ok(key)) = (fs::read_to_string(&certificate), fs::read_to_string(&key)) {
            return Ok(Identity {
                certificate,
                key: SecretString::from(key),
            });
        }
        let made = Identity::generate().map_err(|source| DataError::Identity {
            folder: self.folder.clone(),
            source,
        })?;
        self.write(&key, made.key.expose_secret())?;
        self.write(&certificate, &made.certificate)?;
        Ok(made)
    }

    /// Where the API server listened last, if that can be read.
    pub(crate) fn last_port(&self) -> Option<u16> {
        let text = fs::read_to_string(self.folder.join("port")).ok()?;
        text.trim().parse().ok().filter(|port| 0 < *port)
    }

    pub(crate) fn remember_port(&self, port: u16) -> Result<(), DataError> {
        self.write(&self.folder.join("port"), &port.to_string())
    }

    /// Writes the kubeconfig, and says where.
    pub(crate) fn write_kubeconfig(&self, text: &SecretString) -> Result<PathBuf, DataError> {
        let path = self.folder.join("kubeconfig");
        self.write(&path, text.expose_secret())?;
        Ok(path)
    }

    fn new_token(&self, path: &Path) -> Result<SecretString, DataError> {
        let token: String = rand::rng()
            .sample_iter(rand::distr::Alphanumeric)
            .take(43)
            .map(char::from)
            .collect();
        self.write(path, &token)?;
        Ok(SecretString::from(token))
    }

    /// Whole or not at all, and for the owner alone.
    fn write(&self, path: &Path, text: &str) -> Result<(), DataError> {
        let unfinished = self.folder.join(".unfinished");
        let written = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        written().map_err(DataError::at(path))
    }
}

fn make(folder: &Path) -> Result<(), DataError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(DataError::at(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
    fn a_port_that_cannot_be_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
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
        let folder = tempfile::tempdir().unwrap();
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
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        data.open_log().unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
        let mut log = data.open_log().unwrap();
        log.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(data.log_path()).unwrap(), "new");
        let aside = folder.path().join("larder.log.1");
        assert_eq!(fs::metadata(aside).unwrap().len(), LOG_BYTES_MAX + 1);
    }
}
