//! An image as one file: the OCI image layout in a tar archive, with the name that runtimes shall give to it.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Blob, Image};

pub(super) fn of(image: &Image, name: &str) -> Vec<u8> {
    let mut descriptor = image.manifest.descriptor();
    descriptor["annotations"] = json!({ "io.containerd.image.name": name });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    });
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    add(&mut archive, "index.json", index.to_string().as_bytes());
    let mut there = BTreeSet::new();
    for blob in image.layers.iter().chain([&image.config, &image.manifest]) {
        if there.insert(blob.digest()) {
            add(&mut archive, &place(blob), blob.bytes());
        }
    }
    finish(archive)
}

fn place(blob: &Blob) -> String {
    format!("blobs/{}", blob.digest().replace(':', "/"))
}

#[expect(
    clippy::expect_used,
    reason = "writing to memory cannot fail; paths are short and relative"
)]
fn add(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive
        .append_data(&mut header, path, content)
        .expect("invariant: a file fits into an archive in memory");
}

#[expect(clippy::expect_used, reason = "writing to memory cannot fail")]
fn finish(archive: tar::Builder<Vec<u8>>) -> Vec<u8> {
    archive
        .into_inner()
        .expect("invariant: an archive in memory can be finished")
}

#[cfg(test)]
mod tests {
    use crate::{Layer, Recipe};

    #[test]
    fn an_archive_names_the_image_and_holds_every_blob_once() {
        let image = Recipe::new([Layer::random(1, 10), Layer::random(1, 10)]).build();
        let bytes = image.archive("larder.invalid/app:1");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(all, 2 + 3, "layout, index, one layer, configuration, manifest");
        assert!(String::from_utf8_lossy(&bytes).contains("larder.invalid/app:1"));
    }
}
