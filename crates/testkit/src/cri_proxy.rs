//! A proxy in front of a gRPC socket that writes down the calls. It passes frames on without knowing the messages, so
//! it works for CRI as well as for containerd's own services.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::{Error, Result, Scratch};

/// One call that came through.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method, for example `/runtime.v1.ImageService/PullImage`.
    pub path: String,
    /// When it came.
    pub at: Instant,
    /// The bytes of the request so far, in gRPC's framing.
    pub request: Vec<u8>,
}

impl Call {
    /// The request's messages as encoded protobuf, without the framing; incomplete and compressed ones are left out.
    pub fn messages(&self) -> Vec<Bytes> {
        let mut rest = Bytes::copy_from_slice(&self.request);
        let mut messages = Vec::new();
        while rest.len() >= 5 {
            let compressed = rest.get_u8() != 0;
            let length = rest.get_u32() as usize;
            if rest.len() < length {
                break;
            }
            let message = rest.split_to(length);
            if !compressed {
                messages.push(message);
            }
        }
        messages
    }
}

type Calls = Arc<Mutex<Vec<Call>>>;
type Body = http_body_util::combinators::BoxBody<Bytes, hyper::Error>;

/// A recording proxy; it lives in the async runtime of the test and ends when it is dropped.
#[derive(Debug)]
pub struct CriProxy {
    socket: PathBuf,
    calls: Calls,
    task: JoinHandle<()>,
    _scratch: Scratch,
}

impl CriProxy {
    /// Starts a proxy in front of this socket. The server behind it may come and go.
    pub fn start(server: &Path) -> Result<Self> {
        let scratch = Scratch::create("cri-proxy")?;
        let socket = scratch.join("cri.sock");
        let listener = UnixListener::bind(&socket).map_err(Error::io(format!("opening {}", socket.display())))?;
        let calls = Calls::default();
        let task = tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&calls)));
        Ok(Self {
            socket,
            calls,
            task,
            _scratch: scratch,
        })
    }

    /// The socket to use instead of the server's.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The calls so far, in the order in which they came.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The calls of one method, by the end of its path: `PullImage`.
    pub fn calls_of(&self, method: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.path.rsplit('/').next() == Some(method));
        calls
    }
}

impl Drop for CriProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: UnixListener, server: PathBuf, calls: Calls) {
    // Ends its connections when it is dropped.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(client, server.clone(), Arc::clone(&calls)));
    }
}

/// One connection of a client has one connection of ours to the server: if one breaks, so does the other.
async fn serve(client: UnixStream, server: PathBuf, calls: Calls) -> io::Result<()> {
    let stream = TokioIo::new(UnixStream::connect(&server).await?);
    let (requests, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
        .await
        .map_err(io::Error::other)?;
    let service = service_fn(move |request| pass(request, requests.clone(), Arc::clone(&calls)));
    let serving =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(client), service);
    tokio::select! {
        ended = serving => ended.map_err(io::Error::other),
        ended = connection => ended.map_err(io::Error::other),
    }
}

async fn pass(
    mut request: Request<Incoming>,
    mut server: SendRequest<Body>,
    calls: Calls,
) -> Result<Response<Incoming>, hyper::Error> {
    let path = request.uri().path().to_owned();
    if request.uri().authority().is_none() {
        *request.uri_mut() = Uri::builder()
            .scheme("http")
            .authority("localhost")
            .path_and_query(path.as_str())
            .build()
            .unwrap_or_default();
    }
    let number = {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(Call {
            path,
            at: Instant::now(),
            request: Vec::new(),
        });
        calls.len() - 1
    };
    let record = move |frame: Frame<Bytes>| {
        if let Some(data) = frame.data_ref() {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls[number].request.extend_from_slice(data);
        }
        frame
    };
    server
        .send_request(request.map(|body| body.map_frame(record).boxed()))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(request: &[u8]) -> Call {
        Call {
            path: "/a/B".into(),
            at: Instant::now(),
            request: request.to_vec(),
        }
    }

    #[test]
    fn messages_are_taken_out_of_their_frames() {
        let two = call(&[0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 1, 9]);
        assert_eq!(two.messages(), [Bytes::from_static(&[7, 8]), Bytes::from_static(&[9])]);
    }

    #[test]
    fn an_unfinished_message_is_left_out() {
        assert!(call(&[0, 0, 0, 0, 2, 7]).messages().is_empty());
        assert!(call(&[0, 0]).messages().is_empty());
    }
}
