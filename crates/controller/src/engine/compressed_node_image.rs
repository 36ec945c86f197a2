//! How a NodeImage is kept: as compressed JSON text, until it is looked at. Ten thousand nodes with ten
//! entries each are four times as large as values as they are as text, the text repeats itself from entry to entry, and all
//! but a few of them are at rest.
//!
//! Looking decompresses it ([`CompressedNodeImage::as_ref`]); code that looked at many, or is done with one, compresses it
//! again ([`CompressedNodeImage::compress`]). Metadata, and hashes of owners and of final results, are at hand either way:
//! most changes of a NodeImage are found to bring nothing new without looking at what was there before. Spec and status are
//! compressed apart, for most changes are of the status alone.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::sync::Arc;

use kube::core::ObjectMeta;
use larder_api::contract::json_bytes;
use larder_api::{NodeImage, NodeImageStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    /// Hash of what the spec depends on in the status: final results, and the key that credentials are sealed to.
    status_hash: u64,
    /// Whether another agent writes the same status.
    has_conflict: bool,
    /// Size and hash of the spec as JSON.
    spec: (usize, u64),
    /// Size of the whole object as JSON.
    bytes: usize,
    /// Spec and status as compressed JSON; none while they differ from what is decompressed.
    compressed_spec: Option<Arc<[u8]>>,
    compressed_status: Option<Box<[u8]>>,
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
        self.owners().contains(&hash_of(owner))
    }

    /// Whether there is a final result, or a conflict between agents, that was not there before.
    pub(super) fn has_news(&self, before: &Self) -> bool {
        let (Some(kept), Some(before)) = (&self.kept, &before.kept) else {
            return false;
        };
        let is_new = |result: &u64| !before.results.contains(result);
        kept.results.iter().any(is_new) || kept.has_conflict && !before.has_conflict
    }

    /// Whether the spec that the NodeImage should have may be another one than with `before`: what it depends on in the object
    /// differs. The bytes of a pull, for example, decide nothing.
    pub(super) fn decides_otherwise(&self, before: &Self) -> bool {
        let (Some(kept), Some(before)) = (&self.kept, &before.kept) else {
            return self.kept.is_some() != before.kept.is_some();
        };
        let (now, then) = (&kept.metadata, &before.metadata);
        (&now.uid, now.generation) != (&then.uid, then.generation)
            || (&now.labels, &now.deletion_timestamp) != (&then.labels, &then.deletion_timestamp)
            || kept.status_hash != before.status_hash
    }

    /// Whether an entry has an owner that no entry of `other` has.
    pub(super) fn has_owner_beyond(&self, other: &Self) -> bool {
        self.owners().iter().any(|owner| !other.owners().contains(owner))
    }

    fn owners(&self) -> &[u64] {
        self.kept.as_ref().map_or(&[], |kept| &kept.owners)
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
        let spec = size_and_hash(&object.spec);
        let known = self.kept.as_ref().filter(|kept| kept.spec == spec);
        let status = object.status.as_ref();
        let agent = status.and_then(|status| status.agent.as_ref());
        let kept = Kept {
            metadata: object.metadata.clone(),
            owners: owners.collect(),
            results: status.map(final_results).unwrap_or_default(),
            status_hash: hash_of(status.map(decisive)),
            has_conflict: agent.is_some_and(|agent| agent.conflicts_with.is_some()),
            spec,
            bytes: spec.0 + json_bytes(&object.metadata) + status.map_or(0, json_bytes),
            compressed_spec: known.and_then(|kept| kept.compressed_spec.clone()),
            compressed_status: None,
            decompressed: OnceCell::from(Box::new(object)),
        };
        let kept = self.kept.replace(Box::new(kept));
        Self { kept }
    }

    /// Its size as JSON, when it was put in, but for some bytes that all NodeImages have.
    pub(super) fn bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes)
    }

    /// Changes the status of the object, and nothing else.
    pub(super) fn change_status(&mut self, change: impl FnOnce(&mut NodeImage)) {
        if let Some(kept) = &mut self.kept {
            let mut object = kept.decompressed.take().unwrap_or_else(|| Box::new(kept.decompress()));
            change(&mut object);
            kept.compressed_status = None;
            kept.decompressed = OnceCell::from(object);
        }
    }

    #[cfg(test)]
    pub(super) fn is_compressed(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.decompressed.get().is_none())
    }

    /// Compresses the object.
    pub(super) fn compress(&mut self) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        let Some(object) = kept.decompressed.take() else {
            return;
        };
        if kept.compressed_spec.is_none() {
            kept.compressed_spec = compressed(&object.spec).map(Arc::from);
        }
        if kept.compressed_status.is_none() {
            kept.compressed_status = compressed(&object.status).map(Vec::into_boxed_slice);
        }
        // Cannot happen with these types; then it stays as it is.
        if kept.compressed_spec.is_none() || kept.compressed_status.is_none() {
            kept.decompressed = OnceCell::from(object);
        }
    }
}

impl Kept {
    fn decompress(&self) -> NodeImage {
        let mut object = NodeImage::new("", decompressed(self.compressed_spec.as_deref()));
        object.metadata = self.metadata.clone();
        object.status = decompressed(self.compressed_status.as_deref());
        object
    }
}

