//! From a request to an answer: which resource, which verb, which handler.

mod create;
mod delete;
mod list;
mod patch;
mod read;
mod update;
mod watch;

use std::sync::Arc;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{
    admit::Part,
    answer,
    error::ApiError,
    plane::Plane,
    request::{FieldValidation, Format, Query, Target, format},
    stored::{Key, ObjectName},
};

pub(crate) use delete::{Deletion, delete as decide_deletion};

/// The most a body may hold, as the cluster's API server has it.
pub(crate) const BODY_LIMIT: usize = 3 << 20;

/// A request that is understood so far: everything but its verb and its body.
pub(crate) struct RequestContext {
    pub(crate) plane: Arc<Plane>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) format: Format,
}

impl RequestContext {
    /// The object the path names.
    pub(crate) fn key(&self) -> Result<Key, ApiError> {
        Ok(self.key_of(self.target.named()?))
    }

    pub(crate) fn key_of(&self, name: &str) -> Key {
        Key {
            resource: self.target.resource.id,
            name: ObjectName {
                namespace: self.target.namespace.clone().unwrap_or_default(),
                name: name.to_owned(),
            },
        }
    }

    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        self.query.dry_run(&self.target.subject())
    }

    pub(crate) fn strictness(&self) -> Result<FieldValidation, ApiError> {
        FieldValidation::of(&self.query)
    }

    /// The part of the object this endpoint changes.
    pub(crate) fn part(&self) -> Result<Part, ApiError> {
        match self.target.subresource.as_deref() {
            None => Ok(Part::Main),
            Some("status") if self.target.version().status => Ok(Part::Status),
            Some(_) => Err(ApiError::no_such_resource()),
        }
    }

    fn warnings(&self, more: Vec<String>) -> Vec<String> {
        let deprecation = self.target.version().deprecation.clone();
        deprecation.into_iter().chain(more).collect()
    }
}

/// Answers a request below `/api` or `/apis` that names a resource.
pub(crate) async fn resource(plane: Arc<Plane>, request: Request<Body>) -> Response {
    match answer(plane, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn answer(plane: Arc<Plane>, request: Request<Body>) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let context = RequestContext {
        target: Target::parse(plane.store.registry(), parts.uri.path())?,
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        format: format(&parts.headers)?,
        headers: parts.headers,
        plane,
    };
    context.part()?;
    let writes = matches!(
        parts.method,
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    );
    if writes && context.target.resource.is_read_only() {
        return Err(ApiError::method_not_allowed());
    }
    let warnings = context.warnings(Vec::new());
    let named = context.target.name.is_some();
    let subresource = context.target.subresource.is_some();
    let watches = context.query.switch("watch");
    let response = match (parts.method, named) {
        (Method::GET, false) if watches => watch::watch(context)?,
        (Method::GET, false) => list::list(&context)?,
        (Method::GET, true) => read::get(&context)?,
        (Method::POST, false) => create::create(&context, whole(body).await?).await?,
        (Method::PUT, true) => update::update(&context, whole(body).await?).await?,
        (Method::PATCH, true) => patch::patch(&context, whole(body).await?).await?,
        (Method::DELETE, true) if !subresource => delete::one(&context, whole(body).await?).await?,
        (Method::PUT | Method::PATCH, false) if context.target.resource.builtin.is_none() => {
            return Err(ApiError::bad_request("name must be provided"));
        }
        (Method::DELETE, false) => delete::collection(&context, whole(body).await?).await?,
        _ => return Err(ApiError::method_not_allowed()),
    };
    Ok(answer::warn(response, &warnings))
}

/// The whole body, if it is not too large.
async fn whole(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(BODY_LIMIT)),
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
    }
}
