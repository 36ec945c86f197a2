//! JSON patch: a list of operations of which all are applied or none.

use json_patch::PatchOperation;
use serde_json::Value;

use crate::error::ApiError;

/// The most operations in one patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// The most bytes that the operations of one patch may copy, as in kube-apiserver: each `copy` can double the object.
const MAX_COPIED_BYTES: usize = 3 << 20;

/// The deepest nesting that operations may create. A stored object is parsed again, by a parser that stops at 128
/// levels, and three of them belong to lists and watch events.
const MAX_DEPTH: usize = 125;

/// Applies the operations in `patch` to `target`, which is of no use after an error.
pub(crate) fn apply(target: &mut Value, patch: Value) -> Result<(), ApiError> {
    let operations = patch.as_array().filter(|list| list.iter().all(Value::is_object));
    if operations.is_none() {
        return Err(ApiError::bad_request(
            "error decoding patch: a JSON patch must be a list of operations",
        ));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|_| ApiError::unprocessable())?;
    if MAX_OPERATIONS < patch.0.len() {
        return Err(ApiError::too_many_operations(MAX_OPERATIONS, patch.0.len()));
    }
    let mut copied = 0;
    for operation in &patch.0 {
        copied += copied_bytes(target, operation)?;
        if MAX_COPIED_BYTES < copied {
            return Err(ApiError::unprocessable());
        }
        json_patch::patch_unsafe(target, std::slice::from_ref(operation)).map_err(|_| ApiError::unprocessable())?;
    }
    Ok(())
}

/// The bytes that an operation copies. Refuses an operation that nests values too deeply: such a value overflows the
/// stack when it is written or freed.
fn copied_bytes(target: &Value, operation: &PatchOperation) -> Result<usize, ApiError> {
    let (value, path, copies) = match operation {
        PatchOperation::Add(operation) => (Some(&operation.value), &operation.path, false),
        PatchOperation::Replace(operation) => (Some(&operation.value), &operation.path, false),
        PatchOperation::Copy(operation) => (target.pointer(operation.from.as_str()), &operation.path, true),
        // Counted like a copy where it makes a value deeper: to measure the value takes as long as to copy it.
        PatchOperation::Move(operation) if operation.from.count() < operation.path.count() => {
            (target.pointer(operation.from.as_str()), &operation.path, true)
        }
        PatchOperation::Move(_) | PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(0),
    };
    let Some(value) = value else {
        return Err(ApiError::unprocessable());
    };
    if MAX_DEPTH < path.count() + depth(value) {
        return Err(ApiError::unprocessable());
    }
    Ok(if copies { value.to_string().len() } else { 0 })
}

/// Levels of objects and lists.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::guarded_replace(
        json!([{"op": "test", "path": "/metadata/generation", "value": 1}, {"op": "replace", "path": "/spec/a", "value": 2}]),
        Some(json!({"metadata": {"generation": 1}, "spec": {"a": 2}}))
    )]
    #[case::failed_guard(json!([{"op": "test", "path": "/metadata/generation", "value": 2}]), None)]
    #[case::add_and_append(
        json!([{"op": "add", "path": "/spec/l", "value": []}, {"op": "add", "path": "/spec/l/-", "value": 1}]),
        Some(json!({"metadata": {"generation": 1}, "spec": {"a": 1, "l": [1]}}))
    )]
    #[case::removing_what_is_not_there(json!([{"op": "remove", "path": "/spec/x"}]), None)]
    #[case::no_list(json!({"op": "remove"}), None)]
    #[case::unknown_operation(json!([{"op": "turn", "path": "/spec"}]), None)]
    fn applies(#[case] patch: Value, #[case] want: Option<Value>) {
        let mut target = json!({"metadata": {"generation": 1}, "spec": {"a": 1}});
        let result = apply(&mut target, patch).map(|()| target);
        assert_eq!(result.ok(), want);
    }

    #[test]
    fn copies_that_double_the_object_are_refused_before_they_fill_the_memory() {
        let copies = (0..16).map(|number| json!({"op": "copy", "from": "", "path": format!("/copy{number}")}));
        let patch = Value::Array(copies.collect());
        let mut target = json!({"data": "x".repeat(5_000)});
        assert!(apply(&mut target, patch).is_err());
        let size = target.to_string().len();
        assert!(size <= 2 * MAX_COPIED_BYTES, "{size}");
    }

    #[test]
    fn copies_up_to_the_limit_are_made() {
        let copy = |number: usize| json!({"op": "copy", "from": "/data", "path": format!("/copy{number}")});
        let quoted = MAX_COPIED_BYTES / 4 - 2;
        let patch = |copies: usize| Value::Array((0..copies).map(copy).collect());
        let target = json!({"data": "x".repeat(quoted)});
        assert!(apply(&mut target.clone(), patch(4)).is_ok());
        assert!(apply(&mut target.clone(), patch(5)).is_err());
    }

    #[rstest]
    #[case::copies(|_| vec![json!({"op": "copy", "from": "/a", "path": "/a/a"})])]
    #[case::moves(|number| vec![
        json!({"op": "add", "path": format!("/b{number}"), "value": {}}),
        json!({"op": "move", "from": if number == 0 { "/a".to_owned() } else { format!("/b{}", number - 1) }, "path": format!("/b{number}/a")}),
    ])]
    #[case::additions(|number| vec![json!({"op": "add", "path": "/a".repeat(number + 2), "value": {}})])]
    fn values_are_not_nested_deeper_than_they_can_be_read_back(#[case] nest: fn(usize) -> Vec<Value>) {
        let mut target = json!({"a": {}});
        let patch = Value::Array((0..2_000).flat_map(nest).collect());
        assert!(apply(&mut target, patch).is_err());
        assert!(depth(&target) <= MAX_DEPTH, "{}", depth(&target));
    }
}
