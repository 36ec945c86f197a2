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

/// How long an API type is as JSON.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut count = Count(0);
    // Counting cannot fail, and our own types have no failing serializer.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Counts what is written, and keeps none of it.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
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

    #[test]
    fn bytes_are_those_of_the_text() {
        let value = json!({"a": "ü\n", "b": [1, null, {"c": true}]});
        assert_eq!(json_bytes(&value), value.to_string().len());
    }
}
