//! The two writes that a NodeImage gets: the controller's to the spec, the agent's to the status.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::node_image::{NodeImage, NodeImageSpec, NodeImageStatus};

/// A JSON patch that turns the spec of `current` into `wanted`, or None if they are the same.
///
/// It is guarded by the generation, not by the resource version: an agent's status write in between does not make it fail,
/// another spec write does. It names only what changed, so that the cost of a write follows the change.
pub fn spec_patch(current: &NodeImage, wanted: &NodeImageSpec) -> Option<Value> {
    let mut operations = Vec::new();
    let images = &current.spec.images;
    if images.is_empty() && !wanted.images.is_empty() {
        operations.push(json!({ "op": "add", "path": "/spec/images", "value": json_of(&wanted.images) }));
    } else {
        for name in images.keys().filter(|name| !wanted.images.contains_key(*name)) {
            operations.push(json!({ "op": "remove", "path": format!("/spec/images/{}", escaped(name)) }));
        }
        for (name, image) in wanted
            .images
            .iter()
            .filter(|(name, image)| images.get(*name) != Some(*image))
        {
            let path = format!("/spec/images/{}", escaped(name));
            operations.push(json!({ "op": "add", "path": path, "value": json_of(image) }));
        }
    }
    match (&current.spec.sealed_credentials, &wanted.sealed_credentials) {
        (now, then) if now == then => {}
        (_, then) if then.is_empty() => operations.push(json!({ "op": "remove", "path": "/spec/sealedCredentials" })),
        (_, then) => {
            operations.push(json!({ "op": "add", "path": "/spec/sealedCredentials", "value": json_of(then) }));
        }
    }
    if operations.is_empty() {
        return None;
    }
    let generation = current.metadata.generation.unwrap_or_default();
    operations.insert(
        0,
        json!({ "op": "test", "path": "/metadata/generation", "value": generation }),
    );
    Some(Value::Array(operations))
}

/// A merge patch for the status subresource that turns `current` into `wanted`, or None if they are the same. It holds
/// `status` and nothing else.
pub fn status_patch(current: Option<&NodeImageStatus>, wanted: &NodeImageStatus) -> Option<Value> {
    let before = current.map_or_else(|| Value::Object(Map::new()), json_of);
    let changes = difference(&before, &json_of(wanted))?;
    Some(json!({ "status": changes }))
}

