//! How a NodeImage is kept: as compressed JSON text, until it is looked at. Ten thousand nodes with ten
//! entries each are four times as large as values as they are as text, the text repeats itself from entry to entry, and all
//! but a few of them are at rest.
//!
//! Looking decompresses it ([`CompressedNodeImage::as_ref`]); code that looked at many, or is done with one, compresses it
//! again ([`CompressedNodeImage::compress`]). Metadata and the uids of owners are at hand either way.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::core::ObjectMeta;
use larder_api::{NodeImage, NodeImageSpec, NodeImageStatus};

/// A NodeImage, or none.
#[derive(Default)]
pub(super) struct CompressedNodeImage {
    kept: Option<Box<Kept>>,
}

struct Kept {
    metadata: ObjectMeta,
    /// Hashes of the uids of all owners of entries.
    owners: Box<[u64]>,
    /// Spec and status as compressed JSON; none while they differ from what is decompressed.
    compressed: Option<Box<[u8]>>,
    decompressed: OnceCell<Box<NodeImage>>,
}

impl CompressedNodeImage {
    pub(super) fn is_some(&self) -> bool {
        self.kept.is_some()
    }

    pub(super) fn is_none(&self) -> bool {
        self.kept.is_none()
    }

    /// The metadata, without decompressing the rest.
    pub(super) fn metadata(&self) -> Option<&ObjectMeta> {
        self.kept.as_ref().map(|kept| &kept.metadata)
    }

    /// Whether an entry may name this owner. Rarely yes for one that none names, never no for one that some does.
    pub(super) fn may_name(&self, owner: &str) -> bool {
        let hash = hash_of(owner);
        self.kept.as_ref().is_some_and(|kept| kept.owners.contains(&hash))
    }

    /// The whole object.
    pub(super) fn as_ref(&self) -> Option<&NodeImage> {
        let kept = self.kept.as_ref()?;
        Some(kept.decompressed.get_or_init(|| Box::new(kept.decompress())))
    }

    /// Puts another object in, and gives back the old one.
    pub(super) fn replace(&mut self, object: NodeImage) -> Option<NodeImage> {
        let before = self.take();
        let tags = object.spec.images.values().flat_map(|image| &image.tags);
        let owners = tags.flat_map(|entry| &entry.owner_references);
        let owners = owners.filter_map(|owner| owner.uid.as_deref()).map(hash_of);
        self.kept = Some(Box::new(Kept {
            metadata: object.metadata.clone(),
            owners: owners.collect(),
            compressed: None,
            decompressed: OnceCell::from(Box::new(object)),
        }));
        before
    }

    /// Takes the object out.
    pub(super) fn take(&mut self) -> Option<NodeImage> {
        let mut kept = *self.kept.take()?;
        let decompressed = kept.decompressed.take();
        Some(decompressed.map_or_else(|| kept.decompress(), |object| *object))
    }

    /// Changes the object, but not its metadata nor who owns its entries.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut NodeImage)) {
        if let Some(kept) = &mut self.kept {
            let mut object = kept.decompressed.take().unwrap_or_else(|| Box::new(kept.decompress()));
            change(&mut object);
            kept.compressed = None;
            kept.decompressed = OnceCell::from(object);
        }
    }

    #[cfg(test)]
    pub(super) fn is_compressed(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.decompressed.get().is_none())
    }

    /// Compresses the object.
    pub(super) fn compress(&mut self) {
        if let Some(kept) = &mut self.kept
            && let Some(object) = kept.decompressed.take()
            && kept.compressed.is_none()
        {
            let text = serde_json::to_vec(&(&object.spec, &object.status));
            match text {
                Ok(text) => kept.compressed = Some(lz4_flex::compress_prepend_size(&text).into_boxed_slice()),
                // Cannot happen with these types; then it stays as it is.
                Err(_) => kept.decompressed = OnceCell::from(object),
            }
        }
    }
}

impl Kept {
    #[expect(
        clippy::expect_used,
        reason = "the text was written by `compress` from the same types"
    )]
    fn decompress(&self) -> NodeImage {
        let compressed = self
            .compressed
            .as_deref()
            .expect("invariant: compressed or decompressed");
        let text = lz4_flex::decompress_size_prepended(compressed).expect("invariant: what was compressed can be read");
        let (spec, status): (NodeImageSpec, Option<NodeImageStatus>) =
            serde_json::from_slice(&text).expect("invariant: what was written can be read");
        let mut object = NodeImage::new("", spec);
        object.metadata = self.metadata.clone();
        object.status = status;
        object
    }
}

fn hash_of(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> NodeImage {
        let text = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
            "metadata": {"name": "a", "uid": "u", "generation": 3, "labels": {"x": "y"}},
            "spec": {"images": {"nginx": {"tags": [{
                "tag": "1", "version": 3, "createdAt": "2026-01-01T00:00:00Z", "pullPolicy": {"ttlSecondsAfterFinished": 1},
                "claims": [{"uid": "job", "version": 3}], "ownerReferences": [{"uid": "job", "kind": "ImagePullJob"}],
            }]}}},
            "status": {"desired": 1, "agent": {"version": "1"}, "imageStatuses": {"nginx": {"tags": [
                {"tag": "1", "version": 3, "phase": "Failed", "reason": "Dns", "completionTime": "2026-01-01T00:00:00Z"},
            ]}}},
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn what_is_folded_up_is_found_again() {
        let mut image = CompressedNodeImage::default();
        assert!(image.is_none() && image.as_ref().is_none());
        assert_eq!(image.replace(object()), None);
        for _ in 0..2 {
            image.compress();
            assert_eq!(image.metadata(), Some(&object().metadata));
            assert!(image.may_name("job") && !image.may_name("other"));
            assert_eq!(image.as_ref(), Some(&object()));
        }
        image.compress();
        assert_eq!(image.replace(NodeImage::default()), Some(object()));
        assert!(!image.may_name("job"));
    }

    #[test]
    fn a_change_is_not_lost_when_it_is_folded_up() {
        let mut image = CompressedNodeImage::default();
        image.replace(object());
        image.compress();
        image.change(|object| object.spec.images.clear());
        image.compress();
        assert!(image.as_ref().unwrap().spec.images.is_empty());
        image.compress();
        assert!(image.take().unwrap().spec.images.is_empty());
        assert!(image.is_none());
    }
}
