//! How a NodeImage is kept: folded up, as compressed JSON text, until somebody looks at it. Ten thousand nodes with ten
//! entries each are four times as large as values as they are as text, the text repeats itself from entry to entry, and all
//! but a few of them are at rest.
//!
//! Looking unfolds it ([`Shelf::as_ref`]); whoever looked at many, or is done with one, folds it up again
//! ([`Index::fold`], [`Index::fold_later`]). Metadata and the uids of owners are at hand either way.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::core::ObjectMeta;
use larder_api::{NodeImage, NodeImageSpec, NodeImageStatus};
use larder_planner::NodeKey;

use super::Index;

/// NodeImages that stay unfolded: those that something happens to at the moment.
const UNFOLDED: usize = 256;

/// A place for a NodeImage.
#[derive(Default)]
pub(super) struct Shelf {
    held: Option<Box<Held>>,
}

struct Held {
    metadata: ObjectMeta,
    /// Hashes of the uids of all owners of entries.
    owners: Box<[u64]>,
    /// Spec and status as compressed JSON; none while they differ from what is unfolded.
    folded: Option<Box<[u8]>>,
    unfolded: OnceCell<Box<NodeImage>>,
}

impl Shelf {
    pub(super) fn is_some(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn is_none(&self) -> bool {
        self.held.is_none()
    }

    /// The metadata, without unfolding the rest.
    pub(super) fn metadata(&self) -> Option<&ObjectMeta> {
        self.held.as_ref().map(|held| &held.metadata)
    }

    /// Whether an entry may name this owner. Rarely yes for one that none names, never no for one that some does.
    pub(super) fn may_name(&self, owner: &str) -> bool {
        let hash = hash_of(owner);
        self.held.as_ref().is_some_and(|held| held.owners.contains(&hash))
    }

    /// The whole object.
    pub(super) fn as_ref(&self) -> Option<&NodeImage> {
        let held = self.held.as_ref()?;
        Some(held.unfolded.get_or_init(|| Box::new(held.unfold())))
    }

    /// Puts another object in, and gives back the old one.
    pub(super) fn replace(&mut self, object: NodeImage) -> Option<NodeImage> {
        let before = self.take();
        let tags = object.spec.images.values().flat_map(|image| &image.tags);
        let owners = tags.flat_map(|entry| &entry.owner_references);
        let owners = owners.filter_map(|owner| owner.uid.as_deref()).map(hash_of);
        self.held = Some(Box::new(Held {
            metadata: object.metadata.clone(),
            owners: owners.collect(),
            folded: None,
            unfolded: OnceCell::from(Box::new(object)),
        }));
        before
    }

    /// Takes the object out.
    pub(super) fn take(&mut self) -> Option<NodeImage> {
        let mut held = *self.held.take()?;
        let unfolded = held.unfolded.take();
        Some(unfolded.map_or_else(|| held.unfold(), |object| *object))
    }

    /// Changes the object, but not its metadata nor who owns its entries.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut NodeImage)) {
        if let Some(held) = &mut self.held {
            let mut object = held.unfolded.take().unwrap_or_else(|| Box::new(held.unfold()));
            change(&mut object);
            held.folded = None;
            held.unfolded = OnceCell::from(object);
        }
    }

    #[cfg(test)]
    pub(super) fn is_folded(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.unfolded.get().is_none())
    }

    /// Folds the object up.
    pub(super) fn fold(&mut self) {
        if let Some(held) = &mut self.held
            && let Some(object) = held.unfolded.take()
            && held.folded.is_none()
        {
            let text = serde_json::to_vec(&(&object.spec, &object.status));
            match text {
                Ok(text) => held.folded = Some(lz4_flex::compress_prepend_size(&text).into_boxed_slice()),
                // Cannot happen with these types; then it stays as it is.
                Err(_) => held.unfolded = OnceCell::from(object),
            }
        }
    }
}

impl Held {
    #[expect(clippy::expect_used, reason = "the text was written by `fold` from the same types")]
    fn unfold(&self) -> NodeImage {
        let folded = self.folded.as_deref().expect("invariant: folded or unfolded");
        let text = lz4_flex::decompress_size_prepended(folded).expect("invariant: what was compressed can be read");
        let (spec, status): (NodeImageSpec, Option<NodeImageStatus>) =
            serde_json::from_slice(&text).expect("invariant: what was written can be read");
        let mut object = NodeImage::new("", spec);
        object.metadata = self.metadata.clone();
        object.status = status;
        object
    }
}

impl Index {
    /// A node was looked at: its NodeImage is folded up when enough others were looked at after it.
    pub(super) fn fold_later(&mut self, node: &NodeKey) {
        self.unfolded.push_back(node.clone());
        while UNFOLDED < self.unfolded.len()
            && let Some(oldest) = self.unfolded.pop_front()
        {
            self.fold(&oldest);
        }
    }

    /// Folds a node's NodeImage up.
    pub(super) fn fold(&mut self, node: &NodeKey) {
        if let Some(record) = self.nodes.get_mut(node) {
            record.image.fold();
        }
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
        let mut shelf = Shelf::default();
        assert!(shelf.is_none() && shelf.as_ref().is_none());
        assert_eq!(shelf.replace(object()), None);
        for _ in 0..2 {
            shelf.fold();
            assert_eq!(shelf.metadata(), Some(&object().metadata));
            assert!(shelf.may_name("job") && !shelf.may_name("other"));
            assert_eq!(shelf.as_ref(), Some(&object()));
        }
        shelf.fold();
        assert_eq!(shelf.replace(NodeImage::default()), Some(object()));
        assert!(!shelf.may_name("job"));
    }

    #[test]
    fn a_change_is_not_lost_when_it_is_folded_up() {
        let mut shelf = Shelf::default();
        shelf.replace(object());
        shelf.fold();
        shelf.change(|object| object.spec.images.clear());
        shelf.fold();
        assert!(shelf.as_ref().unwrap().spec.images.is_empty());
        shelf.fold();
        assert!(shelf.take().unwrap().spec.images.is_empty());
        assert!(shelf.is_none());
    }
}
