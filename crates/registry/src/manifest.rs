//! Image manifests and indexes: reading them, and choosing the one for a platform.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_model::{ByteSize, Digest};
use serde::{Deserialize, Serialize};

use crate::Platform;

/// Media type of an OCI index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an OCI manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of docker's manifest list.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of docker's manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Most layers that an image may have. Linux stacks at most 500 in one overlay mount; a manifest may name many thousands,
/// each of which would cost requests.
pub const MAX_LAYERS: usize = 1000;

/// Points to some content: what it is, how large, and its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the content is.
    pub media_type: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Size of the content in bytes.
    pub size: u64,
    /// For what it was built; only inside an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// A manifest or index as the registry sent it, checked against its digest.
#[derive(Debug, Clone)]
pub struct Document {
    /// What it is.
    pub descriptor: Descriptor,
    /// The exact bytes, on which the digest depends.
    pub bytes: Bytes,
}

/// What a document turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One image.
    Manifest(Manifest),
    /// Several builds of an image.
    Index(Vec<Descriptor>),
}

/// One image: its configuration and its layers from the bottom up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// The configuration blob.
    pub config: Descriptor,
    /// The layers.
    pub layers: Vec<Descriptor>,
}

/// An image for one platform, with every document on the way to it.
#[derive(Debug, Clone)]
pub struct PlatformImage {
    /// From what the reference points at down to the image's manifest; one document if there is no index.
    pub documents: Vec<Document>,
    /// The manifest itself.
    pub manifest: Manifest,
    /// The configuration, where it had to be read on the way.
    pub config: Option<Bytes>,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON of the expected shape.
    #[error("the registry's manifest cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// Docker's first format, which has no digests to check.
    #[error("the image has docker's outdated schema 1 format; push it again with a current tool")]
    Schema1,
    /// Something that is no image.
    #[error("`{0}` is not the media type of an image")]
    MediaType(String),
    /// More layers than any image has.
    #[error("the image has {0} layers; at most {MAX_LAYERS} are supported")]
    TooManyLayers(usize),
    /// One digest with two sizes.
    #[error("the manifest says of {0} that it has two different sizes")]
    TwoSizes(Digest),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Option<serde::de::IgnoredAny>,
    config: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

impl Document {
    /// Reads the bytes as what they say they are; where they say nothing, as what they look like.
    pub fn content(&self) -> Result<Content, ManifestError> {
        let head: Head = serde_json::from_slice(&self.bytes)?;
        if head.schema_version == 1 {
            return Err(ManifestError::Schema1);
        }
        let media_type = if head.media_type.is_empty() {
            &self.descriptor.media_type
        } else {
            &head.media_type
        };
        match &**media_type {
            OCI_INDEX | DOCKER_LIST => Ok(Content::Index(self.read::<Index>()?.manifests)),
            OCI_MANIFEST | DOCKER_MANIFEST => self.manifest(),
            _ if head.manifests.is_some() && head.media_type.is_empty() => {
                Ok(Content::Index(self.read::<Index>()?.manifests))
            }
            _ if head.config.is_some() && head.media_type.is_empty() => self.manifest(),
            other => Err(ManifestError::MediaType(other.to_owned())),
        }
    }

    fn manifest(&self) -> Result<Content, ManifestError> {
        let manifest: Manifest = self.read()?;
        if MAX_LAYERS < manifest.layers.len() {
            return Err(ManifestError::TooManyLayers(manifest.layers.len()));
        }
        let mut sizes = BTreeMap::new();
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            if *sizes.entry(&blob.digest).or_insert(blob.size) != blob.size {
                return Err(ManifestError::TwoSizes(blob.digest.clone()));
            }
        }
        Ok(Content::Manifest(manifest))
    }

    fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ManifestError> {
        Ok(serde_json::from_slice(&self.bytes)?)
    }
}

impl PlatformImage {
    /// What the reference points at: an index, or the manifest itself.
    pub fn root(&self) -> Option<&Descriptor> {
        self.documents.first().map(|document| &document.descriptor)
    }

