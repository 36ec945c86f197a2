//! Images made here: any number of layers of any size with content that depends on a seed alone, for one platform or
//! several. They are complete: runtimes unpack them.
//!
//! Nothing is sent anywhere, and nothing is random: the same recipe makes the same image, to the byte.

mod archive;
mod layer;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub use self::layer::{Compression, Layer};

/// What a manifest refers to, or a manifest itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    media_type: &'static str,
    digest: String,
    bytes: Bytes,
}

impl Blob {
    fn new(media_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            media_type,
            digest: digest(&bytes),
            bytes,
        }
    }

    fn json(media_type: &'static str, value: &Value) -> Self {
        Self::new(media_type, value.to_string())
    }

    /// What kind of content it is.
    pub fn media_type(&self) -> &'static str {
        self.media_type
    }

    /// `sha256:…`
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The content.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many bytes the content has.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size()})
    }
}

/// The names that manifests use for their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// OCI image specification.
    #[default]
    Oci,
    /// Docker's image manifest, version 2 schema 2.
    Docker,
}

impl Format {
    fn manifest(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.manifest.v1+json",
            Self::Docker => "application/vnd.docker.distribution.manifest.v2+json",
        }
    }

    fn index(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.index.v1+json",
            Self::Docker => "application/vnd.docker.distribution.manifest.list.v2+json",
        }
    }

    fn config(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.config.v1+json",
            Self::Docker => "application/vnd.docker.container.image.v1+json",
        }
    }

    fn layer(self, compression: Compression) -> &'static str {
        match (self, compression) {
            (Self::Oci, Compression::Gzip) => "application/vnd.oci.image.layer.v1.tar+gzip",
            (Self::Oci, Compression::Zstd) => "application/vnd.oci.image.layer.v1.tar+zstd",
            (Self::Oci, Compression::None) => "application/vnd.oci.image.layer.v1.tar",
            (Self::Docker, Compression::Gzip) => "application/vnd.docker.image.rootfs.diff.tar.gzip",
            (Self::Docker, Compression::Zstd) => "application/vnd.docker.image.rootfs.diff.tar.zstd",
            (Self::Docker, Compression::None) => "application/vnd.docker.image.rootfs.diff.tar",
        }
    }
}

/// An operating system and processor, in the words of image manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// `linux`
    pub os: String,
    /// `amd64`, `arm64`, …
    pub architecture: String,
}

impl Platform {
    /// Linux on this processor.
    pub fn linux(architecture: &str) -> Self {
        Self {
            os: "linux".into(),
            architecture: architecture.into(),
        }
    }

    /// Linux on the processor that this program was built for.
    pub fn here() -> Self {
        Self::linux(match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        })
    }
}

/// What an image shall be made of.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// From the lowest to the topmost.
    pub layers: Vec<Layer>,
    /// Where it runs.
    pub platform: Platform,
    /// The names in the manifest.
    pub format: Format,
    /// The command that a container of it starts.
    pub entrypoint: Vec<String>,
}

impl Recipe {
    /// An OCI image for this machine.
    pub fn new(layers: impl IntoIterator<Item = Layer>) -> Self {
        Self {
            layers: layers.into_iter().collect(),
            platform: Platform::here(),
            format: Format::default(),
            entrypoint: vec![],
        }
    }

    /// An OCI image for this machine with `count` gzip layers of `size` bytes; layer `i` has the seed `seed + i`, so
    /// that recipes with neighbouring seeds share layers.
    pub fn random(seed: u64, count: u64, size: usize) -> Self {
        Self::new((0..count).map(|i| Layer::random(seed + i, size)))
    }

    /// The same for another platform.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> Self {
        self.platform = platform;
        self
    }

    /// The same with other names in the manifest.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Makes the image.
    pub fn build(&self) -> Image {
        let layers: Vec<_> = self.layers.iter().map(Layer::build).collect();
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let config = json!({
            "os": self.platform.os,
            "architecture": self.platform.architecture,
            "config": {"Entrypoint": self.entrypoint},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = Blob::json(self.format.config(), &config);
        let layers: Vec<_> = layers
            .into_iter()
            .map(|layer| Blob::new(self.format.layer(layer.compression), layer.bytes))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": self.format.manifest(),
            "config": config.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
        });
        let manifest = Blob::json(self.format.manifest(), &manifest);
        Image {
            platform: self.platform.clone(),
            manifest,
            config,
            layers,
        }
    }
}

/// An image for one platform.
#[derive(Debug, Clone)]
pub struct Image {
    platform: Platform,
    manifest: Blob,
    config: Blob,
    layers: Vec<Blob>,
}

impl Image {
    /// The manifest; its digest is the image's.
    pub fn manifest(&self) -> &Blob {
        &self.manifest
    }

    /// The configuration; its digest is the image id of runtimes.
    pub fn config(&self) -> &Blob {
        &self.config
    }

    /// The layers as they are stored and sent.
    pub fn layers(&self) -> &[Blob] {
        &self.layers
    }

    /// The image as one file under this name (`registry/repo:tag`), which `ctr images import` takes.
    pub fn archive(&self, name: &str) -> Vec<u8> {
        archive::of(self, name)
    }

    /// Bytes that a pull onto an empty node transfers, without the manifest.
    pub fn content_size(&self) -> u64 {
        self.layers.iter().chain([&self.config]).map(Blob::size).sum()
    }
}

/// An image for several platforms.
#[derive(Debug, Clone)]
pub struct Index {
    manifest: Blob,
    images: Vec<Image>,
}

impl Index {
    /// Puts images together.
    pub fn new(format: Format, images: Vec<Image>) -> Self {
        let manifests: Vec<_> = images
            .iter()
            .map(|image| {
                let mut descriptor = image.manifest.descriptor();
                descriptor["platform"] = json!({"os": image.platform.os, "architecture": image.platform.architecture});
                descriptor
            })
            .collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": format.index(), "manifests": manifests});
        Self {
            manifest: Blob::json(format.index(), &manifest),
            images,
        }
    }

    /// The list of the images' manifests.
    pub fn manifest(&self) -> &Blob {
        &self.manifest
    }

    /// The images.
    pub fn images(&self) -> &[Image] {
        &self.images
    }
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_recipe_makes_the_same_image() {
        assert_eq!(
            Recipe::random(7, 2, 1000).build().manifest(),
            Recipe::random(7, 2, 1000).build().manifest()
        );
        assert_ne!(
            Recipe::random(7, 2, 1000).build().manifest(),
            Recipe::random(9, 2, 1000).build().manifest()
        );
    }

    #[test]
    fn neighbouring_seeds_share_layers() {
        let (one, two) = (Recipe::random(1, 2, 500).build(), Recipe::random(2, 2, 500).build());
        assert_eq!(one.layers()[1], two.layers()[0]);
        assert_ne!(one.layers()[0], two.layers()[1]);
    }

    #[test]
    fn digest_of_nothing() {
        assert_eq!(
            digest(b""),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
