//! What happens to a request from the network before its handler runs.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::BodyExt;
use tokio::{sync::Semaphore, time::timeout};

use super::connections::Connection;
use crate::{auth::Tokens, error::ApiError, handlers::BODY_LIMIT};

/// A body that is too large is read up to here, so that its sender hears the refusal.
const READ_LIMIT: usize = 8 * BODY_LIMIT;

/// Time for the next piece of a body.
const BODY_STALL: Duration = Duration::from_secs(30);

/// Keeps the connection from counting as idle until the answer has been sent.
pub(super) async fn count_request(request: Request<Body>, next: Next) -> Response {
    let in_flight = request
        .extensions()
        .get::<Arc<Connection>>()
        .map(Connection::begin_request);
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _until_the_end = &in_flight;
            frame
        }))
    })
}

/// Lets requests with a valid token pass, and those that need none.
pub(super) async fn authenticate(State(tokens): State<Tokens>, request: Request<Body>, next: Next) -> Response {
    if tokens.accept(request.headers()) {
        let connection = request.extensions().get::<Arc<Connection>>();
        if connection.is_some_and(|connection| !connection.authenticate()) {
            return ApiError::too_many_requests(1).into_response();
        }
        return next.run(request).await;
    }
    if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version") {
        return next.run(request).await;
    }
    // Nothing of it is kept, however many such requests there are.
    drop(read(request.into_body(), 0).await);
    ApiError::unauthorized().into_response()
}

/// Reads a request to its end before anything is answered. Over HTTP/2 an answer that comes earlier ends in a reset of the
/// stream, and the client loses the answer.
pub(super) async fn read_body(State(memory): State<Arc<Semaphore>>, request: Request<Body>, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let announced = request.body().size_hint().upper().unwrap_or(u64::MAX);
    let bytes = u32::try_from(announced.min(BODY_LIMIT as u64)).unwrap_or(u32::MAX);
    // Held until the handler is done with the body. Closed never.
    let _permit = memory.acquire_many(bytes).await;
    let (head, body) = request.into_parts();
    match read(body, BODY_LIMIT).await {
        // What is beyond the limit is refused by its length, whatever it holds.
        Some(body) => next.run(Request::from_parts(head, Body::from(body))).await,
        None => ApiError::bad_request("the request broke off").into_response(),
    }
}

/// The body up to the piece that goes beyond `limit`; `None` if it breaks off or stalls.
async fn read(body: Body, limit: usize) -> Option<Bytes> {
    let mut kept = BytesMut::new();
    let mut seen = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = timeout(BODY_STALL, pieces.next()).await.ok()? {
        let piece = piece.ok()?;
        seen += piece.len();
        if 0 < limit && kept.len() <= limit {
            kept.extend_from_slice(&piece);
        }
        if READ_LIMIT < seen {
            break;
        }
    }
    Some(kept.freeze())
}