    /// The configuration and the layers: everything there is to download besides the documents.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.manifest.config).chain(&self.manifest.layers)
    }

    /// How much there is to download. A layer that occurs twice is fetched once.
    pub fn download_size(&self) -> ByteSize {
        let mut seen = std::collections::BTreeSet::new();
        self.blobs()
            .filter(|blob| seen.insert(&blob.digest))
            .map(|blob| ByteSize(blob.size))
            .sum()
    }
}

/// The build that suits the machine best; of equally good ones the first, as the image's author ordered them.
pub fn best_for<'a>(machine: &Platform, builds: &'a [Descriptor]) -> Option<&'a Descriptor> {
    builds
        .iter()
        .filter_map(|build| Some((build.platform.as_ref()?.distance_to(machine)?, build)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, build)| build)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn document(media_type: &str, json: &str) -> Document {
        let digest = Digest::sha256(&"a".repeat(64)).unwrap();
        let descriptor = Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size: 1,
            platform: None,
        };
        Document {
            descriptor,
            bytes: Bytes::from(json.to_owned()),
        }
    }

    fn build(digit: char, platform: Option<Platform>) -> Descriptor {
        let digest = Digest::sha256(&digit.to_string().repeat(64)).unwrap();
        Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest,
            size: 1,
            platform,
        }
    }

    const CONFIG: &str = r#"{"mediaType":"c","size":3,"digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

    #[rstest]
    #[case::type_inside(
        r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#,
        "x/y"
    )]
    #[case::type_outside(r#"{"schemaVersion":2,"manifests":[]}"#, DOCKER_LIST)]
    #[case::by_its_looks(r#"{"schemaVersion":2,"manifests":[]}"#, "application/json")]
    fn reads_an_index(#[case] json: &str, #[case] media_type: &str) {
        assert_eq!(document(media_type, json).content().unwrap(), Content::Index(vec![]));
    }

    #[test]
    fn reads_a_manifest_and_counts_a_repeated_layer_once() {
        let json = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[{CONFIG},{CONFIG}]}}"#);
        let document = document(OCI_MANIFEST, &json);
        let Content::Manifest(manifest) = document.content().unwrap() else {
            panic!("an index")
        };
        assert_eq!(manifest.layers.len(), 2);
        let image = PlatformImage {
            documents: vec![document],
            manifest,
            config: None,
        };
        assert_eq!(image.download_size(), ByteSize(3));
    }

    #[test]
    fn refuses_what_is_no_image() {
        let schema1 = document("x", r#"{"schemaVersion":1,"config":{}}"#).content();
        assert!(matches!(schema1, Err(ManifestError::Schema1)));
        let chart = document(OCI_MANIFEST, r#"{"mediaType":"text/plain"}"#).content();
        assert!(matches!(chart, Err(ManifestError::MediaType(_))));
        assert!(matches!(
            document(OCI_MANIFEST, "<html>").content(),
            Err(ManifestError::Unreadable(_))
        ));
    }

    #[rstest]
    #[case(MAX_LAYERS, true)]
    #[case(MAX_LAYERS + 1, false)]
    #[case(30_000, false)]
    fn layers_are_bounded(#[case] layers: usize, #[case] usable: bool) {
        let layers = vec![CONFIG; layers].join(",");
        let json = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[{layers}]}}"#);
        for media_type in [OCI_MANIFEST, "application/json"] {
            assert_eq!(document(media_type, &json).content().is_ok(), usable);
        }
    }

    #[test]
    fn chooses_the_closest_build_and_never_an_attestation() {
        let arm = |variant| Some(Platform::new("linux", "arm", Some(variant)));
        let builds = [
            build('0', Some(Platform::new("unknown", "unknown", None))),
            build('1', None),
            build('2', arm("v5")),
            build('3', arm("v7")),
            build('4', arm("v6")),
            build('5', arm("v7")),
        ];
        let chosen = |variant| best_for(&arm(variant).unwrap(), &builds).map(|b| b.digest.hex()[..1].to_owned());
        assert_eq!(chosen("v7").as_deref(), Some("3"));
        assert_eq!(chosen("v6").as_deref(), Some("4"));
        assert_eq!(chosen("v4"), None);
    }
}
