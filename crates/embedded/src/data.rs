//! The data folder: what is where, and that nobody else may read it.
//!
//! ```text
//! DATA/kubeconfig            for kubectl; written anew with every start
//! DATA/token                 the password of the API server
//! DATA/objects.redb          all objects
//! DATA/nodes/NAME/state/     key and ledger of a node's agent
//! DATA/nodes/NAME/images/    its images, where there is no container runtime
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

/// What is wrong with the data folder.
#[derive(Debug, Error)]
#[error("the data folder cannot be used: {path}; choose another one with --data")]
pub struct DataError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl DataError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self {
            path: path.to_owned(),
            source,
        }
    }
}

/// An open data folder.
pub(crate) struct Data {
    folder: PathBuf,
}

impl Data {
    /// Opens the folder, or makes it.
    pub(crate) fn open(folder: &Path) -> Result<Self, DataError> {
        make(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
        })
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
        let data = Data::open(&folder.path().join("deep/larder")).unwrap();
        let first = data.token().unwrap();
        assert_eq!(first.expose_secret().len(), 43);
        assert_eq!(data.token().unwrap().expose_secret(), first.expose_secret());
        let mode = fs::metadata(data.folder.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Data::open(&file).map(drop).unwrap_err();
        assert!(error.to_string().contains("choose another one with --data"), "{error}");
    }
}
