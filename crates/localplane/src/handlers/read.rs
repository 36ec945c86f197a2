//! GET of one object.

use axum::response::Response;
use http::StatusCode;

use super::Asked;
use crate::{answer, error::ApiError};

pub(super) fn get(asked: &Asked) -> Result<Response, ApiError> {
    let key = asked.key()?;
    let stored = asked
        .plane
        .store
        .get(&key)
        .ok_or_else(|| ApiError::not_found(&asked.target.subject(), &key.name.name))?;
    let now = asked.plane.store.now();
    Ok(answer::one(
        StatusCode::OK,
        &asked.target,
        &stored,
        asked.format,
        &asked.query,
        now,
    ))
}
