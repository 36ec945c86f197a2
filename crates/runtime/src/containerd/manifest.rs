//! What a manifest says an image consists of. Pure: bytes in, list of blobs out.

use std::collections::HashSet;

use larder_registry::manifest::MAX_LAYERS;
use serde::Deserialize;

/// Most entries of an index that are looked at. An index has one for each platform.
const MAX_BUILDS: usize = 100;

/// The blobs of one image for one platform, each once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blobs {
    /// Digest and size, in the order of the manifest, which is the order in which containerd fetches them.
    pub(super) sizes: Vec<(String, u64)>,
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
        self.sizes.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size))
    }

    /// Whether there are so few that each may be asked for: the manifest is a registry's word, and may name thousands.
    pub(super) fn are_countable(&self) -> bool {
        self.sizes.len() <= MAX_LAYERS + 1
    }
}

impl Document {
    /// Reads a manifest or index, OCI's or Docker's. `None`: it is neither.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let raw: Raw = serde_json::from_slice(bytes).ok()?;
        if let Some(manifests) = raw.manifests {
            let builds = manifests.into_iter().map(|child| child.digest);
            return Some(Self::Index(builds.take(MAX_BUILDS).collect()));
        }
        let blobs = raw.config.into_iter().chain(raw.layers?);
        let mut seen = HashSet::new();
        let each_once = blobs.filter(|blob| seen.insert(blob.digest.clone()));
        Some(Self::Manifest(Blobs {
            sizes: each_once.map(|blob| (blob.digest, blob.size)).collect(),
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
        let digests: Vec<_> = blobs.sizes.iter().map(|(digest, _)| digest.as_str()).collect();
        assert_eq!(digests, ["sha256:c", "sha256:a", "sha256:b"]);
        assert!(blobs.are_countable());
    }

    #[test]
    fn an_index_of_thousands_is_cut_off() {
        let children: Vec<_> = (0..20_000)
            .map(|n| serde_json::json!({"digest": format!("sha256:{n}")}))
            .collect();
        let text = serde_json::json!({"manifests": children}).to_string();
        let Some(Document::Index(children)) = Document::parse(text.as_bytes()) else {
            panic!("this is an index");
        };
        assert_eq!(children.len(), MAX_BUILDS);
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
