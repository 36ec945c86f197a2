//! The server on a loopback socket, behind TLS and bearer tokens, and the kubeconfig that leads to it.
//!
//! TLS because kubectl sends a token over nothing else; the certificate signs itself and is trusted through the kubeconfig.

mod connections;
mod middleware;

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, middleware::from_fn, middleware::from_fn_with_state};
use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub use connections::Limits;

use crate::{
    auth::Tokens,
    identity::{Identity, IdentityError},
};

/// Bytes of bodies that may be in memory at the same time, 21 of the largest; further requests wait.
const BODY_BYTES_IN_MEMORY: usize = 64 << 20;

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
    limits: Limits,
    stop: CancellationToken,
) -> Result<Listening, ListenError> {
    if !address.ip().is_loopback() {
        return Err(ListenError::NotLoopback(address));
    }
    let failed = |source| ListenError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let acceptor = identity.acceptor()?;
    // The last layer sees a request first.
    let router = router
        .layer(from_fn_with_state(
            Arc::new(Semaphore::new(BODY_BYTES_IN_MEMORY)),
            middleware::read_body,
        ))
        .layer(from_fn_with_state(tokens, middleware::authenticate))
        .layer(from_fn(middleware::count_request));
    let task = tokio::spawn(connections::accept(listener, acceptor, router, limits, stop));
    Ok(Listening {
        address,
        certificate: identity.certificate.clone(),
        task,
    })
}
