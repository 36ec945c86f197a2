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
    /// After how many seconds each watch shall end.
    watches: Arc<Mutex<Vec<u64>>>,
    patches: Arc<Mutex<usize>>,
    /// The object as the cloud has it, where that differs from the list: reads of the object itself and patches go there.
    fresh: Arc<Mutex<Option<Value>>>,
}

async fn list_or_watch(
    State(edge): State<Edge>,
    Query(query): Query<std::collections::HashMap<String, String>>,
) -> Response {
    if query.contains_key("watch") {
        let seconds = query["timeoutSeconds"].parse().unwrap();
        edge.watches.lock().unwrap().push(seconds);
        // Open, and silent for ever.
        return Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()).into_response();
    }
    *edge.lists.lock().unwrap() += 1;
    let items: Vec<Value> = edge.object.lock().unwrap().clone().into_iter().collect();
    Json(json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeimageList", "metadata": {}, "items": items}))
        .into_response()
}

async fn read(State(edge): State<Edge>) -> Response {
    let fresh = edge.fresh.lock().unwrap().clone();
    match fresh.or_else(|| edge.object.lock().unwrap().clone()) {
        Some(object) => Json(object).into_response(),
        None => axum::http::StatusCode::NOT_FOUND.into_response(),
    }
}

async fn patch_status(State(edge): State<Edge>, Json(patch): Json<Value>) -> Response {
    *edge.patches.lock().unwrap() += 1;
    let (mut object, mut fresh) = (edge.object.lock().unwrap(), edge.fresh.lock().unwrap());
    let Some(object) = fresh.as_mut().or(object.as_mut()) else {
        return axum::http::StatusCode::BAD_GATEWAY.into_response();
    };
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    match json_patch::patch(object, &patch) {
        Ok(()) => Json(object.clone()).into_response(),
        Err(error) => (axum::http::StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
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

/// A running agent of `edge-1` with a scripted runtime.
struct Running {
    edge: Edge,
    fake: FakeRuntime,
    stop: CancellationToken,
    agent: tokio::task::JoinHandle<Result<(), larder_agent::AgentError>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Running {
    async fn start() -> Self {
        let edge = Edge::default();
        let path = "/apis/apps.kruise.io/v1beta1/nodeimages";
        let router = Router::new()
            .route(path, get(list_or_watch))
            .route(&format!("{path}/{{name}}"), get(read))
            .route(&format!("{path}/{{name}}/status"), axum::routing::patch(patch_status))
            .with_state(edge.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        // Its client installs the TLS provider.
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
        Self {
            edge,
            fake,
            stop,
            agent,
            server,
        }
    }

    fn show(&self, object: Option<Value>) -> Option<Value> {
        std::mem::replace(&mut *self.edge.object.lock().unwrap(), object)
    }

    /// The object with a new spec and the status that it has.
    fn edit(&self, mut object: Value) {
        if let Some(before) = self.edge.object.lock().unwrap().as_ref() {
            object["status"] = before["status"].clone();
        }
        self.show(Some(object));
    }

    fn phase(&self, tag: &str) -> Option<String> {
        let object = self.edge.object.lock().unwrap();
        let tags = &object.as_ref()?["status"]["imageStatuses"]["app"]["tags"];
        let found = tags.as_array()?.iter().find(|status| status["tag"] == tag)?;
        Some(found["phase"].as_str()?.to_owned())
    }

    async fn until_succeeded(&self, tag: &str) {
        let there = async || self.phase(tag).as_deref() == Some("Succeeded");
        wait_until(SOON, format!("image {tag}"), there).await.unwrap();
    }

    /// Waits until the agent has read what is shown now.
    async fn until_read(&self) {
        let before = *self.edge.lists.lock().unwrap();
        let read = async || *self.edge.lists.lock().unwrap() > before + 2;
        wait_until(SOON, "two more lists", read).await.unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        self.agent.await.unwrap().unwrap();
        self.server.abort();
    }
}

#[tokio::test]
async fn silent_watches_and_empty_lists_do_not_stop_the_agent() {
    let running = Running::start().await;
    running.show(Some(object(1, "1")));
    running.until_succeeded("1").await;
    let kept = running.show(None);
    running.until_read().await;
    running.show(kept);
    running.edit(object(2, "2"));
    running.until_succeeded("2").await;
    assert_eq!(running.phase("1"), None, "what left the spec leaves the status");
    assert_eq!(
        running.fake.pulls().len(),
        2,
        "an empty list without version withdraws nothing"
    );
    running.end().await;
}

#[tokio::test]
async fn an_older_order_counts_only_if_a_fresh_read_shows_it_too() {
    let running = Running::start().await;
    running.show(Some(object(5, "5")));
    running.until_succeeded("5").await;
    *running.edge.fresh.lock().unwrap() = running.edge.object.lock().unwrap().clone();
    running.edit(object(3, "3"));
    running.until_read().await;
    assert_eq!(
        running.fake.pulls().len(),
        1,
        "the list is late: the fresh read shows generation 5"
    );
    // etcd was restored: now everything shows generation 3.
    *running.edge.fresh.lock().unwrap() = None;
    running.until_succeeded("3").await;
    running.end().await;
}

#[tokio::test]
async fn watches_end_at_random_so_that_a_fleet_does_not_come_back_together() {
    let running = Running::start().await;
    let watches = Arc::clone(&running.edge.watches);
    wait_until(SOON, "ten watches", async || watches.lock().unwrap().len() >= 10)
        .await
        .unwrap();
    let seen = watches.lock().unwrap().clone();
    assert!(seen.iter().all(|seconds| (300..900).contains(seconds)), "{seen:?}");
    assert!(seen.iter().any(|seconds| *seconds != seen[0]), "{seen:?}");
    running.end().await;
}

#[tokio::test]
async fn a_status_does_not_land_on_an_object_that_was_deleted_and_created_again() {
    let running = Running::start().await;
    running.show(Some(object(1, "1")));
    running.until_succeeded("1").await;
    // The cloud has another object by now, and the list is late.
    let mut anew = object(1, "3");
    anew["metadata"]["uid"] = json!("another uid");
    *running.edge.fresh.lock().unwrap() = Some(anew);
    let before = *running.edge.patches.lock().unwrap();
    running.edit(object(2, "2"));
    wait_until(SOON, "a write", async || *running.edge.patches.lock().unwrap() > before)
        .await
        .unwrap();
    running.until_read().await;
    let anew = running.edge.fresh.lock().unwrap().take().unwrap();
    assert_eq!(anew.get("status"), None, "{anew}");
    running.show(Some(anew));
    running.until_succeeded("3").await;
    running.end().await;
}
