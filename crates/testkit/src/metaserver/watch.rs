//! Watches: what is kept first, then what the cloud sends, if the cloud knows of the watch at all.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::path::{Target, name_of, question};
use super::{Body, Edge, Uplink};

/// How many events may wait for a client that does not read.
const EVENTS: usize = 64;

/// Pause before the cloud is asked again after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// At least this long, unless the client says otherwise.
const LONGEST: Duration = Duration::from_mins(30);

/// The events of one watch, as the client reads them.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|event| event.map(|line| Ok(Frame::data(line))))
    }
}

/// One watch of a client.
struct Watch {
    edge: Arc<Edge>,
    target: Target,
    name: Option<String>,
    selectors: Vec<String>,
    client: mpsc::Sender<Bytes>,
}

/// The client went away.
struct Gone;

pub(super) fn open(edge: Arc<Edge>, target: Target, uri: &Uri) -> Response<Body> {
    let (client, events) = mpsc::channel(EVENTS);
    let seconds = question(uri, "timeoutSeconds").and_then(|text| text.parse().ok());
    let longest = seconds.map_or(LONGEST, Duration::from_secs);
    let selectors = uri.query().unwrap_or_default().split('&');
    let watch = Watch {
        name: question(uri, "fieldSelector").and_then(|text| name_of(&text)),
        selectors: selectors
            .filter(|pair| pair.starts_with("fieldSelector=") || pair.starts_with("labelSelector="))
            .map(str::to_owned)
            .collect(),
        edge,
        target,
        client,
    };
    tokio::spawn(async move {
        let closed = watch.client.clone();
        tokio::select! {
            _ = timeout(longest, watch.run()) => {}
            () = closed.closed() => {}
        }
    });
    let mut response = Response::new(Events(events).boxed_unsync());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

impl Watch {
    async fn run(self) -> Result<(), Gone> {
        let known_to_cloud = *self.edge.uplink.borrow() == Uplink::Up;
        let mut life = self.edge.cloud_life.subscribe();
        let born = *life.borrow_and_update();
        let kept = self.edge.cache().list(&self.target.collection, self.name.as_deref());
        for object in kept {
            self.tell("ADDED", &object).await?;
        }
        if known_to_cloud {
            tokio::select! {
                ended = self.follow() => return ended,
                _ = life.wait_for(|life| *life != born) => {}
            }
        }
        std::future::pending().await
    }

    /// What the cloud has, then its changes; again from the beginning whenever the cloud's own watch ends.
    async fn follow(&self) -> Result<(), Gone> {
        loop {
            if self.listen().await?.is_none() {
                sleep(RETRY).await;
            }
        }
    }

    async fn listen(&self) -> Result<Option<()>, Gone> {
        let Some(list) = self.ask("").await else {
            return Ok(None);
        };
        let Ok(Ok(list)) = list
            .into_body()
            .collect_bytes()
            .await
            .map(|bytes| serde_json::from_slice::<Value>(&bytes))
        else {
            return Ok(None);
        };
        for object in list["items"].as_array().into_iter().flatten() {
            // Items of a list do not say what they are.
            let mut object = object.clone();
            let kind = list["kind"].as_str().unwrap_or_default();
            object["kind"] = json!(kind.strip_suffix("List").unwrap_or(kind));
            object["apiVersion"] = list["apiVersion"].clone();
            self.deliver("ADDED", object).await?;
        }
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let Some(response) = self.ask(&format!("&watch=true&resourceVersion={version}")).await else {
            return Ok(None);
        };
        let mut body = response.into_body();
        let mut unread = BytesMut::new();
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref() {
                unread.extend_from_slice(data);
            }
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line = unread.split_to(end + 1);
                let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                match event["type"].as_str() {
                    Some(kind @ ("ADDED" | "MODIFIED" | "DELETED")) => {
                        self.deliver(kind, event["object"].clone()).await?;
                    }
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(()))
    }

    async fn ask(&self, more: &str) -> Option<Response<kube::client::Body>> {
        let uri = format!("{}?{}{more}", self.target.collection, self.selectors.join("&"));
        let request = Request::get(uri).body(kube::client::Body::empty()).ok()?;
        let response = self.edge.client.send(request).await.ok()?;
        response.status().is_success().then_some(response)
    }

    /// Brings an event over the line, when there is one, keeps it and passes it on.
    async fn deliver(&self, kind: &str, object: Value) -> Result<(), Gone> {
        let mut uplink = self.edge.uplink.subscribe();
        uplink
            .wait_for(|uplink| *uplink == Uplink::Up)
            .await
            .map_err(|_| Gone)?;
        let collection = &self.target.collection;
        match kind {
            "DELETED" => self.edge.cache().remove(collection, &object),
            _ => self.edge.cache().insert(collection, object.clone()),
        }
        self.tell(kind, &object).await
    }

    async fn tell(&self, kind: &str, object: &Value) -> Result<(), Gone> {
        let mut line = json!({ "type": kind, "object": object }).to_string();
        line.push('\n');
        self.client.send(Bytes::from(line)).await.map_err(|_| Gone)
    }
}
