//! A layer: some files, packed the same way every time.

use std::io::Write as _;

use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};

/// A file in a layer.
pub(super) struct File<'a> {
    pub(super) path: &'a str,
    pub(super) mode: u32,
    pub(super) content: &'a [u8],
}

/// A packed layer.
pub(super) struct Layer {
    pub(super) compressed: Vec<u8>,
    /// Digest of what is inside of the compression.
    pub(super) diff_id: String,
}

impl Layer {
    pub(super) fn of(files: &[File<'_>]) -> anyhow::Result<Self> {
        let packed = pack(files)?;
        let diff_id = digest(&packed);
        // Neither a time nor the name of a system stands in the header.
        let mut gzip = GzBuilder::new()
            .mtime(0)
            .operating_system(255)
            .write(Vec::new(), Compression::best());
        gzip.write_all(&packed)?;
        Ok(Self {
            compressed: gzip.finish()?,
            diff_id,
        })
    }
}

/// A tar archive in which every file belongs to root and is of the year 1970. Folders above a file come before it.
pub(super) fn pack(files: &[File<'_>]) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut folders: Vec<&str> = Vec::new();
    for file in files {
        for (end, _) in file.path.match_indices('/') {
            let folder = &file.path[..=end];
            if !folders.contains(&folder) {
                folders.push(folder);
                let mut header = header(tar::EntryType::Directory, 0o755, 0);
                archive.append_data(&mut header, folder, std::io::empty())?;
            }
        }
        let mut header = header(tar::EntryType::Regular, file.mode, file.content.len() as u64);
        archive.append_data(&mut header, file.path, file.content)?;
    }
    Ok(archive.into_inner()?)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

pub(super) fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(half.into(), 16));
        }
    }
    text
}
