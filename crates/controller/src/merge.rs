//! Merge patches that say only what changed.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a merge patch must say to turn `before` into `after`; None if nothing.
pub(crate) fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut changes = Map::new();
    for (key, value) in after {
        let change = match before.get(key) {
            Some(known) => difference(known, value),
            None => Some(value.clone()),
        };
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// An API type as JSON.
#[expect(
    clippy::expect_used,
    reason = "invariant: our own types have string keys and no failing serializer"
)]
pub(crate) fn json_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("invariant: an API type is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::nothing(json!({"a": 1}), json!({"a": 1}), None)]
    #[case::changed(json!({"a": 1, "b": 2}), json!({"a": 3, "b": 2}), Some(json!({"a": 3})))]
    #[case::added(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})))]
    #[case::gone(json!({"a": 1}), json!({}), Some(json!({"a": null})))]
    #[case::deep(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), Some(json!({"a": {"c": null}})))]
    #[case::lists_are_whole(json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]})))]
    fn says_what_changed(#[case] before: Value, #[case] after: Value, #[case] want: Option<Value>) {
        assert_eq!(difference(&before, &after), want);
    }
}
