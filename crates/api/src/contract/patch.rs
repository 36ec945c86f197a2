//! The two writes that a NodeImage gets: the controller's to the spec, the agent's to the status.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::node_image::{NodeImage, NodeImageSpec, NodeImageStatus};

/// A JSON patch that turns the spec of `current` into `wanted`, or None if they are the same.
///
/// It is guarded by the generation, not by the resource version: an agent's status write in between does not make it fail,
/// another spec write does. It is guarded by the uid too: a NodeImage that was created anew may have the same generation. It names only what changed, so that the cost of a write follows the change.
pub fn spec_patch(current: &NodeImage, wanted: &NodeImageSpec) -> Option<Value> {
    let mut operations = map_operations("/spec/images", &current.spec.images, &wanted.images);
    match (&current.spec.sealed_credentials, &wanted.sealed_credentials) {
        (now, then) if now == then => {}
        (_, then) if then.is_empty() => operations.push(remove("/spec/sealedCredentials")),
        (_, then) => operations.push(add("/spec/sealedCredentials", then)),
    }
    if operations.is_empty() {
        return None;
    }
    let generation = current.metadata.generation.unwrap_or_default();
    operations.insert(
        0,
        json!({ "op": "test", "path": "/metadata/generation", "value": generation }),
    );
    guarded_by_uid(current.metadata.uid.as_deref().unwrap_or_default(), operations)
}

/// A JSON patch for the status subresource that turns the status `current` of the NodeImage with this uid into `wanted`, or
/// None if they are the same.
///
/// It is guarded by the uid: another NodeImage of the same name, created after this one was deleted, refuses it. A merge patch
/// that holds `metadata.uid` would be accepted, because for the status of a custom resource the API server puts all metadata
/// back before it compares them. The patch names only what changed, and of the results only the images that changed.
pub fn status_patch(uid: &str, current: Option<&NodeImageStatus>, wanted: &NodeImageStatus) -> Option<Value> {
    let operations = match current {
        None => vec![add("/status", wanted)],
        Some(current) => {
            let mut operations =
                map_operations("/status/imageStatuses", &current.image_statuses, &wanted.image_statuses);
            operations.extend(field_operations(&without_results(current), &without_results(wanted)));
            operations
        }
    };
    guarded_by_uid(uid, operations)
}

/// A JSON patch for the status subresource that turns the status `current` of the job with this uid into `wanted`, or None if
/// they are the same.
///
/// It is guarded by the uid for the same reason as [`status_patch`]: a late write must not reach a job of the same name that
/// was created after this one was deleted. It names only the fields that changed.
pub fn job_status_patch<S: Serialize>(uid: &str, current: Option<&S>, wanted: &S) -> Option<Value> {
    let operations = match current {
        None => vec![add("/status", wanted)],
        Some(current) => field_operations(&json_of(current), &json_of(wanted)),
    };
    guarded_by_uid(uid, operations)
}

fn guarded_by_uid(uid: &str, mut operations: Vec<Value>) -> Option<Value> {
    if operations.is_empty() {
        return None;
    }
    operations.insert(0, json!({ "op": "test", "path": "/metadata/uid", "value": uid }));
    Some(Value::Array(operations))
}

/// Operations on the fields of a status that exists.
fn field_operations(current: &Value, wanted: &Value) -> Vec<Value> {
    let none = Map::new();
    let before = current.as_object().unwrap_or(&none);
    let after = wanted.as_object().unwrap_or(&none);
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let changed = changed.map(|(key, value)| add(&format!("/status/{key}"), value));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| remove(&format!("/status/{key}")));
    changed.chain(gone).collect()
}

fn without_results(status: &NodeImageStatus) -> Value {
    json_of(&NodeImageStatus {
        image_statuses: BTreeMap::new(),
        ..status.clone()
    })
}

/// Operations on the map at this path, which is left out where it is empty.
fn map_operations<T: PartialEq + Serialize>(
    path: &str,
    current: &BTreeMap<String, T>,
    wanted: &BTreeMap<String, T>,
) -> Vec<Value> {
    if current.is_empty() && !wanted.is_empty() {
        return vec![add(path, wanted)];
    }
    let at = |name: &String| format!("{path}/{}", escaped(name));
    let gone = current.keys().filter(|name| !wanted.contains_key(*name));
    let changed = wanted.iter().filter(|(name, value)| current.get(*name) != Some(*value));
    let changed = changed.map(|(name, value)| add(&at(name), value));
    gone.map(|name| remove(&at(name))).chain(changed).collect()
}

fn add<T: Serialize>(path: &str, value: &T) -> Value {
    json!({ "op": "add", "path": path, "value": json_of(value) })
}

fn remove(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}

/// A key as part of a JSON pointer: image names are full of slashes.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// An API type as JSON.
#[expect(
    clippy::expect_used,
    reason = "invariant: our own types have string keys and no failing serializer"
)]
pub fn json_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("invariant: an API type is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_image::{ImageFsStatus, ImageSpec, ImageStatus, ImageTagSpec, ImageTagStatus, SealedCredential};
    use proptest::prelude::*;

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
        object.metadata.uid = Some("u".to_owned());
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
        assert_eq!(status_patch("u", Some(&status), &status), None);
    }

    #[test]
    fn a_spec_patch_is_guarded_by_uid_and_generation_and_names_only_the_change() {
        let current = node_image(spec(&[(0, "latest"), (1, "v1")], &[]), 7);
        let patch = spec_patch(&current, &spec(&[(0, "latest"), (1, "v2")], &[])).unwrap();
        assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u" }));
        assert_eq!(
            patch[1],
            json!({ "op": "test", "path": "/metadata/generation", "value": 7 })
        );
        assert_eq!(patch[2]["path"], "/spec/images/foo~1bar");
        assert_eq!(patch.as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_first_status_is_written_whole_and_guarded_by_the_uid() {
        let patch = status_patch("u", None, &NodeImageStatus::default()).unwrap();
        assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u" }));
        assert_eq!(
            (&patch[1]["path"], &patch[1]["value"]["desired"]),
            (&json!("/status"), &json!(0))
        );
        assert_eq!(patch.as_array().unwrap().len(), 2);
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
        let patch = status_patch("u", Some(&status(&[0, 2])), &status(&[0])).unwrap();
        let gone = "/status/imageStatuses/registry.example:5000~1team~1app";
        assert_eq!(patch[1], json!({ "op": "remove", "path": gone }));
        assert_eq!(patch.as_array().unwrap().len(), 2, "{patch}");
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
                desired: i32::try_from(images.len()).unwrap(),
                image_fs: (images.len() > 1).then(ImageFsStatus::default),
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
            let mut object = json!({ "metadata": { "uid": "u" } });
            if let Some(before) = &before {
                object["status"] = json_of(before);
            }
            if let Some(patch) = status_patch("u", before.as_ref(), &after) {
                let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
                json_patch::patch(&mut object, &patch).unwrap();
            }
            let patched: NodeImageStatus = serde_json::from_value(object["status"].clone()).unwrap();
            prop_assert_eq!(patched, after);
        }
    }
}
