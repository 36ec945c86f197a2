//! Reading and changing the parts that every Kubernetes object has, on plain JSON.
//!
//! Knows `metadata` and nothing of any kind's `spec`.

use rand::Rng;
use serde_json::{Map, Value};

/// An object as JSON.
pub(crate) type Object = Map<String, Value>;

/// The string at `metadata.<field>`, or an empty one.
pub(crate) fn meta_str<'a>(object: &'a Object, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `metadata`, made if it is not there.
pub(crate) fn meta_mut(object: &mut Object) -> &mut Object {
    let meta = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    match meta {
        Value::Object(map) => map,
        _ => unreachable!("metadata was made an object above"),
    }
}

/// Sets `metadata.<field>`, or removes it for `None`.
pub(crate) fn set_meta(object: &mut Object, field: &str, value: Option<Value>) {
    let meta = meta_mut(object);
    match value {
        Some(value) => {
            meta.insert(field.to_owned(), value);
        }
        None => {
            meta.remove(field);
        }
    }
}

/// `metadata.<field>` as a value.
pub(crate) fn meta<'a>(object: &'a Object, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|meta| meta.get(field))
}

/// The strings of the list `metadata.<field>`.
pub(crate) fn meta_strings<'a>(object: &'a Object, field: &str) -> Vec<&'a str> {
    meta(object, field)
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// `metadata.generation`, 0 if there is none.
pub(crate) fn generation(object: &Object) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Object) -> bool {
    meta(object, "deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// A random (version 4) uid.
pub(crate) fn new_uid() -> String {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// The five characters that `generateName` appends: no vowels and no look-alikes, as Kubernetes chooses them.
pub(crate) fn name_suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..5)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect()
}
