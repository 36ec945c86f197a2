//! How a NodeImage is kept: as compressed JSON text, until it is looked at. Ten thousand nodes with ten
//! entries each are four times as large as values as they are as text, the text repeats itself from entry to entry, and all
//! but a few of them are at rest.
//!
//! Looking decompresses it ([`CompressedNodeImage::as_ref`]); code that looked at many, or is done with one, compresses it
//! again ([`CompressedNodeImage::compress`]). Metadata, and hashes of owners and of final results, are at hand either way:
//! most changes of a NodeImage are found to bring nothing new without looking at what was there before.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash, Hasher as _};

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
    /// Hashes of the final results: image, version and phase.
    results: Box<[u64]>,
    /// Whether another agent writes the same status.
    has_conflict: bool,
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

    /// Whether there is a final result, or a conflict between agents, that was not there before.
    pub(super) fn has_news(&self, before: &Self) -> bool {
        let (Some(kept), Some(before)) = (&self.kept, &before.kept) else {
            return false;
        };
        let is_new = |result: &u64| !before.results.contains(result);
        kept.results.iter().any(is_new) || kept.has_conflict && !before.has_conflict
    }

    /// Whether an owner of an entry is not among the owners that were there before.
    pub(super) fn names_others(&self, than: &Self) -> bool {
        let owners = |image: &Self| image.kept.as_ref().map_or(Box::default(), |kept| kept.owners.clone());
        let known = owners(than);
        owners(self).iter().any(|owner| !known.contains(owner))
    }

    /// The whole object.
    pub(super) fn as_ref(&self) -> Option<&NodeImage> {
        let kept = self.kept.as_ref()?;
        Some(kept.decompressed.get_or_init(|| Box::new(kept.decompress())))
    }

    /// Puts another object in, and gives back the old one.
    pub(super) fn replace(&mut self, object: NodeImage) -> Self {
        let tags = object.spec.images.values().flat_map(|image| &image.tags);
        let owners = tags.flat_map(|entry| &entry.owner_references);
        let owners = owners.filter_map(|owner| owner.uid.as_deref()).map(hash_of);
        let status = object.status.as_ref();
        let agent = status.and_then(|status| status.agent.as_ref());
        let kept = Kept {
            metadata: object.metadata.clone(),
            owners: owners.collect(),
            results: status.map(final_results).unwrap_or_default(),
            has_conflict: agent.is_some_and(|agent| agent.conflicts_with.is_some()),
            compressed: None,
            decompressed: OnceCell::from(Box::new(object)),
        };
        let kept = self.kept.replace(Box::new(kept));
        Self { kept }
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

fn final_results(status: &NodeImageStatus) -> Box<[u64]> {
    let images = status.image_statuses.iter();
    let results = images.flat_map(|(name, image)| image.tags.iter().map(move |result| (name, result)));
    let ended = results.filter(|(_, result)| result.phase().is_final());
    ended
        .map(|(name, result)| hash_of((name, &result.tag, result.version(), &result.phase)))
        .collect()
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_api::node_image::ImageTagStatus;
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
        assert!(image.replace(object()).is_none());
        for _ in 0..2 {
            image.compress();
            assert_eq!(image.metadata(), Some(&object().metadata));
            assert!(image.may_name("job") && !image.may_name("other"));
            assert_eq!(image.as_ref(), Some(&object()));
        }
        image.compress();
        assert_eq!(image.replace(NodeImage::default()).as_ref(), Some(&object()));
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
    }

    #[test]
    fn a_result_is_news_once() {
        let image_of = |object: NodeImage| {
            let mut image = CompressedNodeImage::default();
            image.replace(object);
            image
        };
        let (mut waiting, mut again, mut conflict) = (object(), object(), object());
        let result = |object: &mut NodeImage, change: &dyn Fn(&mut ImageTagStatus)| {
            let images = &mut object.status.as_mut().unwrap().image_statuses;
            change(&mut images.get_mut("nginx").unwrap().tags[0]);
        };
        result(&mut waiting, &|result| result.phase = "Waiting".to_owned());
        result(&mut again, &|result| result.version = Some(4));
        let agent = conflict.status.as_mut().unwrap().agent.as_mut().unwrap();
        agent.conflicts_with = Some("another".to_owned());
        let [known, waiting, again, conflict] = [object(), waiting, again, conflict].map(image_of);
        assert!(!known.has_news(&image_of(object())));
        assert!(known.has_news(&waiting) && !waiting.has_news(&known));
        assert!(again.has_news(&known));
        assert!(conflict.has_news(&known) && !known.has_news(&conflict));
    }

    #[test]
    fn an_owner_that_left_is_noticed() {
        let (mut known, mut empty) = (CompressedNodeImage::default(), CompressedNodeImage::default());
        known.replace(object());
        empty.replace(NodeImage::default());
        assert!(known.names_others(&empty) && !empty.names_others(&known) && !known.names_others(&known));
    }
}
