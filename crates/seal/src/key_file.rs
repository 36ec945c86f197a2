//! The file that holds a node's key pair: readable by its owner alone, written whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{KeyPair, PublicKey};

const FORMAT: &str = "larder-node-key-v1";

/// A key file has some two hundred bytes.
const MAX_LEN: u64 = 4096;

/// Why there is no key pair.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file is there and cannot be read.
    #[error("the node's key file {path} cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Others may read or change it.
    #[error(
        "the node's key file {path} has mode {mode:04o}; only its owner may use it, so run chmod 600, or delete it to get a new key if others may have read it"
    )]
    Mode {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Another user could change it at any time.
    #[error(
        "the node's key file {path} belongs to user {owner} and not to user {me}, as whom this runs; run chown, or delete it to get a new key"
    )]
    Owner {
        /// The file.
        path: String,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        me: u32,
    },
    /// Not what we once wrote.
    #[error(
        "the node's key file {path} is damaged; delete it, and the node gets a new key and its credentials are sealed again"
    )]
    Damaged {
        /// The file.
        path: String,
    },
    /// A new one cannot be written.
    #[error("the node's key file {path} cannot be written; its directory must exist and be writable")]
    Unwritable {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The operating system gives no randomness.
    #[error("no key can be made, because the system gives no random numbers")]
    NoRandomness,
}

#[derive(Deserialize)]
struct KeyFile {
    format: String,
    public: String,
    private: String,
}

impl KeyPair {
    /// The key pair in a file; makes a new one if there is no file yet.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        if let Some(pair) = Self::load(path)? {
            return Ok(pair);
        }
        let pair = Self::generate().ok_or(KeyFileError::NoRandomness)?;
        match pair.write_new(path) {
            Ok(()) => Ok(pair),
            // Another process was faster, and its key counts.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Self::load(path)?.ok_or_else(|| unwritable(path, error))
            }
            Err(error) => Err(unwritable(path, error)),
        }
    }

    fn load(path: &Path) -> Result<Option<Self>, KeyFileError> {
        let unreadable = |source| KeyFileError::Unreadable {
            path: path.display().to_string(),
            source,
        };
        // A symbolic link could lead to a file of another user. Opening a named pipe would wait for its other end.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(unreadable(io::Error::new(
                ErrorKind::InvalidInput,
                "it is not a regular file; remove it to get a new key",
            )));
        }
        let mode = about.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode {
                path: path.display().to_string(),
                mode,
            });
        }
        let me = rustix::process::geteuid().as_raw();
        if about.uid() != me {
            return Err(KeyFileError::Owner {
                path: path.display().to_string(),
                owner: about.uid(),
                me,
            });
        }
        let damaged = || KeyFileError::Damaged {
            path: path.display().to_string(),
        };
        let text = read_text(&file).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => damaged(),
            _ => unreadable(error),
        })?;
        Self::from_text(&text).map(Some).ok_or_else(damaged)
    }

    fn from_text(text: &SecretString) -> Option<Self> {
        let file: KeyFile = serde_json::from_str(text.expose_secret()).ok()?;
        let private = STANDARD.decode(SecretString::from(file.private).expose_secret()).ok()?;
        if file.format != FORMAT {
            return None;
        }
        Self::from_halves(PublicKey::parse(&file.public).ok()?, private)
    }

    fn to_text(&self) -> SecretString {
        let private = SecretString::from(STANDARD.encode(self.private().secret_bytes()));
        let (public, private) = (self.public(), private.expose_secret());
        format!("{{\"format\":\"{FORMAT}\",\"public\":\"{public}\",\"private\":\"{private}\"}}\n").into()
    }

    /// A file under a passing name, complete and on disk, gets its real name in one step if that is still free.
    fn write_new(&self, path: &Path) -> io::Result<()> {
        let dir = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(self.to_text().expose_secret().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|failed| failed.error)?;
        File::open(dir)?.sync_all()
    }
}

fn read_text(file: &File) -> io::Result<SecretString> {
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text)?;
    Ok(text.into())
}

fn unwritable(path: &Path, source: io::Error) -> KeyFileError {
    KeyFileError::Unwritable {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rstest::rstest;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn is_made_once_with_mode_0600_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.key");
        let made = KeyPair::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let found = KeyPair::load_or_create(&path).unwrap();
        assert_eq!(made.public(), found.public());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn many_at_once_agree_on_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.key");
        let keys = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| KeyPair::load_or_create(&path).unwrap()))
                .collect();
            runs.into_iter()
                .map(|run| run.join().unwrap().public().clone())
                .collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(keys.len(), 1);
    }

    #[rstest]
    #[case::group_may_read(0o640)]
    #[case::others_may_read(0o604)]
    #[case::group_may_write(0o620)]
    fn a_file_that_others_may_use_is_refused(#[case] mode: u32) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.key");
        KeyPair::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = KeyPair::load_or_create(&path).unwrap_err();
        assert!(
            matches!(error, KeyFileError::Mode { mode: found, .. } if found == mode),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("mode {mode:04o}")), "{error}");
    }

    fn damaged(change: impl FnOnce(String) -> Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.key");
        KeyPair::load_or_create(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, change(text.clone())).unwrap();
        let error = KeyPair::load_or_create(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Damaged { .. }), "{error:?}");
        let private = text.rsplit('"').nth(1).unwrap();
        assert!(!format!("{error:?} {error}").contains(private));
    }

    #[test]
    fn a_damaged_file_is_told_and_left_alone() {
        damaged(|_| Vec::new());
        damaged(|text| text.as_bytes()[..text.len() / 2].to_vec());
        damaged(|text| text.replace("-v1", "-v9").into_bytes());
        damaged(|_| vec![0xff; 100]);
        damaged(|_| b"{}".to_vec());
        damaged(|text| text.replace("\"private\":\"", "\"private\":\"AAAA").into_bytes());
    }

    #[test]
    fn halves_of_two_pairs_do_not_fit() {
        let other = KeyPair::generate().unwrap().public().to_string();
        damaged(|text| {
            let own = text.split('"').nth(7).unwrap().to_owned();
            text.replace(&own, &other).into_bytes()
        });
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        KeyPair::load_or_create(&dir.path().join("real")).unwrap();
        symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
        let error = KeyPair::load_or_create(&dir.path().join("link")).unwrap_err();
        assert!(matches!(error, KeyFileError::Unreadable { .. }), "{error:?}");
    }

    #[test]
    fn a_named_pipe_is_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("node.key");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = KeyPair::load_or_create(&pipe).unwrap_err();
        assert!(matches!(error, KeyFileError::Unreadable { .. }), "{error:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let error = KeyPair::load_or_create(&dir.path().join("gone").join("node.key")).unwrap_err();
        assert!(matches!(error, KeyFileError::Unwritable { .. }), "{error:?}");
    }
}
