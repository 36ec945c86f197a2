use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn ours(name: &str) -> CustomResourceDefinition {
    larder_api::crds()
        .into_iter()
        .find(|crd| crd.name_any() == name)
        .unwrap()
}

/// A definition changed as JSON.
fn edited(crd: &CustomResourceDefinition, edit: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
    let mut json = serde_json::to_value(crd).unwrap();
    edit(&mut json);
    serde_json::from_value(json).unwrap()
}

/// A NodeImage as OpenKruise's chart installs it: the fields before Larder's were added.
fn kruise_node_image() -> CustomResourceDefinition {
    let tag = json!({ "type": "object", "properties": {
        "tag": { "type": "string" },
        "version": { "type": "integer" },
        "createdAt": { "type": "string" },
        "imagePullPolicy": { "type": "string" },
        "ownerReferences": { "type": "array", "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        "pullPolicy": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    }});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "metadata": { "type": "object" },
                "spec": { "type": "object", "properties": { "images": { "type": "object", "additionalProperties": {
                    "type": "object", "properties": {
                        "pullSecrets": { "type": "array", "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                        "sandboxConfig": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                        "tags": { "type": "array", "items": tag },
                    },
                }}}},
                "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            }}},
        })
    };
    serde_json::from_value(json!({
        "metadata": { "name": "nodeimages.apps.kruise.io" },
        "spec": {
            "group": "apps.kruise.io",
            "scope": "Cluster",
            "names": { "kind": "NodeImage", "plural": "nodeimages" },
            "versions": [version("v1beta1", true), version("v1alpha1", false)],
        },
    }))
    .unwrap()
}

#[test]
fn our_own_definitions_lack_nothing() {
    for crd in larder_api::crds() {
        assert_eq!(shortcoming(&crd, Some(&crd)), None);
    }
}

#[test]
fn a_definition_that_is_not_there_is_named() {
    let answer = shortcoming(&ours("imagepulljobs.apps.kruise.io"), None).unwrap();
    assert_eq!(answer, "the CRD imagepulljobs.apps.kruise.io is not installed");
}

#[test]
fn the_schema_of_another_chart_is_told_by_the_fields_it_lacks() {
    let answer = shortcoming(&ours("nodeimages.apps.kruise.io"), Some(&kruise_node_image())).unwrap();
    let start = "the CRD nodeimages.apps.kruise.io in this cluster comes from somebody else: version v1beta1 lacks \
                 spec.images.*.tags[].";
    assert!(answer.starts_with(start), "{answer}");
    assert!(answer.contains("spec.images.*.tags[].claims"), "{answer}");
    assert!(
        !answer.contains("status"),
        "a status that keeps everything lacks nothing: {answer}"
    );
}

#[test]
fn every_single_field_counts() {
    for crd in larder_api::crds() {
        let pointers = {
            let json = serde_json::to_value(&crd).unwrap();
            let mut pointers = Vec::new();
            field_pointers(
                &json["spec"]["versions"][0]["schema"],
                "/spec/versions/0/schema",
                &mut pointers,
            );
            pointers
        };
        assert!(pointers.len() > 20, "{}", pointers.len());
        for pointer in pointers {
            let without = edited(&crd, |json| {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                json.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            });
            assert!(shortcoming(&crd, Some(&without)).is_some(), "{pointer} is not missed");
        }
    }
}

/// JSON pointers of all fields of a schema.
fn field_pointers(schema: &Value, pointer: &str, found: &mut Vec<String>) {
    for (key, value) in schema.as_object().into_iter().flatten() {
        let pointer = format!("{pointer}/{key}");
        if key == "properties" {
            for (field, schema) in value.as_object().into_iter().flatten() {
                found.push(format!("{pointer}/{field}"));
                field_pointers(schema, &format!("{pointer}/{field}"), found);
            }
        } else {
            field_pointers(value, &pointer, found);
        }
    }
}

#[rstest]
#[case::version_not_served(
    |json: &mut Value| json["spec"]["versions"][1]["served"] = json!(false),
    "the CRD nodeimages.apps.kruise.io in this cluster does not serve version v1alpha1",
)]
#[case::no_status_subresource(
    |json: &mut Value| json["spec"]["versions"][0]["subresources"] = json!({}),
    "the CRD nodeimages.apps.kruise.io in this cluster has no status subresource in version v1beta1",
)]
#[case::names_taken(
    |json: &mut Value| json["status"] = json!({
        "acceptedNames": { "kind": "", "plural": "" },
        "conditions": [{ "type": "NamesAccepted", "status": "False", "message": "nodeimages is taken" }],
    }),
    "the CRD nodeimages.apps.kruise.io is not served yet: nodeimages is taken",
)]
fn what_else_can_be_wrong(#[case] edit: fn(&mut Value), #[case] sentence: &str) {
    let ours = ours("nodeimages.apps.kruise.io");
    assert_eq!(
        shortcoming(&ours, Some(&edited(&ours, edit))).as_deref(),
        Some(sentence)
    );
}

#[test]
fn a_schema_that_knows_more_is_fine() {
    let ours = ours("nodeimages.apps.kruise.io");
    let newer = edited(&ours, |json| {
        for version in json["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] =
                json!({ "type": "string" });
        }
    });
    assert_eq!(shortcoming(&ours, Some(&newer)), None);
}
