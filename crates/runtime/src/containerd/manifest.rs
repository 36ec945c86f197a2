//! What a manifest says an image consists of. Pure: bytes in, list of blobs out.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The blobs of one image for one platform, each once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blobs {
    /// Digest and size.
    pub(super) sizes: BTreeMap<String, u64>,
}

/// A document that a reference may point to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// One image for one platform.
    Manifest(Blobs),
    /// Manifests for several platforms, by digest.
    Index(Vec<String>),
}

impl Blobs {
    /// Bytes of all blobs.
    pub(super) fn total(&self) -> u64 {
        self.sizes.values().fold(0, |sum, size| sum.saturating_add(*size))
    }
}

impl Document {
    /// Reads a manifest or index, OCI's or Docker's. `None`: it is neither.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let raw: Raw = serde_json::from_slice(bytes).ok()?;
        if let Some(manifests) = raw.manifests {
            return Some(Self::Index(manifests.into_iter().map(|child| child.digest).collect()));
        }
        let blobs = raw.config.into_iter().chain(raw.layers?);
        Some(Self::Manifest(Blobs {
            sizes: blobs.map(|blob| (blob.digest, blob.size)).collect(),
        }))
    }
}

#[derive(Deserialize)]
struct Raw {
    manifests: Option<Vec<RawDescriptor>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
struct RawDescriptor {
    digest: String,
    #[serde(default)]
    size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_appears_twice_counts_once() {
        let text = br#"{"config":{"digest":"sha256:c","size":10},
            "layers":[{"digest":"sha256:a","size":100},{"digest":"sha256:b","size":7},{"digest":"sha256:a","size":100}]}"#;
        let Some(Document::Manifest(blobs)) = Document::parse(text) else {
            panic!("this is a manifest");
        };
        assert_eq!(blobs.total(), 117);
        assert_eq!(blobs.sizes.len(), 3);
    }

    #[test]
    fn an_index_names_its_children() {
        let text = br#"{"manifests":[{"digest":"sha256:a","size":1},{"digest":"sha256:b","size":2}]}"#;
        let expected = Document::Index(vec!["sha256:a".to_owned(), "sha256:b".to_owned()]);
        assert_eq!(Document::parse(text), Some(expected));
    }

    #[test]
    fn anything_else_is_nothing() {
        for text in [&b"{}"[..], b"[]", b"not json", b""] {
            assert_eq!(Document::parse(text), None);
        }
    }
}
