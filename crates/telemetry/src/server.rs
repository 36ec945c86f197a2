//! `/healthz`, `/readyz` and `/metrics`. Answers are made from memory: a probe never waits for anything.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::{Health, MetricsAccess};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const REFUSED: &str = "send the bearer token of /metrics, or ask from the same machine over its loopback address\n";

/// What is endpoints.
#[derive(Clone)]
pub struct Endpoints {
    /// Behind `/healthz` and `/readyz`.
    pub health: Health,
    /// Behind `/metrics`.
    pub registry: Arc<Registry>,
    /// Who may read the metrics.
    pub metrics_access: MetricsAccess,
}

fn router(endpoints: Endpoints) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(endpoints)
}

/// Serves the three paths until `stop` ends.
pub async fn serve(
    listener: TcpListener,
    endpoints: Endpoints,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let service = router(endpoints).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stop).await
}

async fn healthz(State(endpoints): State<Endpoints>) -> Response {
    probe_response(endpoints.health.not_alive())
}

async fn readyz(State(endpoints): State<Endpoints>) -> Response {
    probe_response(endpoints.health.not_ready())
}

fn probe_response(trouble: Option<String>) -> Response {
    match trouble {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(lines) => (StatusCode::SERVICE_UNAVAILABLE, lines).into_response(),
    }
}

async fn metrics(
    State(endpoints): State<Endpoints>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if !endpoints.metrics_access.allows(peer, &headers).await {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, REFUSED).into_response();
    }
    let mut text = String::new();
    match encode(&mut text, &endpoints.registry) {
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

    fn of(health: Health, registry: Registry, metrics_access: MetricsAccess) -> Router {
        router(Endpoints {
            health,
            registry: Arc::new(registry),
            metrics_access,
        })
    }

    async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        let peer = SocketAddr::from(([10, 0, 0, 7], 5000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_but_not_ready_until_every_part_is() {
        let health = Health::default();
        let part = health.part("runtime");
        let router = of(health, Registry::default(), MetricsAccess::Open);
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
        let (status, text) = ask(&of(Health::default(), registry, MetricsAccess::Open), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            text.contains("larder_pulls_total 1\n") && text.ends_with("# EOF\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn protected_metrics_are_refused_and_health_is_not() {
        let access = MetricsAccess::Protected { token_file: None };
        let router = of(Health::default(), Registry::default(), access);
        let (status, text) = ask(&router, "/metrics").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(text.contains("token"), "{text}");
        assert_eq!(ask(&router, "/readyz").await.0, StatusCode::OK);
    }
}
