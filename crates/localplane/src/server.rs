//! The server on a loopback socket, behind TLS and bearer tokens, and the kubeconfig that leads to it.
//!
//! TLS because kubectl sends a token over nothing else; the certificate signs itself and is trusted through the kubeconfig.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use futures::StreamExt;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Tokens,
    error::ApiError,
    handlers::BODY_LIMIT,
    identity::{Identity, IdentityError},
};

/// A body that is too large is read up to here, so that its sender hears the refusal.
const READ_LIMIT: usize = 8 * BODY_LIMIT;

/// A client that has not said what it wants by then is not coming.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Answers under way may take this long after the server was asked to stop.
const FAREWELL: Duration = Duration::from_secs(5);

/// Pause after the system refused a connection, usually for want of file descriptors.
const REFUSED: Duration = Duration::from_millis(100);

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The token is all that protects the server.
    #[error("{0} is not a loopback address; the embedded API is served on loopback only")]
    NotLoopback(SocketAddr),
    /// The socket could not be had.
    #[error("listening on {address}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Without a certificate there is no TLS.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A listening server.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    certificate: String,
    task: JoinHandle<()>,
}

impl Listening {
    /// Where it listens; the port is chosen by the system if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://ADDRESS`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate to trust, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A kubeconfig for this server and `token`, as JSON, which is YAML.
    pub fn kubeconfig(&self, token: &SecretString) -> SecretString {
        let cluster = json!({
            "server": self.url(),
            "certificate-authority-data": STANDARD.encode(&self.certificate),
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "larder", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token.expose_secret()}}],
            "contexts": [{
                "name": "larder",
                "context": {"cluster": "larder", "user": "admin", "namespace": "default"},
            }],
            "current-context": "larder",
        });
        SecretString::from(format!("{config:#}\n"))
    }

    /// Waits until the server has stopped.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(error = &error as &dyn std::error::Error, "the server ended abnormally");
        }
    }
}

/// Listens until `stop`.
pub(crate) async fn listen(
    router: Router,
    address: SocketAddr,
    tokens: Tokens,
    identity: &Identity,
    stop: CancellationToken,
) -> Result<Listening, ListenError> {
    if !address.ip().is_loopback() {
        return Err(ListenError::NotLoopback(address));
    }
    let failed = |source| ListenError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let acceptor = identity.acceptor()?;
    let router = router
        .layer(middleware::from_fn_with_state(tokens, authenticate))
        .layer(middleware::from_fn(read_body));
    let task = tokio::spawn(accept(listener, acceptor, router, stop));
    Ok(Listening {
        address,
        certificate: identity.certificate.clone(),
        task,
    })
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let graceful = Arc::new(GracefulShutdown::new());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "accepting a connection failed");
                    tokio::time::sleep(REFUSED).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let connection = connection(stream, acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(connection);
    }
    drop(listener);
    let Ok(graceful) = Arc::try_unwrap(graceful) else {
        return;
    };
    if timeout(FAREWELL, graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not close their connections in time");
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Watch events are small and urgent.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a connection keeps gathering small packets"
        );
    }
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a client broke off the TLS handshake"
            );
            return;
        }
        Err(_) => return,
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // One client may hold a watch for each of a thousand objects over one connection.
    builder.http2().max_concurrent_streams(10_000);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(serving.into_owned()).await {
        tracing::debug!(
            error = error.as_ref() as &dyn std::error::Error,
            "a connection ended early"
        );
    }
}

/// Reads a request to its end before anything is answered. Over HTTP/2 an answer that comes earlier ends in a reset of the
/// stream, and the client loses the answer.
async fn read_body(request: Request<Body>, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let mut kept = BytesMut::new();
    let mut seen = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let Ok(piece) = piece else {
            return ApiError::bad_request("the request broke off").into_response();
        };
        seen += piece.len();
        // What is beyond the limit is refused by its length, whatever it holds.
        if kept.len() <= BODY_LIMIT {
            kept.extend_from_slice(&piece);
        }
        if READ_LIMIT < seen {
            break;
        }
    }
    next.run(Request::from_parts(head, Body::from(kept.freeze()))).await
}

async fn authenticate(State(tokens): State<Tokens>, mut request: Request<Body>, next: Next) -> Response {
    let open = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version");
    match tokens.user(request.headers()) {
        Some(user) => {
            let user = user.clone();
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        None if open => next.run(request).await,
        None => ApiError::unauthorized().into_response(),
    }
}
