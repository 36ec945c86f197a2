//! An image as an OCI image layout in one archive.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::build::Source;
use super::layer::{File, Layer, digest, pack};
use super::{Arch, Program};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Where programs look for certificate authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Where glibc looks for how to look up names.
const NAME_SERVICES: &str = "etc/nsswitch.conf";

/// An image for one kind of machine, complete.
pub(super) struct Image {
    arch: Arch,
    manifest: Vec<u8>,
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Image {
    pub(super) fn new(
        program: &Program,
        arch: Arch,
        source: &Source,
        binary: &[u8],
        sbom: &[u8],
    ) -> anyhow::Result<Self> {
        let version = env!("CARGO_PKG_VERSION");
        let authorities = authorities();
        let sbom_path = format!("usr/share/sbom/{}.cdx.json", program.name);
        let layers = [
            Layer::of(&[
                plain(NAME_SERVICES, b"hosts: files dns\n"),
                plain(AUTHORITIES, authorities.as_bytes()),
            ])?,
            Layer::of(&[
                plain(&sbom_path, sbom),
                File {
                    path: program.name,
                    mode: 0o755,
                    content: binary,
                },
            ])?,
        ];
        let mut image = Self {
            arch,
            manifest: Vec::new(),
            blobs: BTreeMap::new(),
        };
        let labels = json!({
            "org.opencontainers.image.title": program.title,
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.revision": source.revision,
            "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        });
        let created = timestamp(source.time)?;
        let config = image.add(&config(program, arch, &created, &labels, &layers))?;
        let layers: Vec<Value> = layers
            .into_iter()
            .map(|layer| image.add_blob(LAYER, layer.compressed))
            .collect();
        image.manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
            "annotations": labels,
        }))?;
        Ok(image)
    }

    /// Digest of the manifest, by which the image can be pulled.
    pub(super) fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// Bytes that a node downloads.
    pub(super) fn size(&self) -> usize {
        self.manifest.len() + self.blobs.values().map(Vec::len).sum::<usize>()
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": MANIFEST,
            "digest": self.digest(),
            "size": self.manifest.len(),
            "platform": { "architecture": self.arch.name(), "os": "linux" },
        })
    }

    fn add(&mut self, config: &Value) -> anyhow::Result<Value> {
        Ok(self.add_blob(CONFIG, serde_json::to_vec(config)?))
    }

    fn add_blob(&mut self, media_type: &str, blob: Vec<u8>) -> Value {
        let descriptor = json!({ "mediaType": media_type, "digest": digest(&blob), "size": blob.len() });
        self.blobs.insert(digest(&blob), blob);
        descriptor
    }
}

fn config(program: &Program, arch: Arch, created: &str, labels: &Value, layers: &[Layer; 2]) -> Value {
    json!({
        "created": created,
        "architecture": arch.name(),
        "os": "linux",
        "config": {
            "User": program.user,
            "Entrypoint": [format!("/{}", program.name)],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": layers.each_ref().map(|layer| &layer.diff_id) },
        "history": [
            { "created": created, "comment": "certificate authorities" },
            { "created": created, "comment": program.title },
        ],
    })
}

/// All images of a program in one archive: the only one under the program's name, or an index of several.
pub(super) fn archive(program: &Program, images: &[&Image]) -> anyhow::Result<Vec<u8>> {
    let version = env!("CARGO_PKG_VERSION");
    let index_of = |manifests: Vec<Value>| {
        serde_json::to_vec(&json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests }))
    };
    let several = index_of(images.iter().map(|image| image.descriptor()).collect())?;
    let mut named: Vec<(String, &[u8])> = Vec::new();
    let mut top = if let [one] = images {
        one.descriptor()
    } else {
        named.push((blob_path(&digest(&several)), &several));
        json!({ "mediaType": INDEX, "digest": digest(&several), "size": several.len() })
    };
    top["annotations"] = json!({
        // The long form of the name without a registry, as runtimes keep it.
        "io.containerd.image.name": format!("docker.io/library/{}:{version}", program.name),
        "org.opencontainers.image.ref.name": version,
    });
    let index = index_of(vec![top])?;
    named.push(("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#));
    named.push(("index.json".to_owned(), &index));
    for image in images {
        named.push((blob_path(&image.digest()), &image.manifest));
        named.extend(
            image
                .blobs
                .iter()
                .map(|(digest, blob)| (blob_path(digest), blob.as_slice())),
        );
    }
    // The layer of certificates is the same for all.
    named.sort();
    named.dedup();
    let files: Vec<File<'_>> = named.iter().map(|(path, content)| plain(path, content)).collect();
    pack(&files)
}

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn plain<'a>(path: &'a str, content: &'a [u8]) -> File<'a> {
    File {
        path,
        mode: 0o644,
        content,
    }
}

/// Mozilla's list, of the version that the lock file names.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.extend(line.iter().map(|&byte| char::from(byte)));
            text.push('\n');
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}

fn timestamp(seconds: u64) -> anyhow::Result<String> {
    Ok(jiff::Timestamp::from_second(seconds.try_into()?)?.to_string())
}
