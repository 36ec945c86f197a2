//! Strategic merge patch, as kubectl sends it for built-in kinds: a merge patch in which some lists are merged item by
//! item.
//!
//! Which lists those are is part of each kind's definition; the table below has those of the kinds served here. A
//! directive that is not understood is refused rather than guessed at.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Fields whose lists are merged, by kind of list: the keys that tell items apart, none for lists of scalars.
/// Found by the name of the field alone: the kinds served here use each of these names for one sort of list.
const MERGED: &[(&str, &[&str])] = &[
    ("finalizers", &[]),
    ("podCIDRs", &[]),
    ("ownerReferences", &["uid"]),
    ("conditions", &["type"]),
    ("addresses", &["type"]),
    ("taints", &["key"]),
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    // Container ports have containerPort; the protocol may differ, and kubectl goes by the first alone.
    ("ports", &["containerPort"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("podIPs", &["ip"]),
];

/// Applies `patch` to `target`.
pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(ApiError::bad_request(
            "a strategic merge patch of an object must be an object",
        ));
    };
    merge_object(target, patch)
}

fn merge_object(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            target.clear();
            for (key, value) in patch.iter().filter(|(key, _)| *key != "$patch") {
                target.insert(key.clone(), value.clone());
            }
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(unknown(&format!("$patch: {other}"))),
    }
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| retained.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/")
            && let (Some(Value::Array(items)), Some(gone)) = (target.get_mut(field), value.as_array())
        {
            items.retain(|item| !gone.contains(item));
        }
    }
    for (key, value) in patch {
        if key.starts_with('$') {
            check_directive(key)?;
            continue;
        }
        merge_field(target, key, value)?;
    }
    for (key, order) in patch {
        if let (Some(field), Some(order)) = (key.strip_prefix("$setElementOrder/"), order.as_array())
            && let Some(Value::Array(items)) = target.get_mut(field)
        {
            reorder(items, order, merge_keys(field).unwrap_or_default());
        }
    }
    Ok(())
}

fn merge_field(target: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), ApiError> {
    match value {
        Value::Null => {
            target.remove(key);
        }
        Value::Object(patch) => {
            let is = target
                .entry(key.to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if !is.is_object() {
                *is = Value::Object(Map::new());
            }
            if let Value::Object(is) = is {
                merge_object(is, patch)?;
            }
        }
        Value::Array(patch) => match merge_keys(key) {
            Some(keys) => {
                let is = target.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = is {
                    merge_list(items, patch, keys)?;
                } else {
                    *is = value.clone();
                }
            }
            None => {
                target.insert(key.to_owned(), value.clone());
            }
        },
        scalar => {
            target.insert(key.to_owned(), scalar.clone());
        }
    }
    Ok(())
}

fn merge_list(items: &mut Vec<Value>, patch: &[Value], keys: &[&str]) -> Result<(), ApiError> {
    if keys.is_empty() {
        for item in patch {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
        return Ok(());
    }
    if patch.iter().any(|item| {
        item.get("$patch").and_then(Value::as_str) == Some("replace")
            && item.as_object().is_some_and(|item| item.len() == 1)
    }) {
        items.clear();
    }
    for change in patch {
        let Value::Object(change) = change else {
            return Err(ApiError::bad_request("an item of a merged list must be an object"));
        };
        let directive = change.get("$patch").and_then(Value::as_str);
        if directive == Some("replace") && change.len() == 1 {
            continue;
        }
        if keys.iter().any(|key| !change.contains_key(*key)) {
            return Err(ApiError::bad_request(format!(
                "map: {} does not contain declared merge key: {}",
                Value::Object(change.clone()),
                keys.join(", ")
            )));
        }
        let same = |item: &Value| keys.iter().all(|key| item.get(key) == change.get(*key));
        if directive == Some("delete") {
            items.retain(|item| !same(item));
            continue;
        }
        if let Some(Value::Object(item)) = items.iter_mut().find(|item| same(item)) {
            merge_object(item, change)?;
        } else {
            let mut item = Map::new();
            merge_object(&mut item, change)?;
            items.push(Value::Object(item));
        }
    }
    Ok(())
}

/// Puts items in the order the client asked for; those it did not name keep their place after the one before them.
fn reorder(items: &mut [Value], order: &[Value], keys: &[&str]) {
    let place = |item: &Value| {
        order.iter().position(|wanted| {
            let same = |key: &&str| item.get(key) == wanted.get(key);
            if keys.is_empty() {
                item == wanted
            } else {
                keys.iter().all(same)
            }
        })
    };
    let mut last = 0;
    let mut ranked: Vec<(usize, usize, Value)> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        last = place(item).map_or(last, |place| place + 1);
        ranked.push((last, index, item.clone()));
    }
    ranked.sort_by_key(|(rank, index, _)| (*rank, *index));
    for (slot, (_, _, item)) in items.iter_mut().zip(ranked) {
        *slot = item;
    }
}

fn merge_keys(field: &str) -> Option<&'static [&'static str]> {
    MERGED.iter().find(|(name, _)| *name == field).map(|(_, keys)| *keys)
}

fn check_directive(key: &str) -> Result<(), ApiError> {
    let known = ["$patch", "$retainKeys"].contains(&key)
        || key.starts_with("$setElementOrder/")
        || key.starts_with("$deleteFromPrimitiveList/");
    if known { Ok(()) } else { Err(unknown(key)) }
}

fn unknown(directive: &str) -> ApiError {
    ApiError::bad_request(format!("unknown directive {directive} in a strategic merge patch"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::labels_merge(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
        json!({"metadata": {"labels": {"b": "2", "c": "3"}}})
    )]
    #[case::conditions_merge_by_type(
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "True"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "Disk", "status": "True"}]}})
    )]
    #[case::an_item_is_deleted(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        json!({"spec": {"containers": [{"name": "b"}]}})
    )]
    #[case::a_list_is_replaced(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
        json!({"spec": {"containers": [{"name": "c"}]}})
    )]
    #[case::finalizers_are_a_set(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"]}}),
        json!({"metadata": {"finalizers": ["a", "c"]}})
    )]
    #[case::order_is_kept_as_asked(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}], "containers": [{"name": "c"}]}}),
        json!({"spec": {"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}})
    )]
    #[case::other_lists_are_replaced(
        json!({"spec": {"tolerations": [{"key": "a"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}})
    )]
    #[case::a_union_retains_its_member(
        json!({"spec": {"strategy": {"type": "a", "a": 1}}}),
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "b"}}}),
        json!({"spec": {"strategy": {"type": "b"}}})
    )]
    fn applies(#[case] mut target: Value, #[case] patch: Value, #[case] want: Value) {
        apply(&mut target, &patch).unwrap();
        assert_eq!(target, want);
    }

    #[rstest]
    #[case::unknown_directive(json!({"$turn": 1}))]
    #[case::unknown_patch(json!({"$patch": "turn"}))]
    #[case::item_without_its_key(json!({"spec": {"containers": [{"image": "a"}]}}))]
    fn refuses(#[case] patch: Value) {
        apply(&mut json!({}), &patch).unwrap_err();
    }
}
