//! A server in memory and requests to it, as plain JSON.

use ::http::{Method, Request};
use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures::{Stream, StreamExt};
use http_body_util::BodyExt;
use larder_localplane::{Config, LocalService, Localplane};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const NODE_IMAGES: &str = "/apis/apps.kruise.io/v1beta1/nodeimages";
pub(crate) const JOBS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/imagepulljobs";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const MERGE: &str = "application/merge-patch+json";

/// A server in memory.
pub(crate) async fn plane() -> Localplane {
    Localplane::start(Config::new(larder_api::crds())).await.unwrap()
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    /// Reason and message of a refusal with this code.
    #[track_caller]
    pub(crate) fn refused(self, code: u16) -> (String, String) {
        assert_eq!(self.code, code, "{}", self.body);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["apiVersion"], "v1");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        let text = |field: &str| self.body[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }
}

/// Sends requests to one server.
#[derive(Clone)]
pub(crate) struct Requests(pub(crate) LocalService);

impl Requests {
    pub(crate) fn to(plane: &Localplane) -> Self {
        Self(plane.service())
    }

    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0
            .clone()
            .oneshot(request.body(body.into()).unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, content_type: &str, body: impl Into<Body>) -> Answer {
        answer(self.raw(method, path, &[("content-type", content_type)], body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "application/json", Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, "application/json", object.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::PUT, path, "application/json", object.to_string())
            .await
    }

    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Answer {
        self.send(Method::PATCH, path, MERGE, change.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.send(Method::DELETE, path, "application/json", options.to_string())
            .await
    }

    /// The events of a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let response = self.raw(Method::GET, path, &[], Body::empty()).await;
        assert_eq!(response.status(), 200);
        Watch {
            body: Box::pin(response.into_body().into_data_stream().map(Result::unwrap)),
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn node_image(&self, name: &str) -> Value {
        self.post(NODE_IMAGES, &node_image(name)).await.ok()
    }

    pub(crate) async fn config_map(&self, name: &str, value: &str) -> Value {
        self.post(CONFIG_MAPS, &config_map(name, value)).await.ok()
    }
}

pub(crate) async fn answer(response: Response) -> Answer {
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer {
        code,
        warnings,
        body: serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into()),
    }
}

/// The events of one watch, one by one.
pub(crate) struct Watch {
    body: std::pin::Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event, or `None` at the end. Waits forever only if the test runner lets it.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.buffer.extend_from_slice(&self.body.next().await?);
        }
    }

    /// Type and name of the next event.
    pub(crate) async fn told(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

pub(crate) fn node_image(name: &str) -> Value {
    json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": name}, "spec": {}})
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
