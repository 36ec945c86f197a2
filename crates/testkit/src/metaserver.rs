//! A stand-in for KubeEdge's MetaServer, the API that programs on an edge node see: plain HTTP on loopback, no
//! authentication, in front of a real API server, with the habits that an agent has to live with:
//!
//! - Requests are carried out in the cloud, in the name of the node or of `CloudCore`.
//! - Without the cloud, reads are answered from what a watch or a read of the single object brought before; lists were
//!   not kept, have no resource version and a kind that is guessed. Writes fail.
//! - A watch ignores where it should begin: all that is kept comes first, as ADDED. There are no bookmarks.
//! - A watch that was opened without the cloud is silent for ever, and so is one that the cloud has forgotten.
//! - Events that the cloud could not deliver arrive when the line is back.
//!
//! It does not imitate authorization on the node, the dummy interface, nor the cache of discovery.

mod cache;
mod path;
mod watch;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as latest;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use self::cache::Cache;
use self::path::{Target, question};
use crate::{Access, Error, Port, Result};

/// How long MetaServer waits for the cloud before it answers by itself.
const CLOUD: Duration = Duration::from_secs(10);

/// In whose name the cloud carries out what the node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// `system:node:NAME`, as with the authorization of `CloudHub`.
    Node,
    /// `CloudCore`'s own service account, as without it.
    CloudCore,
}

/// The line from the node to the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uplink {
    /// It works.
    #[default]
    Up,
    /// It is broken, and the node has not noticed: requests wait their time first.
    Silent,
    /// It is broken, and the node knows.
    Down,
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeRequest {
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// What was answered.
    pub status: StatusCode,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running stand-in; it lives in the async runtime of the test and ends when it is dropped.
pub struct MetaServer {
    port: Port,
    edge: Arc<Edge>,
    task: JoinHandle<()>,
}

/// What requests share.
struct Edge {
    client: Client,
    uplink: latest::Sender<Uplink>,
    /// Rises when the cloud forgets its watches.
    cloud_life: latest::Sender<u64>,
    cache: Mutex<Cache>,
    requests: Mutex<Vec<EdgeRequest>>,
    watches: AtomicU64,
}

impl MetaServer {
    /// Starts it for this node, in front of this control plane.
    pub async fn start(access: &Access, node: &str, identity: Identity) -> Result<Self> {
        let client = match identity {
            Identity::Node => access.client_as(
                &format!("system:node:{node}"),
                &["system:nodes", "system:authenticated"],
            )?,
            Identity::CloudCore => access.client_as(
                "system:serviceaccount:kubeedge:cloudcore",
                &[
                    "system:serviceaccounts",
                    "system:serviceaccounts:kubeedge",
                    "system:authenticated",
                ],
            )?,
        };
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address())
            .await
            .map_err(Error::io("opening the port of a MetaServer"))?;
        let edge = Arc::new(Edge {
            client,
            uplink: latest::Sender::default(),
            cloud_life: latest::Sender::default(),
            cache: Mutex::default(),
            requests: Mutex::default(),
            watches: AtomicU64::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&edge)));
        Ok(Self { port, edge, task })
    }

    /// What an agent is given as `--server`.
    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Changes the line to the cloud.
    pub fn set(&self, uplink: Uplink) {
        self.edge.uplink.send_replace(uplink);
    }

    /// The cloud restarts and knows nothing of the watches of before: they stay open and say nothing more.
    pub fn forget_watches(&self) {
        self.edge.cloud_life.send_modify(|life| *life += 1);
    }

    /// The requests that were answered so far. Watches are not among them.
    pub fn requests(&self) -> Vec<EdgeRequest> {
        self.edge
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many watches were opened so far.
    pub fn watches(&self) -> u64 {
        self.edge.watches.load(Ordering::Relaxed)
    }
}

impl Drop for MetaServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, edge: Arc<Edge>) {
    // Ends its connections when it is dropped.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(client, Arc::clone(&edge)));
    }
}

async fn serve(client: TcpStream, edge: Arc<Edge>) {
    let service = service_fn(move |request| {
        let edge = Arc::clone(&edge);
        async move { Ok::<_, Infallible>(edge.answer(request).await) }
    });
    // A client that goes away in the middle is nothing to report.
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(client), service)
        .await
        .ok();
}

impl Edge {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let target = Target::parse(&path);
        if let Some(target) = &target
            && method == Method::GET
            && question(request.uri(), "watch").is_some_and(|value| value != "false" && value != "0")
        {
            self.watches.fetch_add(1, Ordering::Relaxed);
            return watch::open(self, target.clone(), request.uri());
        }
        let name = question(request.uri(), "fieldSelector").and_then(|text| path::name_of(&text));
        let (status, body) = match self.cloud(request).await {
            Some((status, body)) => {
                if let (true, Some(target)) = (status.is_success(), &target) {
                    self.learn(&method, target, &body);
                }
                (status, body)
            }
            None => self.by_itself(&method, target.as_ref(), name.as_deref()),
        };
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(EdgeRequest { method, path, status });
        let mut response = Response::new(Full::new(body).boxed_unsync());
        *response.status_mut() = status;
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        response
    }

    /// What the cloud says; nothing if it cannot be reached.
    async fn cloud(&self, request: Request<Incoming>) -> Option<(StatusCode, Bytes)> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        parts.headers.remove(http::header::HOST);
        let mut uplink = self.uplink.subscribe();
        let up = async {
            loop {
                match *uplink.borrow_and_update() {
                    Uplink::Up => return true,
                    Uplink::Down => return false,
                    Uplink::Silent => {}
                }
                if uplink.changed().await.is_err() {
                    return false;
                }
            }
        };
        if !timeout(CLOUD, up).await.unwrap_or(false) {
            return None;
        }
        let asked = async {
            let response = self
                .client
                .send(Request::from_parts(parts, kube::client::Body::from(body)))
                .await
                .ok()?;
            let status = response.status();
            let body = response.into_body().collect_bytes().await.ok()?;
            Some((status, body))
        };
        let mut uplink = self.uplink.subscribe();
        let answer = tokio::select! {
            answer = timeout(CLOUD, asked) => answer.ok().flatten(),
            _ = uplink.wait_for(|uplink| *uplink != Uplink::Up) => None,
        };
        answer
    }

    /// Single objects that were read are kept.
    fn learn(&self, method: &Method, target: &Target, body: &Bytes) {
        if method == Method::GET
            && target.name.is_some()
            && target.subresource.is_none()
            && let Ok(object) = serde_json::from_slice(body)
        {
            self.cache().insert(&target.collection, object);
        }
    }

    fn by_itself(&self, method: &Method, target: Option<&Target>, name: Option<&str>) -> (StatusCode, Bytes) {
        let Some(target) = target.filter(|target| method == Method::GET && target.subresource.is_none()) else {
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "connection lost");
        };
        let cache = self.cache();
        match &target.name {
            None => {
                let list = json!({
                    "apiVersion": target.api_version(),
                    "kind": target.guessed_list_kind(),
                    "metadata": {},
                    "items": cache.list(&target.collection, name),
                });
                (StatusCode::OK, Bytes::from(list.to_string()))
            }
            Some(name) => match cache.get(&target.collection, name) {
                Some(object) => (StatusCode::OK, Bytes::from(object.to_string())),
                None => failure(StatusCode::NOT_FOUND, "NotFound", &format!("{name:?} not found")),
            },
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure(status: StatusCode, reason: &str, message: &str) -> (StatusCode, Bytes) {
    let body: Value = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "reason": reason, "message": message, "code": status.as_u16(),
    });
    (status, Bytes::from(body.to_string()))
}
