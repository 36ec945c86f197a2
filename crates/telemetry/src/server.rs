//! `/healthz`, `/readyz` and `/metrics`. Answers are made from memory: a probe never waits for anything.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::Health;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct ServerState {
    health: Health,
    registry: Arc<Registry>,
}

/// The three paths, to be served alone or beside others.
pub fn router(health: Health, registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(ServerState { health, registry })
}

/// Serves the three paths until `stop` ends.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    registry: Arc<Registry>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(health, registry))
        .with_graceful_shutdown(stop)
        .await
}

async fn healthz(State(state): State<ServerState>) -> Response {
    probe_response(state.health.not_alive())
}

async fn readyz(State(state): State<ServerState>) -> Response {
    probe_response(state.health.not_ready())
}

fn probe_response(trouble: Option<String>) -> Response {
    match trouble {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(lines) => (StatusCode::SERVICE_UNAVAILABLE, lines).into_response(),
    }
}

async fn metrics(State(state): State<ServerState>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &state.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_but_not_ready_until_every_part_is() {
        let health = Health::default();
        let part = health.part("runtime");
        let router = router(health, Arc::default());
        assert_eq!(ask(&router, "/healthz").await.0, StatusCode::OK);
        let (status, text) = ask(&router, "/readyz").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "runtime: starting\n")
        );
        part.ready();
        assert_eq!(ask(&router, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        part.dead("over");
        assert_eq!(ask(&router, "/healthz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text() {
        let mut registry = Registry::with_prefix("larder");
        let pulls = Counter::<u64>::default();
        registry.register("pulls", "Pulls", pulls.clone());
        pulls.inc();
        let (status, text) = ask(&router(Health::default(), Arc::new(registry)), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            text.contains("larder_pulls_total 1\n") && text.ends_with("# EOF\n"),
            "{text}"
        );
    }
}
