//! PUT of one object or of its status.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::{
    RequestContext,
    create::{as_json, check_namespace},
};
use crate::{
    admit::{self, Incoming, UpdateKind},
    answer,
    error::ApiError,
    object,
    store::{Change, ReadView, WriteResult},
    stored::Key,
};

pub(super) async fn update(context: &RequestContext, body: Bytes) -> Result<Response, ApiError> {
    let body = as_json(context, body)?;
    let key = context.key()?;
    let part = context.part()?;
    let Incoming { mut object, warnings } = admit::decode(&context.target, &body, context.strictness()?)?;
    check_namespace(context, &mut object)?;
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
        let target = context.target.clone();
        move |reading: &ReadView<'_>| {
            let current = reading
                .get(&key)
                .ok_or_else(|| ApiError::not_found(&target.subject(), &key.name.name))?;
            let old = current.object(&target.version().api_version());
            admit::update(&target, &current, &old, object.clone(), part, UpdateKind::Replaced)
        }
    };
    let response = write(context, key, decide).await?;
    Ok(answer::warn(response, &warnings))
}

/// Carries out a decision on an object that exists, or tries it, and answers with the object.
pub(super) async fn write(
    context: &RequestContext,
    key: Key,
    decide: impl Fn(&ReadView<'_>) -> Result<Change, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let store = &context.plane.store;
    if context.dry_run()? {
        return Ok(match store.dry_run(decide)? {
            Change::Put(object) | Change::Remove(object) => answer::unstored(StatusCode::OK, &context.target, object),
            Change::Keep(stored) => answer::one(
                StatusCode::OK,
                &context.target,
                &stored,
                context.format,
                &context.query,
                store.now(),
            ),
        });
    }
    let WriteResult { object, created, .. } = store.write(key, decide).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer::one(
        status,
        &context.target,
        &object,
        context.format,
        &context.query,
        store.now(),
    ))
}
