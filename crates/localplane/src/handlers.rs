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
    memory::Content,
    plane::Plane,
    protobuf,
    request::{FieldValidation, Format, Query, Target, content_type, format},
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

    /// What has to be parsed for this request: its body, and the object that it changes.
    fn content(&self, body: &Bytes) -> Result<Content, ApiError> {
        let sent = match content_type(&self.headers) {
            // What is damaged is refused by what reads it.
            protobuf::MEDIA_TYPE => protobuf::content(body).unwrap_or_default(),
            _ => Content::of_json(body),
        };
        let stored = self.key().ok().and_then(|key| self.plane.store.get(&key));
        let stored = stored.map_or_else(Content::default, |stored| Content::of_json(stored.tail()));
        Ok(sent.check()? + stored)
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
    let (body, _until_answered) = if writes {
        let body = whole(body).await?;
        let needed = context.content(&body)?;
        (body, context.plane.memory.reserve(needed).await)
    } else {
        (Bytes::new(), None)
    };
    let warnings = context.warnings(Vec::new());
    let named = context.target.name.is_some();
    let subresource = context.target.subresource.is_some();
    let watches = context.query.switch("watch");
    let response = match (parts.method, named) {
        (Method::GET, false) if watches => watch::watch(context)?,
        (Method::GET, false) => list::list(&context)?,
        (Method::GET, true) => read::get(&context)?,
        (Method::POST, false) => create::create(&context, body).await?,
        (Method::PUT, true) => update::update(&context, body).await?,
        (Method::PATCH, true) => patch::patch(&context, body).await?,
        (Method::DELETE, true) if !subresource => delete::one(&context, body).await?,
        (Method::PUT | Method::PATCH, false) if context.target.resource.builtin.is_none() => {
            return Err(ApiError::bad_request("name must be provided"));
        }
        (Method::DELETE, false) => delete::collection(&context, body).await?,
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
