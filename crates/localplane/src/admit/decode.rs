//! Reading the object in a body: its format, its kind, its types, and unknown fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    builtin,
    error::{ApiError, Cause, Subject},
    object::{self, Object},
    registry::Shape,
    request::{FieldValidation, Target},
};

/// An object as it came in, in the stored shape, and the warnings for the client.
pub(crate) struct Incoming {
    pub(crate) object: Object,
    pub(crate) warnings: Vec<String>,
}

/// Reads a whole object from a body.
pub(crate) fn decode(target: &Target, body: &[u8], strictness: FieldValidation) -> Result<Incoming, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
             {error}",
            target.resource.kind
        ))
    })?;
    let Value::Object(object) = value else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): it is not a JSON object",
            target.resource.kind
        )));
    };
    normalize(target, object, strictness)
}

/// Checks kind and version, then brings the object into its schema's form.
pub(crate) fn normalize(
    target: &Target,
    mut object: Object,
    strictness: FieldValidation,
) -> Result<Incoming, ApiError> {
    check_kind(target, &mut object)?;
    if target.version().shape == Shape::EventsV1 {
        builtin::from_events_v1(&mut object);
    }
    let unknown = if let Some(builtin) = target.resource.builtin {
        let before = Value::Object(object);
        let after = (builtin.normalize)(before.clone()).map_err(|error| unreadable(target, &error))?;
        let mut unknown = Vec::new();
        lost_fields(&before, &after, "", &mut unknown);
        object = match after {
            Value::Object(object) => object,
            _ => Object::new(),
        };
        unknown
    } else {
        let mut unknown = Vec::new();
        if let Some(meta) = object.remove("metadata") {
            let after = serde_json::from_value::<ObjectMeta>(meta.clone())
                .and_then(serde_json::to_value)
                .map_err(|error| unreadable(target, &error))?;
            lost_fields(&meta, &after, "metadata", &mut unknown);
            object.insert("metadata".into(), after);
        }
        if let Some(schema) = &target.version().schema {
            unknown.extend(schema.prune(&mut object));
        }
        unknown
    };
    let mut warnings: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match strictness {
        FieldValidation::Ignore => warnings.clear(),
        FieldValidation::Warn => {}
        FieldValidation::Strict if warnings.is_empty() => {}
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                target.resource.kind,
                target.version().name,
                target.resource.kind,
                warnings.join(", ")
            )));
        }
    }
    Ok(Incoming { object, warnings })
}

fn check_kind(target: &Target, object: &mut Object) -> Result<(), ApiError> {
    let expected = target.version().api_version();
    for (field, want, what) in [
        ("apiVersion", expected.as_str(), "API version"),
        ("kind", target.resource.kind.as_str(), "kind"),
    ] {
        match object.get(field).and_then(Value::as_str) {
            // A built-in kind may leave both out; the path says what it is.
            None | Some("") if target.resource.builtin.is_some() => {
                object.insert(field.into(), want.into());
            }
            None | Some("") => {
                return Err(ApiError::bad_request(format!(
                    "Object '{}' is missing in '{}'",
                    if field == "kind" { "Kind" } else { "apiVersion" },
                    Value::Object(object.clone())
                )));
            }
            Some(is) if is != want && field == "kind" && target.resource.builtin.is_none() => {
                let subject = Subject {
                    kind: is.to_owned(),
                    ..target.subject()
                };
                let cause = Cause::invalid("kind", &format!("{is:?}"), format!("must be {want}"));
                return Err(ApiError::invalid(&subject, object::meta_str(object, "name"), &[cause]));
            }
            Some(is) if is != want => {
                return Err(ApiError::bad_request(format!(
                    "the {what} in the data ({is}) does not match the expected {what} ({want})"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn unreadable(target: &Target, error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {error}",
        target.resource.kind,
        target.version().name,
        target.resource.kind
    ))
}

/// Paths that were in `before` with a value and are not in `after`.
fn lost_fields(before: &Value, after: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let place = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match after.get(key) {
                    Some(after) => lost_fields(value, after, &place, lost),
                    None if is_empty(value) => {}
                    None => lost.push(place),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                lost_fields(before, after, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

/// Values that mean the same as no value, and that typed objects leave out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
