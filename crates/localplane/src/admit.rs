//! From the bytes of a request to an object that may be stored: decoding, unknown fields, metadata rules, defaults,
//! validation. Pure; what it needs of the present state it is given.

mod decode;
mod metadata;

pub(crate) use decode::{Incoming, decode, normalize};

use serde_json::Value;

use crate::{
    clock::seconds,
    error::{ApiError, Cause},
    object::{self, Object},
    registry::Resource,
    request::Target,
    store::Change,
    stored::Shared,
};

/// The part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, if status has an endpoint of its own.
    Main,
    /// The status alone.
    Status,
}

/// How an update describes the new state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    /// As a whole: the writer has seen the object that it replaces.
    Replaced,
    /// By the difference: the writer need not know the rest.
    Patched,
}

/// Makes a new object ready to be stored.
pub(crate) fn create(target: &Target, mut object: Object, now: jiff::Timestamp) -> Result<Object, ApiError> {
    let subject = target.subject();
    let name = object::meta_str(&object, "name").to_owned();
    if !object::meta_str(&object, "resourceVersion").is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    for field in [
        "uid",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ] {
        object::set_meta(&mut object, field, None);
    }
    let status_apart = target.version().status;
    match target.resource.builtin {
        // A kubelet reports its first status with the Node it creates.
        Some(builtin) if status_apart && !builtin.read_only && target.resource.kind != "Node" => {
            object.remove("status");
        }
        None if status_apart => {
            object.remove("status");
        }
        _ => {}
    }
    fill_in(target, &mut object);
    object::set_meta(&mut object, "uid", Some(object::new_uid().into()));
    object::set_meta(&mut object, "creationTimestamp", Some(seconds(now).into()));
    if target.resource.has_generation() {
        object::set_meta(&mut object, "generation", Some(1.into()));
    }
    let mut causes = metadata::check(&target.resource, &object);
    if causes.is_empty() {
        causes = judge(target, &object, None);
    }
    if causes.is_empty() {
        Ok(object)
    } else {
        Err(ApiError::invalid(&subject, &name, &causes))
    }
}

/// Makes `object` ready to replace `old`.
pub(crate) fn update(
    target: &Target,
    current: &Shared,
    old: &Object,
    mut object: Object,
    part: Part,
    kind: UpdateKind,
) -> Result<Change, ApiError> {
    let subject = target.subject();
    let name = current.name.name.as_str();
    check_preconditions(target, current, &object, kind)?;
    keep_own(target, old, &mut object, part);
    fill_in(target, &mut object);
    let mut causes = metadata::check_update(&target.resource, &object, old);
    if causes.is_empty() {
        causes = judge(target, &object, Some(old));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid(&subject, name, &causes));
    }
    count_generation(target, old, &mut object);
    Ok(store_or_remove(&target.resource, current, old, object))
}

/// What becomes of an object after a change: nothing if it is the same, its end if only its finalizers kept it.
pub(crate) fn store_or_remove(resource: &Resource, current: &Shared, old: &Object, object: Object) -> Change {
    if is_over(resource, &object) {
        return Change::Remove(object);
    }
    let same = object.len() == old.len()
        && object.iter().all(|(key, value)| match key.as_str() {
            "apiVersion" => true,
            _ => old.get(key) == Some(value),
        });
    if same {
        Change::Keep(current.clone())
    } else {
        Change::Put(object)
    }
}

fn is_over(resource: &Resource, object: &Object) -> bool {
    let grace = object::meta(object, "deletionGracePeriodSeconds").and_then(Value::as_i64);
    let namespace_is_emptied = !resource.builtin.is_some_and(crate::builtin::Builtin::is_namespace)
        || object
            .get("spec")
            .and_then(|spec| spec.get("finalizers"))
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
    object::is_deleting(object)
        && grace.unwrap_or_default() == 0
        && object::meta_strings(object, "finalizers").is_empty()
        && namespace_is_emptied
}

fn check_preconditions(target: &Target, current: &Shared, object: &Object, kind: UpdateKind) -> Result<(), ApiError> {
    let subject = target.subject();
    let name = &current.name.name;
    let version = object::meta_str(object, "resourceVersion");
    if version.is_empty() {
        let conditional = target.resource.builtin.is_none_or(|builtin| builtin.conditional_update);
        if conditional {
            let cause = Cause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
            return Err(ApiError::invalid(&subject, name, &[cause]));
        }
    } else if version != current.revision.to_string() {
        if version.parse::<u64>().is_err() {
            let cause = Cause::invalid("metadata.resourceVersion", &format!("{version:?}"), "must be a number");
            return Err(ApiError::invalid(&subject, name, &[cause]));
        }
        return Err(ApiError::stale(&subject, name));
    }
    let uid = object::meta_str(object, "uid");
    if !uid.is_empty() && uid != current.uid {
        if kind == UpdateKind::Patched {
            let cause = Cause::invalid("metadata.uid", &format!("{uid:?}"), "field is immutable");
            return Err(ApiError::invalid(&subject, name, &[cause]));
        }
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.uid
        );
        return Err(ApiError::conflict(&subject, name, why));
    }
    Ok(())
}

/// Puts back what a request through this endpoint cannot change.
fn keep_own(target: &Target, old: &Object, object: &mut Object, part: Part) {
    let custom = target.resource.builtin.is_none();
    if part == Part::Status {
        let status = object.remove("status");
        if custom {
            object.clone_from(old);
        } else {
            let meta = object.remove("metadata");
            object.clone_from(old);
            object.extend(meta.map(|meta| ("metadata".to_owned(), meta)));
        }
        object.remove("status");
        object.extend(status.map(|status| ("status".to_owned(), status)));
    } else if target.version().status {
        object.remove("status");
        if let Some(status) = old.get("status") {
            object.insert("status".into(), status.clone());
        }
    }
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        object::set_meta(object, field, object::meta(old, field).cloned());
    }
    object::set_meta(object, "selfLink", None);
}

fn count_generation(target: &Target, old: &Object, object: &mut Object) {
    if !target.resource.has_generation() {
        return;
    }
    let status_apart = target.version().status;
    let counts = |key: &str| !(matches!(key, "metadata" | "apiVersion" | "kind") || status_apart && key == "status");
    let changed = object
        .iter()
        .filter(|(key, _)| counts(key))
        .any(|(key, value)| old.get(key) != Some(value))
        || old.keys().any(|key| counts(key) && !object.contains_key(key));
    if changed {
        let next = object::generation(old) + 1;
        object::set_meta(object, "generation", Some(next.into()));
    }
}

fn fill_in(target: &Target, object: &mut Object) {
    match target.resource.builtin {
        Some(builtin) => (builtin.default)(object),
        None => {
            if let Some(schema) = &target.version().schema {
                schema.default(object);
            }
        }
    }
}

fn judge(target: &Target, object: &Object, old: Option<&Object>) -> Vec<Cause> {
    match target.resource.builtin {
        Some(builtin) => (builtin.check)(object, old),
        None => target
            .version()
            .schema
            .as_ref()
            .map(|schema| schema.validate(object, old))
            .unwrap_or_default(),
    }
}
