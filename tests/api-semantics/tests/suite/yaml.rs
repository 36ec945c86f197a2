//! Manifests as people write them.

use serde_json::Value;

/// Reads one document.
pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("not YAML: {error}\n{text}"))
}

/// `base` with everything that `over` says. Lists are replaced as a whole; a null says nothing, as with schema defaults.
pub(crate) fn merged(base: &Value, over: &Value) -> Value {
    let (Value::Object(base), Value::Object(over)) = (base, over) else {
        return if over.is_null() { base.clone() } else { over.clone() };
    };
    let mut result = base.clone();
    for (key, value) in over.iter().filter(|(_, value)| !value.is_null()) {
        let known = base.get(key).cloned().unwrap_or(Value::Null);
        result.insert(key.clone(), merged(&known, value));
    }
    Value::Object(result)
}
