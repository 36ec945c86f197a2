//! The rules of `metadata`.

use serde_json::Value;

use crate::{
    error::Cause,
    names,
    object::{self, Object},
    registry::Resource,
};

/// All annotations of an object together.
const MOST_ANNOTATIONS: usize = 256 << 10;

/// What is wrong with the metadata of a new object.
pub(super) fn check(resource: &Resource, object: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = object::meta_str(object, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let rule = if resource.builtin.is_some_and(crate::builtin::Builtin::is_namespace) {
            names::dns_label(name)
        } else {
            names::subdomain(name)
        };
        if let Err(why) = rule {
            causes.push(Cause::invalid("metadata.name", &format!("{name:?}"), why));
        }
    }
    common(object, &mut causes);
    causes
}

/// What is wrong with the metadata of an object that replaces `old`.
pub(super) fn check_update(_resource: &Resource, object: &Object, old: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    if object::meta(object, "labels") != object::meta(old, "labels")
        || object::meta(object, "annotations") != object::meta(old, "annotations")
        || object::meta(object, "ownerReferences") != object::meta(old, "ownerReferences")
        || object::meta(object, "finalizers") != object::meta(old, "finalizers")
    {
        common(object, &mut causes);
    }
    if object::is_deleting(old) {
        let before = object::meta_strings(old, "finalizers");
        let added: Vec<&str> = object::meta_strings(object, "finalizers")
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
                ),
            ));
        }
    }
    causes
}

fn common(object: &Object, causes: &mut Vec<Cause>) {
    for (key, value) in entries(object, "labels") {
        if let Err(why) = names::label_key(key) {
            causes.push(Cause::invalid("metadata.labels", &format!("{key:?}"), why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Err(why) = names::label_value(value) {
            causes.push(Cause::invalid("metadata.labels", &format!("{value:?}"), why));
        }
    }
    let mut size = 0;
    for (key, value) in entries(object, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        if let Err(why) = names::label_key(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &format!("{key:?}"), why));
        }
    }
    if MOST_ANNOTATIONS < size {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MOST_ANNOTATIONS} bytes"),
            field: "metadata.annotations".into(),
        });
    }
    owners(object, causes);
    for finalizer in object::meta_strings(object, "finalizers") {
        let known = matches!(finalizer, "orphan" | "foregroundDeletion");
        if !known && (names::label_key(finalizer).is_err() || !finalizer.contains('/')) {
            causes.push(Cause::invalid(
                "metadata.finalizers",
                &format!("{finalizer:?}"),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn owners(object: &Object, causes: &mut Vec<Cause>) {
    let owners = object::meta(object, "ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::invalid(path, "\"\"", detail));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers += 1;
        }
    }
    if 1 < controllers {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &owners
                .map(|owners| Value::Array(owners.clone()).to_string())
                .unwrap_or_default(),
            "Only one reference can have Controller set to true",
        ));
    }
}

fn entries<'a>(object: &'a Object, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object::meta(object, field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}
