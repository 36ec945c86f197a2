//! JSON patch: a list of operations of which all are applied or none.

use serde_json::Value;

use crate::error::ApiError;

/// The most operations in one patch, as the cluster's API server allows.
const MOST: usize = 10_000;

/// Applies the operations in `patch` to `target`.
pub(crate) fn apply(target: &mut Value, patch: Value) -> Result<(), ApiError> {
    let operations = patch.as_array().filter(|list| list.iter().all(Value::is_object));
    if operations.is_none() {
        return Err(ApiError::bad_request(
            "error decoding patch: a JSON patch must be a list of operations",
        ));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|_| ApiError::unprocessable())?;
    if MOST < patch.0.len() {
        return Err(ApiError::too_large(MOST));
    }
    json_patch::patch(target, &patch.0).map_err(|_| ApiError::unprocessable())
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
}
