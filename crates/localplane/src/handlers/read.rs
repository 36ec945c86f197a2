//! GET of one object.

use axum::response::Response;
use http::StatusCode;

use super::RequestContext;
use crate::{answer, error::ApiError};

pub(super) fn get(context: &RequestContext) -> Result<Response, ApiError> {
    let key = context.key()?;
    let stored = context
        .plane
        .store
        .get(&key)
        .ok_or_else(|| ApiError::not_found(&context.target.subject(), &key.name.name))?;
    let now = context.plane.store.now();
    Ok(answer::one(
        StatusCode::OK,
        &context.target,
        &stored,
        context.format,
        &context.query,
        now,
    ))
}
