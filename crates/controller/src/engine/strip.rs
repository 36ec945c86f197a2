//! What is kept of a NodeImage: what decisions need, and nothing else. There may be ten thousand, with a hundred thousand
//! entries.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use larder_api::NodeImage;

/// Lets go of metadata that nothing is decided by.
pub(super) fn forget_needless(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.annotations = None;
}

/// Results are kept without their texts: nothing is decided by them, nothing writes them back, and they are most of a
/// status. An entry whose owner quotes nodes in its own status keeps what that takes; `is_quoted` tells by the owner.
pub(super) fn forget_texts(object: &mut NodeImage, is_quoted: impl Fn(&ObjectReference) -> bool) {
    let spec = &object.spec;
    let keeps_texts = |name: &str, tag: &str| {
        let tags = spec.images.get(name).map_or(&[][..], |image| &image.tags);
        let mut owners = tags
            .iter()
            .filter(|entry| entry.tag == tag)
            .flat_map(|entry| &entry.owner_references);
        owners.any(&is_quoted)
    };
    let statuses = object.status.iter_mut().flat_map(|status| &mut status.image_statuses);
    for (name, tag) in statuses.flat_map(|(name, status)| status.tags.iter_mut().map(move |tag| (name, tag))) {
        tag.image_id = None;
        tag.digest = None;
        if !keeps_texts(name, &tag.tag) {
            tag.message = None;
            tag.start_time = None;
        }
        if let Some(success) = &mut tag.last_succeeded {
            success.digest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_planner::claim::claim_view;
    use serde_json::json;

    #[test]
    fn nothing_that_is_decided_by_is_lost() {
        let text = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
            "metadata": {"name": "a", "annotations": {"x": "y"}, "managedFields": []},
            "spec": {"images": {"nginx": {"tags": [{
                "tag": "1", "version": 3, "pullPolicy": {"ttlSecondsAfterFinished": 1},
                "claims": [{"uid": "u", "version": 3}], "ownerReferences": [{"uid": "u"}],
            }]}}},
            "status": {"imageStatuses": {"nginx": {"tags": [{
                "tag": "1", "version": 3, "phase": "Failed", "reason": "Dns", "message": "a long story", "digest": "sha256:…",
                "completionTime": "2026-01-01T00:00:00Z", "bytesTotal": 9, "bytesDone": 4, "imageID": "nginx@sha256:…",
            }]}}},
        })
        .to_string();
        let before: NodeImage = serde_json::from_str(&text).unwrap();
        let mut after = before.clone();
        forget_needless(&mut after.metadata);
        forget_texts(&mut after, |_| false);
        assert_eq!(after.spec, before.spec);
        let image = larder_model::ImageRef::parse("nginx:1").unwrap();
        assert_eq!(claim_view(&after, &image, "u"), claim_view(&before, &image, "u"));
        assert_eq!(after.result("nginx", "1").unwrap().message, None);
        assert_eq!(
            (&after.metadata.annotations, &after.metadata.managed_fields),
            (&None, &None)
        );
    }
}
