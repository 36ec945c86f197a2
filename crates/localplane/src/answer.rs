//! Answers: one object, a list, a table, metadata alone. Knows formats, not resources' rules.

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    builtin,
    object::Object,
    registry::Shape,
    request::{Format, Query, Target},
    store::Listing,
    stored::{Shared, Stored},
};

/// A JSON answer.
pub(crate) fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The most bytes of warnings in one answer, as in kube-apiserver; an object can have more unknown fields than an
/// answer can have headers.
const MAX_WARNING_BYTES: usize = 4 << 10;

/// Adds what the client should know beside the answer.
pub(crate) fn warn(mut response: Response, warnings: &[String]) -> Response {
    let mut size = 0;
    for warning in warnings {
        size += warning.len();
        if MAX_WARNING_BYTES < size {
            break;
        }
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The object in the shape of the endpoint it was asked through.
pub(crate) fn shaped(target: &Target, stored: &Stored) -> Object {
    let mut object = stored.object(&target.version().api_version());
    if target.version().shape == Shape::EventsV1 {
        builtin::to_events_v1(&mut object);
    }
    object
}

fn shaped_json(target: &Target, stored: &Stored) -> Bytes {
    match target.version().shape {
        Shape::Stored => stored.json(&target.version().api_version()),
        Shape::EventsV1 => Value::Object(shaped(target, stored)).to_string().into(),
    }
}

/// One object.
pub(crate) fn one(
    status: StatusCode,
    target: &Target,
    stored: &Stored,
    format: Format,
    query: &Query,
    now: Timestamp,
) -> Response {
    json_response(status, one_json(target, stored, format, query, now, true))
}

/// The text of one object; of a table without its columns if they were sent before.
pub(crate) fn one_json(
    target: &Target,
    stored: &Stored,
    format: Format,
    query: &Query,
    now: Timestamp,
    columns: bool,
) -> Bytes {
    match format {
        Format::Whole => shaped_json(target, stored),
        Format::Metadata => partial(&stored.object("")).to_string().into(),
        Format::Table => {
            let mut table = table_head(target, columns);
            table["metadata"]["resourceVersion"] = stored.revision.to_string().into();
            table["rows"] = json!([row(target, stored, query, now)]);
            table.to_string().into()
        }
    }
}

/// An object that is not stored: the outcome of a dry run.
pub(crate) fn unstored(status: StatusCode, target: &Target, mut object: Object) -> Response {
    object.insert("apiVersion".into(), target.version().api_version().into());
    object.insert("kind".into(), target.resource.kind.clone().into());
    if target.version().shape == Shape::EventsV1 {
        builtin::to_events_v1(&mut object);
    }
    json_response(status, Value::Object(object).to_string())
}

fn partial(object: &Object) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn table_head(target: &Target, columns: bool) -> Value {
    let definitions: Vec<Value> = if columns {
        target
            .version()
            .columns
            .iter()
            .map(crate::table::Column::definition)
            .collect()
    } else {
        Vec::new()
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
    })
}

fn row(target: &Target, stored: &Stored, query: &Query, now: Timestamp) -> Value {
    let object = stored.object(&target.version().api_version());
    let cells: Vec<Value> = target
        .version()
        .columns
        .iter()
        .map(|column| column.cell(&object, now))
        .collect();
    let included = match query.get("includeObject") {
        Some("None") => Value::Null,
        Some("Object") => Value::Object(shaped(target, stored)),
        _ => partial(&object),
    };
    if included.is_null() {
        json!({ "cells": cells })
    } else {
        json!({ "cells": cells, "object": included })
    }
}

/// What a list says about itself.
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListMeta {
    fn json(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.token {
            meta["continue"] = token.clone().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }
}

/// A list of objects, streamed, so that a long one is never held as one piece of text.
pub(crate) fn list(
    target: &Target,
    listing: Listing,
    meta: &ListMeta,
    format: Format,
    query: &Query,
    now: Timestamp,
) -> Response {
    match format {
        Format::Whole => {
            let head = format!(
                r#"{{"kind":{},"apiVersion":{},"metadata":{},"items":["#,
                Value::from(target.resource.list_kind.as_str()),
                Value::from(target.version().api_version()),
                meta.json()
            );
            stream_items(target.clone(), head, listing.objects, shaped_json)
        }
        Format::Metadata => {
            let head = format!(
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":["#,
                meta.json()
            );
            stream_items(target.clone(), head, listing.objects, |_, stored| {
                partial(&stored.object("")).to_string().into()
            })
        }
        Format::Table => {
            let mut table = table_head(target, true);
            table["metadata"] = meta.json();
            table["rows"] = listing
                .objects
                .iter()
                .map(|stored| row(target, stored, query, now))
                .collect();
            json_response(StatusCode::OK, table.to_string())
        }
    }
}

/// Text is gathered into pieces of this size, so that small objects do not each cost a write.
const PIECE: usize = 64 << 10;

fn stream_items(target: Target, head: String, objects: Vec<Shared>, text: fn(&Target, &Stored) -> Bytes) -> Response {
    let mut objects = objects.into_iter();
    let mut separator = "";
    let mut head = head;
    let mut finished = false;
    let pieces = std::iter::from_fn(move || {
        if finished {
            return None;
        }
        let mut piece = BytesMut::from(head.as_bytes());
        head.clear();
        while piece.len() < PIECE {
            let Some(object) = objects.next() else {
                piece.extend_from_slice(b"]}\n");
                finished = true;
                break;
            };
            piece.extend_from_slice(separator.as_bytes());
            separator = ",";
            piece.extend_from_slice(&text(&target, &object));
        }
        Some(Ok::<_, std::convert::Infallible>(piece.freeze()))
    });
    json_response(StatusCode::OK, Body::from_stream(stream::iter(pieces)))
}
