//! An API like KubeEdge's MetaServer: lists without resource version, watches that say nothing, empty answers while
//! the cloud is away.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimeSource, Settings};
use larder_model::NodeName;
use larder_runtime::fake::FakeRuntime;
use larder_telemetry::Health;
use larder_testkit::wait_until;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::scene::SOON;

#[derive(Clone, Default)]
struct Edge {
    /// The object, or none while the cloud is away and nothing is cached.
    object: Arc<Mutex<Option<Value>>>,
    lists: Arc<Mutex<usize>>,
}

async fn list_or_watch(
    State(edge): State<Edge>,
    Query(query): Query<std::collections::HashMap<String, String>>,
) -> Response {
    if query.contains_key("watch") {
        // Open, and silent for ever.
        return Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()).into_response();
    }
    *edge.lists.lock().unwrap() += 1;
    let items: Vec<Value> = edge.object.lock().unwrap().clone().into_iter().collect();
    Json(json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeimageList", "metadata": {}, "items": items}))
        .into_response()
}

async fn patch_status(State(edge): State<Edge>, Json(patch): Json<Value>) -> Response {
    let mut object = edge.object.lock().unwrap();
    let Some(object) = object.as_mut() else {
        return axum::http::StatusCode::BAD_GATEWAY.into_response();
    };
    merge(object, &patch);
    Json(object.clone()).into_response()
}

fn merge(object: &mut Value, patch: &Value) {
    let (Value::Object(object), Value::Object(patch)) = (&mut *object, patch) else {
        *object = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn object(generation: i64, tag: &str) -> Value {
    let policy = json!({"timeoutSeconds": 60, "backoffLimit": 1, "ttlSecondsAfterFinished": 60});
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "NodeImage",
        "metadata": {"name": "edge-1", "uid": "uid", "generation": generation},
        "spec": {"images": {"app": {"tags": [{"tag": tag, "pullPolicy": policy}]}}},
    })
}

#[tokio::test]
async fn silent_watches_and_empty_lists_do_not_stop_the_agent() {
    let edge = Edge::default();
    let router = Router::new()
        .route("/apis/apps.kruise.io/v1beta1/nodeimages", get(list_or_watch))
        .route(
            "/apis/apps.kruise.io/v1beta1/nodeimages/{name}/status",
            axum::routing::patch(patch_status),
        )
        .with_state(edge.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    larder_testkit::ControlPlane::shared(&larder_api::crds())
        .await
        .unwrap()
        .client()
        .unwrap();

    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let settings = Settings {
        silence: Duration::from_millis(200),
        ..Settings::new(NodeName::parse("edge-1").unwrap())
    };
    let fake = FakeRuntime::new();
    let parts = Parts {
        client: kube::Client::try_from(config).unwrap(),
        runtime: RuntimeSource::Given(Arc::new(fake.clone())),
        credentials: Credentials::default(),
        clock: Clock::of_this_machine(),
        metrics: Metrics::default(),
        health: Health::default(),
    };
    let stop = CancellationToken::new();
    let agent = tokio::spawn(larder_agent::run(settings, parts, stop.clone()));

    let phase = |tag: &str| {
        let object = edge.object.lock().unwrap();
        let tags = &object.as_ref()?["status"]["imageStatuses"]["app"]["tags"];
        let found = tags.as_array()?.iter().find(|status| status["tag"] == tag)?;
        Some(found["phase"].as_str()?.to_owned())
    };
    *edge.object.lock().unwrap() = Some(object(1, "1"));
    wait_until(SOON, "the first image", async || {
        phase("1").as_deref() == Some("Succeeded")
    })
    .await
    .unwrap();
    let kept = edge.object.lock().unwrap().take();
    let lists = *edge.lists.lock().unwrap();
    wait_until(SOON, "two empty lists", async || {
        *edge.lists.lock().unwrap() > lists + 2
    })
    .await
    .unwrap();
    let mut next = object(2, "2");
    next["status"] = kept.unwrap()["status"].clone();
    *edge.object.lock().unwrap() = Some(next);
    wait_until(SOON, "the second image", async || {
        phase("2").as_deref() == Some("Succeeded")
    })
    .await
    .unwrap();
    assert_eq!(phase("1"), None, "what left the spec leaves the status");
    assert_eq!(fake.pulls().len(), 2, "an empty list without version withdraws nothing");
    stop.cancel();
    agent.await.unwrap().unwrap();
    server.abort();
}