/// What a merge patch must say to turn `before` into `after`; None if nothing.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut changes = Map::new();
    for (key, value) in after {
        let change = before
            .get(key)
            .map_or_else(|| Some(value.clone()), |known| difference(known, value));
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// A key as part of a JSON pointer: image names are full of slashes.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[expect(
    clippy::expect_used,
    reason = "invariant: our own types have string keys and no failing serializer"
)]
fn json_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("invariant: an API type is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_image::{ImageSpec, ImageStatus, ImageTagSpec, ImageTagStatus, SealedCredential};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const NAMES: [&str; 4] = ["nginx", "foo/bar", "registry.example:5000/team/app", "odd~name"];

    fn spec(tags: &[(usize, &str)], credentials: &[&str]) -> NodeImageSpec {
        let mut images: BTreeMap<String, ImageSpec> = BTreeMap::new();
        for (name, tag) in tags {
            let entry = ImageTagSpec {
                tag: (*tag).into(),
                ..ImageTagSpec::default()
            };
            images.entry(NAMES[*name].into()).or_default().tags.push(entry);
        }
        let sealed = |id: &&str| SealedCredential {
            id: (*id).into(),
            ..SealedCredential::default()
        };
        NodeImageSpec {
            images,
            sealed_credentials: credentials.iter().map(sealed).collect(),
        }
    }

    fn node_image(spec: NodeImageSpec, generation: i64) -> NodeImage {
        let mut object = NodeImage::new("node-1", spec);
        object.metadata.generation = Some(generation);
        object
    }

    #[test]
    fn nothing_to_change_is_no_write() {
        let spec = spec(&[(0, "latest")], &["a"]);
        assert_eq!(spec_patch(&node_image(spec.clone(), 3), &spec), None);
        let status = NodeImageStatus {
            desired: 1,
            ..NodeImageStatus::default()
        };
        assert_eq!(status_patch(Some(&status), &status), None);
    }

    #[test]
    fn a_spec_patch_is_guarded_by_the_generation_and_names_only_the_change() {
        let current = node_image(spec(&[(0, "latest"), (1, "v1")], &[]), 7);
        let patch = spec_patch(&current, &spec(&[(0, "latest"), (1, "v2")], &[])).unwrap();
        assert_eq!(
            patch[0],
            json!({ "op": "test", "path": "/metadata/generation", "value": 7 })
        );
        assert_eq!(patch[1]["path"], "/spec/images/foo~1bar");
        assert_eq!(patch.as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_first_status_is_written_whole_and_holds_no_spec() {
        let patch = status_patch(None, &NodeImageStatus::default()).unwrap();
        let keys: Vec<&String> = patch.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["status"]);
        assert_eq!(patch["status"]["desired"], 0);
    }

    #[test]
    fn a_tag_that_left_leaves_the_status() {
        let status = |names: &[usize]| NodeImageStatus {
            image_statuses: names
                .iter()
                .map(|name| (NAMES[*name].to_owned(), ImageStatus::default()))
                .collect(),
            ..NodeImageStatus::default()
        };
        let patch = status_patch(Some(&status(&[0, 2])), &status(&[0])).unwrap();
        assert_eq!(patch, json!({ "status": { "imageStatuses": { NAMES[2]: null } } }));
    }

    fn specs() -> impl Strategy<Value = NodeImageSpec> {
        let tags = proptest::collection::vec((0usize..4, prop_oneof!["v1", "v2", "latest"]), 0..6);
        let credentials = proptest::collection::vec(prop_oneof!["a", "b"], 0..3);
        (tags, credentials).prop_map(|(tags, credentials)| {
            let tags: Vec<(usize, &str)> = tags.iter().map(|(name, tag)| (*name, tag.as_str())).collect();
            spec(&tags, &credentials.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }

    fn statuses() -> impl Strategy<Value = NodeImageStatus> {
        proptest::collection::btree_map(
            0usize..4,
            proptest::collection::vec((0i64..3, any::<bool>()), 0..3),
            0..4,
        )
        .prop_map(|images| {
            let tags = |tags: Vec<(i64, bool)>| ImageStatus {
                tags: tags
                    .into_iter()
                    .map(|(version, done)| ImageTagStatus {
                        version: Some(version),
                        message: done.then(|| "done".to_owned()),
                        ..ImageTagStatus::default()
                    })
                    .collect(),
            };
            NodeImageStatus {
                image_statuses: images
                    .into_iter()
                    .map(|(name, list)| (NAMES[name].to_owned(), tags(list)))
                    .collect(),
                ..NodeImageStatus::default()
            }
        })
    }

    proptest! {
        #[test]
        fn a_spec_patch_makes_the_wanted_spec(before in specs(), after in specs()) {
            let current = node_image(before, 1);
            let mut object = json_of(&current);
            if let Some(patch) = spec_patch(&current, &after) {
                let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
                json_patch::patch(&mut object, &patch).unwrap();
            }
            let patched: NodeImage = serde_json::from_value(object).unwrap();
            prop_assert_eq!(patched.spec, after);
        }

        #[test]
        fn a_status_patch_makes_the_wanted_status(before in proptest::option::of(statuses()), after in statuses()) {
            let mut object = json!({ "status": before.as_ref().map_or_else(|| json!({}), json_of) });
            if let Some(patch) = status_patch(before.as_ref(), &after) {
                json_patch::merge(&mut object, &patch);
            }
            let patched: NodeImageStatus = serde_json::from_value(object["status"].clone()).unwrap();
            prop_assert_eq!(patched, after);
        }
    }
}
