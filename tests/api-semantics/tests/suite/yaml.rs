//! Manifests as people write them.

use serde_json::Value;

/// Reads one document.
pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("not YAML: {error}\n{text}"))
}

/// `base` with everything that `over` says. Lists are replaced as a whole; a null says nothing, as with schema defaults.
pub(crate) fn merged(base: &Value, over: &Value) -> Value {
    match over {
        Value::Null => base.clone(),
        Value::Object(members) => {
            let mut result = base.as_object().cloned().unwrap_or_default();
            for (key, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let known = result.remove(key).unwrap_or_default();
                result.insert(key.clone(), merged(&known, value));
            }
            Value::Object(result)
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => over.clone(),
    }
}
