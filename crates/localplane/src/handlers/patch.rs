//! PATCH of one object or of its status.

use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;

use super::{RequestContext, update::write};
use crate::{
    admit::{self, UpdateKind},
    answer,
    error::ApiError,
    object::{self, Object},
    patch::{json, merge, strategic},
    request::content_type,
    store::ReadView,
};

/// A patch that is read and not yet applied.
#[derive(Clone)]
enum Patch {
    Merge(Value),
    Json(Value),
    Strategic(Value),
}

const FOR_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json";
const FOR_BUILTIN: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

pub(super) async fn patch(context: &RequestContext, body: Bytes) -> Result<Response, ApiError> {
    let patch = read(context, &body)?;
    let key = context.key()?;
    let part = context.part()?;
    let strictness = context.strictness()?;
    let warnings = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let decide = {
        let key = key.clone();
        let target = context.target.clone();
        let shared_warnings = std::sync::Arc::clone(&warnings);
        move |reading: &ReadView<'_>| {
            let current = reading
                .get(&key)
                .ok_or_else(|| ApiError::not_found(&target.subject(), &key.name.name))?;
            let patched = patch.apply(answer::shaped(&target, &current))?;
            let incoming = admit::normalize(&target, patched, strictness)?;
            *shared_warnings
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = incoming.warnings;
            check_identity(&incoming.object, &key.name)?;
            let old = current.object(&target.version().api_version());
            admit::update(&target, &current, &old, incoming.object, part, UpdateKind::Patched)
        }
    };
    let response = write(context, key, decide).await?;
    let warnings = std::mem::take(&mut *warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    Ok(answer::warn(response, &warnings))
}

fn read(context: &RequestContext, body: &[u8]) -> Result<Patch, ApiError> {
    let builtin = context.target.resource.builtin.is_some();
    let kind: fn(Value) -> Patch = match content_type(&context.headers) {
        "application/merge-patch+json" => Patch::Merge,
        "application/json-patch+json" => Patch::Json,
        "application/strategic-merge-patch+json" if builtin => Patch::Strategic,
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            return Err(ApiError::unsupported_media_type(&format!(
                "{FOR_CUSTOM}; server-side apply is not served here: use client-side apply (kubectl apply without \
                 --server-side) or a merge patch"
            )));
        }
        _ => {
            return Err(ApiError::unsupported_media_type(if builtin {
                FOR_BUILTIN
            } else {
                FOR_CUSTOM
            }));
        }
    };
    let value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    Ok(kind(value))
}

impl Patch {
    fn apply(&self, object: Object) -> Result<Object, ApiError> {
        let mut value = Value::Object(object);
        match self {
            Self::Merge(patch) => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request(
                        "error decoding patch: a merge patch must be a JSON object",
                    ));
                }
                merge::apply(&mut value, patch);
            }
            Self::Json(patch) => json::apply(&mut value, patch.clone())?,
            Self::Strategic(patch) => strategic::apply(&mut value, patch)?,
        }
        match value {
            Value::Object(object) => Ok(object),
            _ => Err(ApiError::unprocessable()),
        }
    }
}

/// A patch cannot rename an object.
fn check_identity(object: &Object, name: &crate::stored::ObjectName) -> Result<(), ApiError> {
    let is = object::meta_str(object, "name");
    if is != name.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({is}) does not match the name on the URL ({})",
            name.name
        )));
    }
    if object::meta_str(object, "namespace") != name.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
