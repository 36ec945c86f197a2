//! What a patch makes of an object, or why it is refused.

use serde_json::{Value, json};

/// Why a request is not carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotFound,
    Invalid(String),
}

/// A JSON patch of everything but the status. Its `test` operations are preconditions.
pub(super) fn json(object: &Value, operations: &Value, custom: bool) -> Result<Value, Refusal> {
    Ok(without_status(object, patched(object, operations)?, custom))
}

/// A JSON patch of the status alone.
pub(super) fn json_status(object: &Value, operations: &Value) -> Result<Value, Refusal> {
    let mut value = object.clone();
    value["status"] = patched(object, operations)?["status"].take();
    Ok(value)
}

fn patched(object: &Value, operations: &Value) -> Result<Value, Refusal> {
    let invalid = |error: &dyn std::fmt::Display| Refusal::Invalid(error.to_string());
    let patch: json_patch::Patch = serde_json::from_value(operations.clone()).map_err(|error| invalid(&error))?;
    let mut value = object.clone();
    json_patch::patch(&mut value, &patch).map_err(|error| invalid(&error))?;
    Ok(value)
}

/// A merge patch of everything but the status.
pub(super) fn merge(object: &Value, changes: &Value, custom: bool) -> Result<Value, Refusal> {
    check_uid(object, changes)?;
    let mut value = object.clone();
    json_patch::merge(&mut value, changes);
    Ok(without_status(object, value, custom))
}

/// A strategic merge patch of conditions: those of other types stay as they are.
pub(super) fn conditions(object: &Value, changes: &Value) -> Result<Value, Refusal> {
    check_uid(object, changes)?;
    let mut value = object.clone();
    let list = |value: &Value| value["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let newer = list(changes);
    let mut conditions = list(object);
    conditions.retain(|known| newer.iter().all(|newer| newer["type"] != known["type"]));
    conditions.extend(newer);
    value["status"]["conditions"] = json!(conditions);
    Ok(value)
}

/// A uid in a patch is a precondition.
fn check_uid(object: &Value, changes: &Value) -> Result<(), Refusal> {
    match changes["metadata"]["uid"].as_str() {
        Some(uid) if Some(uid) != object["metadata"]["uid"].as_str() => {
            Err(Refusal::Invalid("the uid is another one".to_owned()))
        }
        _ => Ok(()),
    }
}

/// The status of a custom resource has its own way in, and a changed spec a new generation.
fn without_status(before: &Value, mut after: Value, custom: bool) -> Value {
    if !custom {
        return after;
    }
    match (before.get("status"), after.as_object_mut()) {
        (Some(status), Some(object)) => {
            object.insert("status".to_owned(), status.clone());
        }
        (None, Some(object)) => {
            object.remove("status");
        }
        (_, None) => {}
    }
    let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
    let changed = before["spec"] != after["spec"];
    after["metadata"]["generation"] = json!(generation + i64::from(changed));
    after
}
