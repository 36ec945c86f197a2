//! POST to a collection.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::Asked;
use crate::{
    admit::{self, Incoming},
    answer,
    error::{ApiError, Cause},
    object::{self, Object},
    protobuf,
    request::{Target, content_type},
    store::{Change, Reading},
    stored::{Key, ObjectName},
};

/// How often a generated name may be taken already.
const TRIES: usize = 8;

pub(super) async fn create(asked: &Asked, body: Bytes) -> Result<Response, ApiError> {
    let body = as_json(asked, body)?;
    let Incoming { mut object, warnings } = admit::decode(&asked.target, &body, asked.strictness()?)?;
    check_namespace(asked, &mut object)?;
    let prefix = object::meta_str(&object, "generateName").to_owned();
    let generated = object::meta_str(&object, "name").is_empty() && !prefix.is_empty();
    let dry_run = asked.dry_run()?;
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
        let attempt = admit::create(&asked.target, attempt, asked.plane.store.now())?;
        let name = object::meta_str(&attempt, "name").to_owned();
        match store(asked, &name, attempt, dry_run).await {
            Err(error) if generated && tries < TRIES && error.reason() == "AlreadyExists" => {}
            other => return other.map(|response| answer::warn(response, &warnings)),
        }
    }
}

async fn store(asked: &Asked, name: &str, object: Object, dry_run: bool) -> Result<Response, ApiError> {
    let plane = &asked.plane;
    let key = asked.key_of(name);
    let target = asked.target.clone();
    let namespace = asked
        .target
        .namespace
        .as_deref()
        .map(|namespace| namespace_key(plane.namespaces, namespace));
    let decide = {
        let key = key.clone();
        move |reading: &Reading<'_>| {
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
                answer::unstored(StatusCode::CREATED, &asked.target, object)
            }
            Change::Keep(stored) => answer::one(
                StatusCode::CREATED,
                &asked.target,
                &stored,
                asked.format,
                &asked.query,
                plane.store.now(),
            ),
        });
    }
    let outcome = plane.store.write(key, decide).await?;
    let now = plane.store.now();
    Ok(answer::one(
        StatusCode::CREATED,
        &asked.target,
        &outcome.object,
        asked.format,
        &asked.query,
        now,
    ))
}

/// The body as JSON.
pub(super) fn as_json(asked: &Asked, body: Bytes) -> Result<Bytes, ApiError> {
    match content_type(&asked.headers) {
        "" | "application/json" => Ok(body),
        protobuf::MEDIA_TYPE if asked.target.resource.builtin.is_some() => protobuf::decode(&body)
            .map(|object| object.to_string().into())
            .ok_or_else(|| ApiError::bad_request("the body is damaged, or of a kind that has no protobuf form")),
        _ => Err(ApiError::unsupported_media_type("application/json")),
    }
}

/// The namespace of the path counts; an object may repeat it or leave it out.
pub(super) fn check_namespace(asked: &Asked, object: &mut Object) -> Result<(), ApiError> {
    let given = object::meta_str(object, "namespace").to_owned();
    match &asked.target.namespace {
        Some(namespace) => {
            if !given.is_empty() && given != *namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            object::set_meta(object, "namespace", Some(namespace.clone().into()));
        }
        None if asked.target.resource.namespaced => {
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
fn check_namespace_lives(reading: &Reading<'_>, namespace: &Key, target: &Target, name: &str) -> Result<(), ApiError> {
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
