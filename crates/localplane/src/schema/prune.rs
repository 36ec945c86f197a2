//! Dropping what the schema does not know.

use serde_json::Value;

use super::Node;
use crate::object::Object;

/// Fields that every object has, whatever its schema says.
const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole object; returns the paths of what was dropped.
pub(super) fn object(schema: &Node, object: &mut Object) -> Vec<String> {
    let mut dropped = Vec::new();
    fields(schema, object, true, "", &mut dropped);
    dropped
}

fn fields(schema: &Node, object: &mut Object, is_object_root: bool, path: &str, dropped: &mut Vec<String>) {
    let unknown: Vec<String> = object
        .keys()
        .filter(|key| {
            !(schema.properties.contains_key(*key)
                || schema.additional.is_some()
                || schema.preserve_unknown
                || is_object_root && ROOT.contains(&key.as_str()))
        })
        .cloned()
        .collect();
    for key in unknown {
        object.remove(&key);
        dropped.push(join(path, &key));
    }
    for (key, value) in object.iter_mut() {
        if is_object_root && ROOT.contains(&key.as_str()) {
            continue;
        }
        let child = schema.properties.get(key).or(schema.additional.as_deref());
        if let Some(child) = child {
            prune(child, value, &join(path, key), dropped);
        }
    }
}

fn prune(schema: &Node, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => fields(schema, map, schema.embedded, path, dropped),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter_mut().enumerate() {
                    prune(schema, item, &format!("{path}[{index}]"), dropped);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
