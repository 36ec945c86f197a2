//! Directories of mode 0700 that belong to the user of this process.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o700;

/// Why a directory cannot hold private files.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It can neither be created nor read.
    #[error("the directory {} cannot be used", .path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Other users can enter it.
    #[error(
        "other users can enter the directory {path} (mode {mode:04o}), which holds secrets; run: chmod 700 {path}",
        path = .path.display()
    )]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its owner could replace every file in it.
    #[error(
        "the directory {path} belongs to user {owner}, but this program runs as user {user}; run: chown {user} {path}",
        path = .path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// The user that owns it.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// A link can be changed to lead elsewhere.
    #[error("{} is a symbolic link, and links are not followed here; use the directory that it points to, or move that directory to the place of the link", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
}

/// Creates a private directory with its parents, or refuses one that is not private.
pub fn require_directory(path: &Path) -> Result<(), DirectoryError> {
    let mode = create(path)?;
    if is_exposed(mode) {
        return Err(DirectoryError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Creates a directory in a private one and returns its path. Restricts the mode of one that exists: no other user could
/// reach it.
pub fn require_subdirectory(private: &Path, name: &str) -> Result<PathBuf, DirectoryError> {
    let path = private.join(name);
    if is_exposed(create(&path)?) {
        let restricted = fs::set_permissions(&path, Permissions::from_mode(DIRECTORY_MODE));
        restricted.map_err(|source| DirectoryError::Unusable {
            path: path.clone(),
            source,
        })?;
    }
    Ok(path)
}

fn is_exposed(mode: u32) -> bool {
    mode & 0o077 != 0
}

/// The same, but restricts the mode of a directory that holds nothing except files whose names start with one of
/// `names`: the kubelet creates `hostPath` directories with mode 0755, for this program alone.
pub fn claim_directory(path: &Path, names: &[&str]) -> Result<(), DirectoryError> {
    let unusable = |source| DirectoryError::Unusable {
        path: path.to_owned(),
        source,
    };
    if !is_exposed(create(path)?) {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(unusable)? {
        let name = entry.map_err(unusable)?.file_name();
        if !names.iter().any(|known| name.to_string_lossy().starts_with(known)) {
            return require_directory(path);
        }
    }
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)).map_err(unusable)
}

/// Creates the directory if it does not exist; returns its permission bits.
fn create(path: &Path) -> Result<u32, DirectoryError> {
    let unusable = |source| DirectoryError::Unusable {
        path: path.to_owned(),
        source,
    };
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    // A link that leads nowhere makes the creation fail.
    let about = fs::symlink_metadata(path);
    if about.as_ref().is_ok_and(fs::Metadata::is_symlink) {
        return Err(DirectoryError::Link { path: path.to_owned() });
    }
    let about = made.and(about).map_err(unusable)?;
    let (owner, user) = (about.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(DirectoryError::Owner {
            path: path.to_owned(),
            owner,
            user,
        });
    }
    Ok(about.mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rstest::rstest;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn with_mode(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn a_new_directory_is_private_and_so_are_its_new_parents() {
        let folder = tempfile::tempdir().unwrap();
        require_directory(&folder.path().join("a/b")).unwrap();
        assert_eq!(mode(&folder.path().join("a/b")), 0o700);
        assert_eq!(mode(&folder.path().join("a")), 0o700);
    }

    #[rstest]
    fn an_open_directory_is_refused_with_the_command_that_fixes_it(
        #[values(0o755, 0o750, 0o711, 0o701, 0o1777)] open: u32,
    ) {
        let folder = with_mode(open);
        let error = require_directory(folder.path()).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("; run: chmod 700 {}", folder.path().display())),
            "{error}"
        );
        assert_eq!(mode(folder.path()), open, "left as it is");
    }

    #[test]
    fn an_open_directory_without_foreign_files_can_be_claimed() {
        let folder = with_mode(0o755);
        fs::write(folder.path().join("node.key"), "").unwrap();
        claim_directory(folder.path(), &["node.key"]).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }

    #[test]
    fn an_open_directory_with_foreign_files_cannot_be_claimed() {
        let folder = with_mode(0o755);
        fs::write(folder.path().join("passwd"), "").unwrap();
        let error = claim_directory(folder.path(), &["node.key"]).unwrap_err();
        assert!(matches!(error, DirectoryError::Exposed { mode: 0o755, .. }), "{error}");
        assert_eq!(mode(folder.path()), 0o755);
    }

    #[rstest]
    #[case::private(require_directory)]
    #[case::claimed(|path: &Path| claim_directory(path, &[]))]
    #[case::inside(|path: &Path| require_subdirectory(path.parent().unwrap(), "link").map(drop))]
    fn a_symbolic_link_is_not_followed(#[case] require: fn(&Path) -> Result<(), DirectoryError>) {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        symlink(&real, &link).unwrap();
        let error = require(&link).unwrap_err();
        assert!(matches!(error, DirectoryError::Link { .. }), "leads nowhere: {error}");

        require_directory(&real).unwrap();
        let error = require(&link).unwrap_err();
        assert!(matches!(error, DirectoryError::Link { .. }), "{error}");
    }

    #[test]
    fn an_open_directory_in_a_private_one_is_restricted() {
        let folder = tempfile::tempdir().unwrap();
        let inside = require_subdirectory(folder.path(), "inside").unwrap();
        assert_eq!(mode(&inside), 0o700);
        fs::set_permissions(&inside, Permissions::from_mode(0o755)).unwrap();
        require_subdirectory(folder.path(), "inside").unwrap();
        assert_eq!(mode(&inside), 0o700);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = require_directory(&file).unwrap_err();
        assert!(matches!(error, DirectoryError::Unusable { .. }), "{error}");
    }
}
