//! Layers: tar archives, plain or compressed.

use std::io::Write as _;

use flate2::write::GzEncoder;

/// How a layer is stored and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As a gzip file. The content is stored in it as it is: random bytes do not shrink, and trying takes long.
    #[default]
    Gzip,
    /// As a zstd file, likewise.
    Zstd,
    /// As a plain tar archive.
    None,
}

/// One layer of an image: a few files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    files: Vec<File>,
    compression: Compression,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    path: String,
    mode: u32,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Random { seed: u64, size: usize },
    Given(Vec<u8>),
}

/// A layer ready to be sent.
pub(super) struct BuiltLayer {
    pub(super) bytes: Vec<u8>,
    /// The digest of the archive before compression.
    pub(super) diff_id: String,
    pub(super) compression: Compression,
}

impl Layer {
    /// A layer with one file of `size` bytes that depend on the seed alone.
    pub fn random(seed: u64, size: usize) -> Self {
        let file = File {
            path: format!("layer-{seed}"),
            mode: 0o644,
            content: Content::Random { seed, size },
        };
        Self {
            files: vec![file],
            compression: Compression::default(),
        }
    }

    /// A layer with this file in it, for example a program (mode 0o755).
    pub fn file(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        let file = File {
            path: path.to_owned(),
            mode,
            content: Content::Given(content.into()),
        };
        Self {
            files: vec![file],
            compression: Compression::default(),
        }
    }

    /// The same, stored in another way.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    pub(super) fn build(&self) -> BuiltLayer {
        let archive = self.archive();
        let diff_id = super::digest(&archive);
        let bytes = match self.compression {
            Compression::None => archive,
            Compression::Gzip => gzip(&archive),
            Compression::Zstd => zstd(&archive),
        };
        BuiltLayer {
            bytes,
            diff_id,
            compression: self.compression,
        }
    }

    #[expect(
        clippy::expect_used,
        reason = "writing to memory cannot fail; paths are short and relative"
    )]
    fn archive(&self) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for file in &self.files {
            let content = file.content.bytes();
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(file.mode);
            archive
                .append_data(&mut header, &file.path, content.as_slice())
                .expect("invariant: a file fits into an archive in memory");
        }
        archive
            .into_inner()
            .expect("invariant: an archive in memory can be finished")
    }
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Given(bytes) => bytes.clone(),
            Self::Random { seed, size } => random(*seed, *size),
        }
    }
}

#[expect(clippy::expect_used, reason = "writing to memory cannot fail")]
fn gzip(archive: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder
        .write_all(archive)
        .expect("invariant: memory takes what is written");
    encoder.finish().expect("invariant: memory takes what is written")
}

/// A zstd frame of raw blocks, which is what zstd makes of content that cannot be compressed.
fn zstd(archive: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    // No content size, no checksum, no dictionary; a window of 128 KiB, which is also the largest block.
    const HEADER: [u8; 2] = [0x00, 0x38];
    const BLOCK: usize = 128 << 10;
    const LAST: u32 = 1;
    let mut frame = [&MAGIC[..], &HEADER[..]].concat();
    for block in archive.chunks(BLOCK) {
        let header = u32::try_from(block.len()).unwrap_or_default() << 3;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame.extend_from_slice(&LAST.to_le_bytes()[..3]);
    frame
}

/// The SplitMix64 sequence: a handful of lines whose output will be the same in ten years.
fn random(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_layer_unpacks_to_its_file() {
        let built = Layer::file("bin/hello", 0o755, "hi").build();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(built.bytes.as_slice()));
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), entry.header().mode().unwrap()), ("hi", 0o755));
        assert_eq!(entry.path().unwrap().to_str(), Some("bin/hello"));
    }

    #[test]
    fn compression_changes_what_is_sent_but_not_what_it_unpacks_to() {
        let plain = Layer::random(3, 5000).compression(Compression::None).build();
        let packed = Layer::random(3, 5000).build();
        assert_eq!(plain.diff_id, packed.diff_id);
        assert_ne!(plain.bytes, packed.bytes);
    }
}
