//! Every path of the server.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, Request, StatusCode};
use serde_json::json;

use crate::{answer::json_response, discovery, error::ApiError, handlers, plane::Plane};

/// The Kubernetes version whose behaviour is served.
const LEVEL: (&str, &str) = ("1", "36");

pub(crate) fn router(plane: Arc<Plane>) -> Router {
    Router::new()
        .route("/version", get(version))
        .route("/healthz", get(healthy))
        .route("/livez", get(healthy))
        .route("/readyz", get(healthy))
        .route("/api", get(core_versions))
        .route("/apis", get(groups))
        .route("/api/{version}", get(core_resources))
        .route("/apis/{group}", get(group))
        .route("/apis/{group}/{version}", get(group_resources))
        .route("/openapi/v2", get(openapi_v2))
        .route("/openapi/v3", get(openapi_v3))
        .route("/openapi/v3/{*path}", get(openapi_v3_document))
        .fallback(resource)
        .with_state(plane)
}

async fn version() -> Response {
    let (major, minor) = LEVEL;
    let body = json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("v{major}.{minor}.0+larder-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    json_response(StatusCode::OK, body.to_string())
}

async fn healthy(State(plane): State<Arc<Plane>>) -> Response {
    if plane.stop.is_cancelled() {
        return ApiError::shutting_down().into_response();
    }
    "ok".into_response()
}

async fn core_versions(State(plane): State<Arc<Plane>>, headers: HeaderMap) -> Response {
    discovery::core_versions(plane.store.registry(), &headers)
}

async fn groups(State(plane): State<Arc<Plane>>, headers: HeaderMap) -> Response {
    discovery::groups(plane.store.registry(), &headers)
}

async fn core_resources(State(plane): State<Arc<Plane>>, Path(version): Path<String>) -> Response {
    found(discovery::resources(plane.store.registry(), "", &version))
}

async fn group(State(plane): State<Arc<Plane>>, Path(group): Path<String>) -> Response {
    found(discovery::group(plane.store.registry(), &group))
}

async fn group_resources(State(plane): State<Arc<Plane>>, Path((group, version)): Path<(String, String)>) -> Response {
    found(discovery::resources(plane.store.registry(), &group, &version))
}

async fn openapi_v2(State(plane): State<Arc<Plane>>, headers: HeaderMap) -> Response {
    plane.documents.v2(&headers)
}

async fn openapi_v3(State(plane): State<Arc<Plane>>) -> Response {
    plane.documents.v3_index()
}

async fn openapi_v3_document(State(plane): State<Arc<Plane>>, Path(path): Path<String>) -> Response {
    found(plane.documents.v3_document(&path))
}

async fn resource(State(plane): State<Arc<Plane>>, request: Request<Body>) -> Response {
    handlers::resource(plane, request).await
}

fn found(response: Option<Response>) -> Response {
    response.unwrap_or_else(|| ApiError::no_such_resource().into_response())
}
