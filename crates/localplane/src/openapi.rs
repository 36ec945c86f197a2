//! The OpenAPI documents: version 2, as JSON and as the protobuf that kubectl asks for, and version 3 by group.
//!
//! Made from the registry when first asked for, then kept.

mod definitions;
mod paths;
mod proto;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use self::definitions::Dialect;
use crate::{answer::json_response, registry::Registry};

/// As clients ask for it. The answer is labelled with a dot in place of `@`, which is no character of a media type.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_LABEL: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The documents of one registry.
pub(crate) struct Documents {
    registry: Arc<Registry>,
    v2: OnceLock<Value>,
    v2_proto: OnceLock<Bytes>,
    v3: OnceLock<HashMap<String, Bytes>>,
}

impl Documents {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            v2: OnceLock::new(),
            v2_proto: OnceLock::new(),
            v3: OnceLock::new(),
        }
    }

    /// `/openapi/v2`
    pub(crate) fn v2(&self, headers: &HeaderMap) -> Response {
        let document = self.v2.get_or_init(|| v2_document(&self.registry));
        let wants_protobuf = headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| {
                accept.split(',').any(|entry| {
                    [PROTOBUF, PROTOBUF_LABEL]
                        .iter()
                        .any(|name| entry.trim().starts_with(name))
                })
            });
        if !wants_protobuf {
            return json_response(StatusCode::OK, document.to_string());
        }
        let encoded = self.v2_proto.get_or_init(|| proto::document(document).into());
        let mut response = Response::new(Body::from(encoded.clone()));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_LABEL));
        response
    }

    /// `/openapi/v3`
    pub(crate) fn v3_index(&self) -> Response {
        let paths: Map<String, Value> = self
            .v3()
            .iter()
            .map(|(path, document)| {
                let url = format!("/openapi/v3/{path}?hash={:X}", checksum(document));
                (path.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        json_response(StatusCode::OK, json!({ "paths": paths }).to_string())
    }

    /// `/openapi/v3/<path>`
    pub(crate) fn v3_document(&self, path: &str) -> Option<Response> {
        let document = self.v3().get(path)?;
        Some(json_response(StatusCode::OK, document.clone()))
    }

    fn v3(&self) -> &HashMap<String, Bytes> {
        self.v3.get_or_init(|| v3_documents(&self.registry))
    }
}

fn v2_document(registry: &Registry) -> Value {
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths::all(registry, |_| true, Dialect::V2),
        "definitions": definitions::all(registry, |_| true, Dialect::V2),
    })
}

fn v3_documents(registry: &Registry) -> HashMap<String, Bytes> {
    let mut documents = HashMap::new();
    for (group, versions) in registry.group_versions() {
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let here = |served: &crate::registry::Version| served.group == group && served.name == version;
            let document = json!({
                "openapi": "3.0.0",
                "info": info(),
                "paths": paths::all(registry, here, Dialect::V3),
                "components": {"schemas": definitions::all(registry, here, Dialect::V3)},
            });
            documents.insert(path, Bytes::from(document.to_string()));
        }
    }
    documents
}

fn info() -> Value {
    json!({"title": "Larder", "version": env!("CARGO_PKG_VERSION")})
}

/// FNV-1a: tells clients whether a document is the one they have.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
