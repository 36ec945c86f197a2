//! Filling in schema defaults. A null where none may stand counts as not given.

use serde_json::Value;

use super::Node;
use crate::object::Object;

/// Fills in a whole object. `metadata` is left alone.
pub(super) fn object(schema: &Node, object: &mut Object) {
    drop_nulls(schema, object, true);
    fields(schema, object, true);
}

/// Nulls with a default are left to `fields`, which replaces them.
fn drop_nulls(schema: &Node, object: &mut Object, root: bool) {
    object.retain(|key, value| {
        let child = schema.properties.get(key).or(schema.additional.as_deref());
        !(value.is_null() && child.is_some_and(|child| !child.nullable && child.default.is_none()))
    });
    for (key, value) in object.iter_mut() {
        if root && key == "metadata" {
            continue;
        }
        if let Some(child) = schema.properties.get(key).or(schema.additional.as_deref()) {
            drop_nulls_in(child, value);
        }
    }
}

fn drop_nulls_in(schema: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => drop_nulls(schema, map, false),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    drop_nulls_in(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn fields(schema: &Node, object: &mut Object, root: bool) {
    if !schema.has_defaults {
        return;
    }
    for (name, property) in &schema.properties {
        if root && name == "metadata" {
            continue;
        }
        if let Some(default) = &property.default {
            let absent = match object.get(name) {
                None => true,
                // A null that may not stand there counts as not given.
                Some(Value::Null) => !property.nullable,
                Some(_) => false,
            };
            if absent {
                object.insert(name.clone(), default.clone());
            }
        }
        if let Some(value) = object.get_mut(name) {
            fill(property, value);
        }
    }
    if let Some(additional) = &schema.additional {
        for (key, value) in object.iter_mut() {
            if schema.properties.contains_key(key) {
                continue;
            }
            if value.is_null()
                && !additional.nullable
                && let Some(default) = &additional.default
            {
                *value = default.clone();
            }
            fill(additional, value);
        }
    }
}

fn fill(schema: &Node, value: &mut Value) {
    if !schema.has_defaults {
        return;
    }
    match value {
        Value::Object(map) => fields(schema, map, false),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    if item.is_null()
                        && !schema.nullable
                        && let Some(default) = &schema.default
                    {
                        *item = default.clone();
                    }
                    fill(schema, item);
                }
            }
        }
        _ => {}
    }
}