fn compressed(value: &impl Serialize) -> Option<Vec<u8>> {
    let text = serde_json::to_vec(value).ok()?;
    Some(lz4_flex::compress_prepend_size(&text))
}

#[expect(
    clippy::expect_used,
    reason = "the text was written by `compressed` from the same types"
)]
fn decompressed<T: DeserializeOwned>(compressed: Option<&[u8]>) -> T {
    let compressed = compressed.expect("invariant: compressed or decompressed");
    let text = lz4_flex::decompress_size_prepended(compressed).expect("invariant: what was compressed can be read");
    serde_json::from_slice(&text).expect("invariant: what was written can be read")
}

/// Size and hash of a value as JSON.
fn size_and_hash(value: &impl Serialize) -> (usize, u64) {
    struct Digest(usize, DefaultHasher);

    impl io::Write for Digest {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            self.1.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut digest = Digest(0, DefaultHasher::new());
    match serde_json::to_writer(&mut digest, value) {
        Ok(()) => (digest.0, digest.1.finish()),
        // Cannot happen with these types.
        Err(_) => (usize::MAX, 0),
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

/// What the spec depends on in a status.
fn decisive(status: &NodeImageStatus) -> impl Hash {
    let agent = status.agent.as_ref();
    let key = agent.map(|agent| (agent.public_key.clone(), agent.conflicts_with.clone()));
    let images = status.image_statuses.iter();
    let results = images.flat_map(|(name, image)| image.tags.iter().map(move |result| (name, result)));
    let succeeded = results.filter_map(|(name, result)| {
        let version = result.last_succeeded.as_ref()?.version;
        Some(hash_of((name, &result.tag, version)))
    });
    (key, final_results(status), succeeded.collect::<Vec<_>>())
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use larder_api::node_image::{AgentStatus, ImageTagStatus};
    use rstest::rstest;
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
        image.change_status(|object| object.status = None);
        image.compress();
        assert_eq!(image.as_ref().unwrap().status, None);
        assert_eq!(image.as_ref().unwrap().spec, object().spec);
    }

    #[test]
    fn a_result_is_news_once() {
        let image_of = |object: NodeImage| {
            let mut image = CompressedNodeImage::default();
            image.replace(object);
            image
        };
        let (mut waiting, mut again, mut conflict) = (object(), object(), object());
        result(&mut waiting).phase = "Waiting".to_owned();
        result(&mut again).version = Some(4);
        agent(&mut conflict).conflicts_with = Some("another".to_owned());
        let [known, waiting, again, conflict] = [object(), waiting, again, conflict].map(image_of);
        assert!(!known.has_news(&image_of(object())));
        assert!(known.has_news(&waiting) && !waiting.has_news(&known));
        assert!(again.has_news(&known));
        assert!(conflict.has_news(&known) && !known.has_news(&conflict));
    }

    #[rstest]
    #[case::nothing(|_: &mut NodeImage| {}, false)]
    #[case::bytes(|object: &mut NodeImage| result(object).bytes_done = Some(7), false)]
    #[case::last_seen(|object: &mut NodeImage| agent(object).last_seen = Some(Time(jiff::Timestamp::UNIX_EPOCH)), false)]
    #[case::another_result(|object: &mut NodeImage| result(object).phase = "Succeeded".to_owned(), true)]
    #[case::a_result_that_is_gone(|object: &mut NodeImage| result(object).phase = "Pulling".to_owned(), true)]
    #[case::a_new_key(|object: &mut NodeImage| agent(object).public_key = Some("key".to_owned()), true)]
    #[case::another_spec(|object: &mut NodeImage| object.metadata.generation = Some(4), true)]
    #[case::other_labels(|object: &mut NodeImage| object.metadata.labels = None, true)]
    #[case::another_object(|object: &mut NodeImage| object.metadata.uid = Some("v".to_owned()), true)]
    #[case::no_status(|object: &mut NodeImage| object.status = None, true)]
    fn what_the_spec_depends_on(#[case] change: fn(&mut NodeImage), #[case] decides: bool) {
        let (mut before, mut after) = (CompressedNodeImage::default(), CompressedNodeImage::default());
        let mut changed = object();
        change(&mut changed);
        before.replace(object());
        after.replace(changed);
        assert_eq!(after.decides_otherwise(&before), decides);
        assert!(after.decides_otherwise(&CompressedNodeImage::default()));
    }

    fn result(object: &mut NodeImage) -> &mut ImageTagStatus {
        let images = &mut object.status.as_mut().unwrap().image_statuses;
        &mut images.get_mut("nginx").unwrap().tags[0]
    }

    fn agent(object: &mut NodeImage) -> &mut AgentStatus {
        object.status.as_mut().unwrap().agent.as_mut().unwrap()
    }

    #[test]
    fn an_owner_that_left_is_noticed() {
        let (mut known, mut empty) = (CompressedNodeImage::default(), CompressedNodeImage::default());
        known.replace(object());
        empty.replace(NodeImage::default());
        assert!(known.has_owner_beyond(&empty));
        assert!(!empty.has_owner_beyond(&known) && !known.has_owner_beyond(&known));
    }
}
