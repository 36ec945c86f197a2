//! JSON merge patch: objects are merged key by key, null removes, everything else replaces.
//!
//! A list that comes in loses the nulls in its objects too, which the RFC does not say and the cluster's API server does.

use serde_json::{Map, Value};

/// Applies `patch` to `target`.
pub(crate) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = without_nulls(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                apply(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::replaces(json!({"a": 1}), json!({"a": 2}), json!({"a": 2}))]
    #[case::adds(json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2}))]
    #[case::removes(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}))]
    #[case::merges_deep(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": null}}), json!({"a": {"b": 1}}))]
    #[case::lists_are_replaced(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}))]
    #[case::nulls_in_objects_of_lists_vanish(json!({}), json!({"a": [{"b": null, "c": 1}, null]}), json!({"a": [{"c": 1}, null]}))]
    #[case::nulls_inside_new_objects_vanish(json!({}), json!({"a": {"b": null}}), json!({"a": {}}))]
    #[case::an_object_replaces_a_scalar(json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}}))]
    fn applies(#[case] mut target: Value, #[case] patch: Value, #[case] want: Value) {
        apply(&mut target, &patch);
        assert_eq!(target, want);
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The patch that makes `to` out of `from`.
    fn difference(from: &Value, to: &Value) -> Value {
        let (Value::Object(old), Value::Object(new)) = (from, to) else {
            return to.clone();
        };
        let mut patch = Map::new();
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in new {
            match old.get(key) {
                Some(was) if was == value => {}
                Some(was) => drop(patch.insert(key.clone(), difference(was, value))),
                None => drop(patch.insert(key.clone(), value.clone())),
            }
        }
        Value::Object(patch)
    }

    proptest! {
        #[test]
        fn the_difference_of_two_documents_leads_from_one_to_the_other(from in document(), to in document()) {
            let mut target = from.clone();
            apply(&mut target, &difference(&from, &to));
            prop_assert_eq!(target, to);
        }

        #[test]
        fn applying_a_patch_twice_is_applying_it_once(mut target in document(), patch in document()) {
            apply(&mut target, &patch);
            let once = target.clone();
            apply(&mut target, &patch);
            prop_assert_eq!(target, once);
        }
    }
}
