//! What a runtime tells about the images it holds.

use std::{fmt, path::PathBuf};

use larder_model::{ByteSize, Digest, ImageRef, Reference};

use crate::FetchPath;

/// One image of the node, under all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalImage {
    /// The runtime's id: the digest of the image configuration, `sha256:…`.
    pub id: String,
    /// Its names by tag, normalised.
    pub tags: Vec<ImageRef>,
    /// Its names by digest, normalised.
    pub digests: Vec<ImageRef>,
    /// What the runtime says it takes up.
    pub size: ByteSize,
    /// Whether the runtime keeps it from the kubelet's clean-up.
    pub pinned: bool,
}

impl LocalImage {
    /// Reads names as a runtime lists them. What is no image name (`<none>:<none>`) is left out.
    pub fn from_names(id: String, tags: &[String], digests: &[String], size: u64, pinned: bool) -> Self {
        let parse = |names: &[String]| names.iter().filter_map(|name| ImageRef::parse(name).ok()).collect();
        Self {
            id,
            tags: parse(tags),
            digests: parse(digests),
            size: ByteSize(size),
            pinned,
        }
    }

    /// Whether the image carries this very name, by tag or by digest.
    pub fn answers_to(&self, image: &ImageRef) -> bool {
        match image.reference() {
            Reference::Tag(_) => self.tags.contains(image),
            Reference::Digest(_) => self.digests.contains(image),
        }
    }

    /// The digest under which the image is known in the repository of `image`.
    pub fn digest_in(&self, image: &ImageRef) -> Option<Digest> {
        if let Reference::Digest(digest) = image.reference()
            && self.digests.contains(image)
        {
            return Some(digest.clone());
        }
        self.digests
            .iter()
            .filter(|known| known.name() == image.name())
            .find_map(|known| match known.reference() {
                Reference::Digest(digest) => Some(digest.clone()),
                Reference::Tag(_) => None,
            })
    }
}

/// What is there after a successful pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledImage {
    /// The runtime's id of the image.
    pub id: String,
    /// Digest of the manifest or index that the reference points to. `None` where the runtime keeps none.
    pub digest: Option<Digest>,
    /// What the runtime says it takes up.
    pub size: ByteSize,
    /// Compressed bytes of its configuration and layers, those that were there before included. `None` where the
    /// runtime does not tell.
    pub download: Option<ByteSize>,
    /// Those of them that this pull brought. `None` where nobody can tell.
    pub fetched: Option<ByteSize>,
    /// Who fetched them.
    pub path: FetchPath,
}

/// Bytes of a running pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived, those that were there already included.
    pub done: ByteSize,
    /// All bytes of the image: its configuration and its layers, compressed.
    pub total: ByteSize,
}

/// The filesystem that pulled images fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFs {
    /// A path on it, as the runtime knows it.
    pub path: PathBuf,
    /// Its size.
    pub capacity: ByteSize,
    /// What anybody has written to it. Less than `capacity` without `free`: filesystems keep something back for root.
    pub used: ByteSize,
    /// What an ordinary process may still write.
    pub free: ByteSize,
    /// What images take up of it, where the runtime tells.
    pub used_by_images: Option<ByteSize>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`, `cri-o`, `docker`…
    pub name: String,
    /// Its version, as it says it.
    pub version: String,
}

/// Prints `containerd 2.1.9`, which is what stands in NodeImage status.
impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version.trim_start_matches('v'))
    }
}

/// A reference in the runtime that we put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnReference {
    /// What for.
    pub purpose: Purpose,
    /// The image it was made of.
    pub image: ImageRef,
    /// What it points to.
    pub digest: Digest,
}

/// What an own reference is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Keeps the image.
    Pin,
    /// Is this second name of the image.
    Alias(ImageRef),
}
