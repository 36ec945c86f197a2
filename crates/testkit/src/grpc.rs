//! Single gRPC calls over a unix socket, with messages that the caller encodes.

use std::path::Path;

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Calls a method, for example `runtime.v1.RuntimeService/Version`, with one message. The answer's message, or the error
/// in the server's words.
pub async fn grpc_call(socket: &Path, method: &str, message: &[u8]) -> Result<Bytes, String> {
    let stream = UnixStream::connect(socket).await.map_err(text)?;
    let (mut requests, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(text)?;
    // Ends the connection when it is dropped.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let length = u32::try_from(message.len()).map_err(text)?.to_be_bytes();
    let frame = [&[0], length.as_slice(), message].concat();
    let request = Request::post(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(frame)))
        .map_err(text)?;
    let answer = requests.send_request(request).await.map_err(text)?;
    let head = answer.headers().clone();
    let body = answer.into_body().collect().await.map_err(text)?;
    // A failed call may have no body; then the headers are the trailers.
    let end = body.trailers().cloned().unwrap_or_default();
    if header(&end, &head, "grpc-status") != Some("0") {
        let said = header(&end, &head, "grpc-message");
        return Err(said.unwrap_or("the server gave no message").to_owned());
    }
    let mut bytes = body.to_bytes();
    bytes.advance(bytes.len().min(5));
    Ok(bytes)
}

fn header<'a>(trailers: &'a HeaderMap, headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    trailers.get(name).or_else(|| headers.get(name))?.to_str().ok()
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}

/// Whether CRI answers there.
pub(crate) async fn cri_ready(socket: &Path) -> Result<(), String> {
    grpc_call(socket, "runtime.v1.RuntimeService/Version", &[])
        .await
        .map(drop)
}
