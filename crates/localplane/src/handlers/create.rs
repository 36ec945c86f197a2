//! POST to a collection.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::RequestContext;
use crate::{
    admit::{self, Incoming},
    answer,
    error::{ApiError, Cause},
    object::{self, Object},
    protobuf,
    request::{Target, content_type},
    store::{Change, ReadView},
    stored::{Key, ObjectName},
};

/// How often a generated name may be taken already.
const TRIES: usize = 8;

pub(super) async fn create(context: &RequestContext, body: Bytes) -> Result<Response, ApiError> {
    let body = as_json(context, body)?;
    let Incoming { mut object, warnings } = admit::decode(&context.target, &body, context.strictness()?)?;
    check_namespace(context, &mut object)?;
    let prefix = object::meta_str(&object, "generateName").to_owned();
    let generated = object::meta_str(&object, "name").is_empty() && !prefix.is_empty();
    let dry_run = context.dry_run()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut attempt = object.clone();
        if generated {
            // A name has 63 characters at most; the prefix gives way to the part that makes it unique.
            let kept: String = prefix.chars().take(58).collect();
            let name = format!("{kept}{}", object::name_suffix());
            object::set_meta(&mut attempt, "name", Some(name.into()));
        }
        let attempt = admit::create(&context.target, attempt, context.plane.store.now())?;
        let name = object::meta_str(&attempt, "name").to_owned();
        match store(context, &name, attempt, dry_run).await {
            Err(error) if generated && tries < TRIES && error.reason() == "AlreadyExists" => {}
            other => return other.map(|response| answer::warn(response, &warnings)),
        }
    }
}

async fn store(context: &RequestContext, name: &str, object: Object, dry_run: bool) -> Result<Response, ApiError> {
    let plane = &context.plane;
    let key = context.key_of(name);
    let target = context.target.clone();
    let namespace = context
        .target
        .namespace
        .as_deref()
        .map(|namespace| namespace_key(plane.namespaces, namespace));
    let decide = {
        let key = key.clone();
        move |reading: &ReadView<'_>| {
            if let Some(namespace) = &namespace {
                check_namespace_lives(reading, namespace, &target, &key.name.name)?;
            }
            if reading.get(&key).is_some() {
                return Err(ApiError::already_exists(&target.subject(), &key.name.name));
            }
            Ok(Change::Put(object.clone()))
        }
    };
    if dry_run {
        return Ok(match plane.store.dry_run(decide)? {
            Change::Put(object) | Change::Remove(object) => {
                answer::unstored(StatusCode::CREATED, &context.target, object)
            }
            Change::Keep(stored) => answer::one(
                StatusCode::CREATED,
                &context.target,
                &stored,
                context.format,
                &context.query,
                plane.store.now(),
            ),
        });
    }
    let outcome = plane.store.write(key, decide).await?;
    let now = plane.store.now();
    Ok(answer::one(
        StatusCode::CREATED,
        &context.target,
        &outcome.object,
        context.format,
        &context.query,
        now,
    ))
}

/// The body as JSON.
pub(super) fn as_json(context: &RequestContext, body: Bytes) -> Result<Bytes, ApiError> {
    match content_type(&context.headers) {
        "" | "application/json" => Ok(body),
        protobuf::MEDIA_TYPE if context.target.resource.builtin.is_some() => protobuf::decode(&body)
            .map(|object| object.to_string().into())
            .ok_or_else(|| ApiError::bad_request("the body is damaged, or of a kind that has no protobuf form")),
        _ => Err(ApiError::unsupported_media_type("application/json")),
    }
}

/// The namespace of the path counts; an object may repeat it or leave it out.
pub(super) fn check_namespace(context: &RequestContext, object: &mut Object) -> Result<(), ApiError> {
    let given = object::meta_str(object, "namespace").to_owned();
    match &context.target.namespace {
        Some(namespace) => {
            if !given.is_empty() && given != *namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            object::set_meta(object, "namespace", Some(namespace.clone().into()));
        }
        None if context.target.resource.namespaced => {
            return Err(ApiError::bad_request(
                "an empty namespace may not be set during creation",
            ));
        }
        None if !given.is_empty() => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        None => object::set_meta(object, "namespace", None),
    }
    Ok(())
}

pub(super) fn namespace_key(resource: usize, name: &str) -> Key {
    Key {
        resource,
        name: ObjectName {
            namespace: String::new(),
            name: name.to_owned(),
        },
    }
}

/// Nothing is created in a namespace that does not exist or is being deleted.
fn check_namespace_lives(reading: &ReadView<'_>, namespace: &Key, target: &Target, name: &str) -> Result<(), ApiError> {
    let namespace_name = &namespace.name.name;
    match reading.get(namespace) {
        None => {
            let subject = crate::error::Subject {
                group: String::new(),
                plural: "namespaces".into(),
                kind: "Namespace".into(),
            };
            Err(ApiError::not_found(&subject, namespace_name))
        }
        Some(stored) if stored.deleting => {
            let why =
                format!("unable to create new content in namespace {namespace_name} because it is being terminated");
            Err(ApiError::forbidden(&target.subject(), name, why).with_cause(&Cause {
                reason: "NamespaceTerminating",
                message: format!("namespace {namespace_name} is being terminated"),
                field: "metadata.namespace".into(),
            }))
        }
        Some(_) => Ok(()),
    }
}
