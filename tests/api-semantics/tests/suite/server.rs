//! Requests as JSON, with the answer and its code as they came: the suite judges servers, so nothing in between may
//! correct them.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use larder_testkit::{Kubectl, kubectl, unique_name};
use serde_json::Value;

use crate::kind::Resource;

/// Far beyond what any request here takes, also while the machine compiles.
const ANSWER: Duration = Duration::from_secs(30);

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";

/// One server, and the namespace of one test in it.
pub(crate) struct Server {
    client: Client,
    kubeconfig: PathBuf,
    namespace: String,
    _running: Box<dyn Send>,
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Server {
    /// `running` is what has to live as long as the server is asked.
    pub(crate) fn new(client: Client, kubeconfig: PathBuf, running: impl Send + 'static) -> Self {
        Self {
            client,
            kubeconfig,
            namespace: unique_name("semantics"),
            _running: Box::new(running),
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// An object of this kind with a name that no other test uses.
    pub(crate) fn object(&self, resource: Resource, spec: &Value) -> Value {
        let mut object = serde_json::json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind.name(),
            "metadata": {"name": unique_name("object")},
        });
        if !spec.is_null() {
            object["spec"] = spec.clone();
        }
        if resource.kind.is_namespaced() {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        }
        object
    }

    pub(crate) async fn create(&self, resource: Resource, object: &Value) -> Answer {
        self.post(&resource.path(&self.namespace), object).await
    }

    pub(crate) async fn create_strictly(&self, resource: Resource, object: &Value) -> Answer {
        let path = format!("{}?fieldValidation=Strict", resource.path(&self.namespace));
        self.post(&path, object).await
    }

    pub(crate) async fn get(&self, resource: Resource, name: &str) -> Answer {
        self.send(Method::GET, &self.path(resource, name), JSON, None).await
    }

    pub(crate) async fn replace(&self, resource: Resource, object: &Value) -> Answer {
        let path = self.path(resource, name_of(object));
        self.send(Method::PUT, &path, JSON, Some(object)).await
    }

    pub(crate) async fn replace_status(&self, resource: Resource, object: &Value) -> Answer {
        let path = format!("{}/status", self.path(resource, name_of(object)));
        self.send(Method::PUT, &path, JSON, Some(object)).await
    }

    pub(crate) async fn patch(&self, resource: Resource, name: &str, patch_type: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, &self.path(resource, name), patch_type, Some(patch))
            .await
    }

    pub(crate) async fn patch_status(&self, resource: Resource, name: &str, patch: &Value) -> Answer {
        self.patch_status_with(resource, name, MERGE_PATCH, patch).await
    }

    pub(crate) async fn patch_status_with(
        &self,
        resource: Resource,
        name: &str,
        content_type: &str,
        patch: &Value,
    ) -> Answer {
        let status = format!("{}/status", self.path(resource, name));
        self.send(Method::PATCH, &status, content_type, Some(patch)).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, JSON, Some(object)).await
    }

    /// A client, for what it does beyond single requests.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The path of one object.
    pub(crate) fn path(&self, resource: Resource, name: &str) -> String {
        format!("{}/{name}", resource.path(&self.namespace))
    }

    pub(crate) async fn delete(&self, path: &str, options: Option<&Value>) -> Answer {
        self.send(Method::DELETE, path, JSON, options).await
    }

    /// What stands at a path.
    pub(crate) async fn read(&self, path: &str) -> Answer {
        self.send(Method::GET, path, JSON, None).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, content_type: &str, body: Option<&Value>) -> Answer {
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(bytes)
            .unwrap();
        self.answer(request).await
    }

    /// Any request at all.
    pub(crate) async fn answer(&self, request: Request<Vec<u8>>) -> Answer {
        let path = request.uri().to_string();
        let request = request.map(Body::from);
        let exchange = async {
            let response = self.client.send(request).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            // Where nothing is served there is no Status, just a line of text.
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Answer { code, body }
        };
        tokio::time::timeout(ANSWER, exchange)
            .await
            .unwrap_or_else(|_| panic!("{path} did not answer within {ANSWER:?}"))
    }

    /// Runs kubectl in this test's namespace, whatever the outcome.
    pub(crate) async fn kubectl(&self, which: Kubectl, args: &[&str]) -> Output {
        let all = ["--namespace", &self.namespace].into_iter().chain(args.iter().copied());
        kubectl(which, &self.kubeconfig, all).await.unwrap()
    }

    /// Runs kubectl and gives back what it printed; it must succeed.
    pub(crate) async fn kubectl_text(&self, which: Kubectl, args: &[&str]) -> String {
        let output = self.kubectl(which, args).await;
        assert!(
            output.status.success(),
            "kubectl {args:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Answer {
    /// The object; the server must have taken the request.
    pub(crate) fn accepted(self) -> Value {
        assert!(
            (200..300).contains(&self.code),
            "refused with {}: {}",
            self.code,
            self.message()
        );
        self.body
    }

    /// The message of a refusal, which must have this code and be a Status.
    pub(crate) fn refused(self, code: u16) -> String {
        assert_eq!(self.code, code, "instead of a refusal: {}", self.body);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["code"], code);
        self.message().to_owned()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("an object with a name")
}
