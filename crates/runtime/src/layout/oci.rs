//! How an image is shown to readers of the folder. Pure: documents in, documents out.
//!
//! `skopeo` and others who read image layouts understand OCI manifests alone. An image that its registry has in
//! Docker's form is therefore shown by a second manifest in OCI's form, which names the same blobs. What the registry
//! has stays in the folder too, and its digest stays the image's.

use bytes::Bytes;
use larder_registry::manifest::{Descriptor, OCI_INDEX, OCI_MANIFEST, PlatformImage};
use serde_json::Value;

use super::index::Target;
use crate::sha256::sha256_of;

/// Docker's names of blobs, and OCI's for the same bytes.
const SAME_BYTES: [(&str, &str); 5] = [
    (
        "application/vnd.docker.container.image.v1+json",
        "application/vnd.oci.image.config.v1+json",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.oci.image.layer.v1.tar",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+gzip",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.oci.image.layer.v1.tar+zstd",
    ),
    (
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    ),
];

pub(super) struct Shown {
    pub(super) target: Target,
    /// The manifest in OCI's form, where the registry has another one.
    pub(super) converted: Option<Bytes>,
}

/// What the folder shows of a pulled image. `None`: its manifest is no JSON object.
pub(super) fn shown(image: &PlatformImage) -> Option<Shown> {
    let source = image.root()?.clone();
    if matches!(source.media_type.as_str(), OCI_MANIFEST | OCI_INDEX) {
        let target = Target {
            shown: source.clone(),
            source,
        };
        return Some(Shown {
            target,
            converted: None,
        });
    }
    let bytes = Bytes::from(converted(&image.documents.last()?.bytes)?);
    let shown = Descriptor {
        media_type: OCI_MANIFEST.to_owned(),
        digest: sha256_of(&bytes),
        size: bytes.len() as u64,
        platform: None,
    };
    Some(Shown {
        target: Target { shown, source },
        converted: Some(bytes),
    })
}

fn converted(manifest: &[u8]) -> Option<Vec<u8>> {
    let mut manifest: Value = serde_json::from_slice(manifest).ok()?;
    manifest
        .as_object_mut()?
        .insert("mediaType".to_owned(), Value::from(OCI_MANIFEST));
    rename(manifest.get_mut("config")?);
    manifest.get_mut("layers")?.as_array_mut()?.iter_mut().for_each(rename);
    serde_json::to_vec(&manifest).ok()
}

fn rename(blob: &mut Value) {
    let docker = blob["mediaType"].as_str().unwrap_or_default();
    if let Some((_, oci)) = SAME_BYTES.iter().find(|(known, _)| *known == docker) {
        blob["mediaType"] = Value::from(*oci);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_names_change() {
        let docker = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:c", "size": 1},
            "layers": [
                {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": "sha256:a", "size": 2},
                {"mediaType": "application/x-unknown", "digest": "sha256:b", "size": 3},
            ],
        });
        let oci: Value = serde_json::from_slice(&converted(docker.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(
            oci,
            json!({
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:c", "size": 1},
                "layers": [
                    {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:a", "size": 2},
                    {"mediaType": "application/x-unknown", "digest": "sha256:b", "size": 3},
                ],
            })
        );
    }

    #[test]
    fn what_is_no_manifest_is_not_converted() {
        for text in ["[]", "{}", "x", r#"{"config":{}}"#] {
            assert!(converted(text.as_bytes()).is_none(), "{text}");
        }
    }
}
