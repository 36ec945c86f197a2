//! Files that hold secrets or state: mode 0600, in a directory of mode 0700, never reached through a symbolic link.
//!
//! A directory that other users can enter is refused, with the command that fixes it: its files may have been read or
//! replaced already, so an administrator has to look at it. A file or directory in a private directory that has too open a
//! mode was out of reach all the time and is restricted without a word.

mod directory;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub use directory::{DirectoryError, claim_directory, require_directory, require_subdirectory};

const FILE_MODE: u32 = 0o600;

/// Opens a file for reading and writing, and creates it if it does not exist.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    open_with(&mut options, path)
}

/// Opens a file for writing at its end, and creates it if it does not exist.
pub fn append(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().append(true).create(true), path)
}

/// Reads a text file.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_with(OpenOptions::new().read(true), path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file, completely or not at all.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // tempfile creates it with mode 0600 and refuses an existing name, a symbolic link included.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    File::open(directory)?.sync_all()
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without NONBLOCK, a named pipe is opened when its other end is, which may be never.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = options.mode(FILE_MODE).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a symbolic link, and links are not followed here; replace it with the file that it points to",
        ),
        Ok(about) if !about.is_file() => not_a_file(),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(not_a_file());
    }
    if about.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(file)
}

fn not_a_file() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a regular file but a directory, a named pipe, a socket or a device; remove it",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn write_text(path: &Path) -> io::Result<()> {
        write(path, b"new")
    }

    #[rstest]
    #[case::opened(|path: &Path| open(path).map(drop))]
    #[case::appended(|path: &Path| append(path).map(drop))]
    #[case::written(write_text)]
    fn a_file_is_readable_by_its_owner_alone(#[case] touch: fn(&Path) -> io::Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        touch(&path).unwrap();
        assert_eq!(mode(&path), 0o600);

        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        touch(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[rstest]
    #[case::opened(|path: &Path| open(path).map(drop))]
    #[case::appended(|path: &Path| append(path).map(drop))]
    #[case::read(|path: &Path| read_to_string(path).map(drop))]
    fn a_symbolic_link_is_not_followed(#[case] touch: fn(&Path) -> io::Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("file"), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, &path).unwrap();
        let error = touch(&path).unwrap_err();
        assert!(error.to_string().contains("it is a symbolic link"), "{error}");
    }

    #[rstest]
    #[case::opened(|path: &Path| open(path).map(drop))]
    #[case::appended(|path: &Path| append(path).map(drop))]
    #[case::read(|path: &Path| read_to_string(path).map(drop))]
    fn a_named_pipe_or_a_directory_is_refused_without_waiting(#[case] touch: fn(&Path) -> io::Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, directory) = (folder.path().join("pipe"), folder.path().join("directory"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::create_dir(&directory).unwrap();
        for path in [pipe, directory] {
            let error = touch(&path).unwrap_err();
            assert!(error.to_string().contains("it is not a regular file"), "{error}");
        }
    }

    #[test]
    fn a_written_file_replaces_a_symbolic_link_and_not_what_it_points_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("file"), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, &path).unwrap();
        write(&path, b"ours").unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(read_to_string(&path).unwrap(), "ours");
    }

    #[test]
    fn a_file_that_is_missing_is_reported_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_to_string(&folder.path().join("file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
