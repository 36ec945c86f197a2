//! PUT of one object or of its status.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::{
    Asked,
    create::{as_json, check_namespace},
};
use crate::{
    admit::{self, Incoming, Way},
    answer,
    error::ApiError,
    object,
    store::{Change, Outcome, Reading},
    stored::Key,
};

pub(super) async fn update(asked: &Asked, body: Bytes) -> Result<Response, ApiError> {
    let body = as_json(asked, body)?;
    let key = asked.key()?;
    let part = asked.part()?;
    let Incoming { mut object, warnings } = admit::decode(&asked.target, &body, asked.strictness()?)?;
    check_namespace(asked, &mut object)?;
    let name = object::meta_str(&object, "name");
    if name.is_empty() {
        object::set_meta(&mut object, "name", Some(key.name.name.clone().into()));
    } else if name != key.name.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name.name
        )));
    }
    let decide = {
        let key = key.clone();
        let target = asked.target.clone();
        move |reading: &Reading<'_>| {
            let current = reading
                .get(&key)
                .ok_or_else(|| ApiError::not_found(&target.subject(), &key.name.name))?;
            let old = current.object(&target.version().api_version());
            admit::update(&target, &current, &old, object.clone(), part, Way::Replaced)
        }
    };
    let response = write(asked, key, decide).await?;
    Ok(answer::warn(response, &warnings))
}

/// Carries out a decision on an object that exists, or tries it, and answers with the object.
pub(super) async fn write(
    asked: &Asked,
    key: Key,
    decide: impl Fn(&Reading<'_>) -> Result<Change, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let store = &asked.plane.store;
    if asked.dry_run()? {
        return Ok(match store.dry_run(decide)? {
            Change::Put(object) | Change::Remove(object) => answer::unstored(StatusCode::OK, &asked.target, object),
            Change::Keep(stored) => answer::one(
                StatusCode::OK,
                &asked.target,
                &stored,
                asked.format,
                &asked.query,
                store.now(),
            ),
        });
    }
    let Outcome { object, created, .. } = store.write(key, decide).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer::one(
        status,
        &asked.target,
        &object,
        asked.format,
        &asked.query,
        store.now(),
    ))
}
