//! An embedded Kubernetes-style API server.
//!
//! The same schemas, defaults, rules, watches and refusals as the API server of a cluster, in the own process: for one
//! machine without a cluster, for tests, and for simulations. It serves a few built-in kinds and whatever
//! CustomResourceDefinitions it is given, in process as a tower service and on a loopback socket for kubectl.
//!
//! How a write goes: `handlers` read the request, `admit` turns it into an object that may be stored, `store` makes it
//! durable and visible, `watch` tells those who listen, `gc` cleans up after it.
//!
//! Not served, by design: other people's kinds at run time, admission webhooks, authorization beyond the token,
//! server-side apply (refused with a sentence that says what to use instead).

mod admit;
mod answer;
mod auth;
mod bootstrap;
mod builtin;
mod clock;
mod discovery;
mod error;
mod faults;
mod gc;
mod handlers;
mod identity;
mod memory;
mod names;
mod object;
mod openapi;
mod patch;
mod plane;
mod protobuf;
mod registry;
mod request;
mod router;
mod schema;
mod selector;
mod server;
mod service;
mod store;
mod stored;
mod table;
mod watch;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use auth::Tokens;
pub use clock::Clock;
pub use error::{ApiError, Cause, Subject};
pub use faults::{FaultLayer, FaultService, Faults};
pub use identity::{Identity, IdentityError};
pub use registry::RegistryError;
pub use schema::SchemaError;
pub use server::{Limits, ListenError, Listening};
pub use service::LocalService;
pub use store::DiskError;
pub use watch::History;

/// What to serve and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The custom kinds.
    pub definitions: Vec<CustomResourceDefinition>,
    /// The file that objects are kept in; none keeps them in memory alone.
    pub data: Option<PathBuf>,
    /// Where the time of day comes from.
    pub clock: Clock,
    /// How much of the past watches can start from.
    pub history: History,
    /// How long an Event lives after its last write.
    pub event_ttl: Duration,
    /// Limits on connections from the network.
    pub limits: Limits,
}

impl Config {
    /// Serves `definitions` from memory, by the machine's clock.
    pub fn new(definitions: Vec<CustomResourceDefinition>) -> Self {
        Self {
            definitions,
            data: None,
            clock: Clock::System,
            history: History::default(),
            event_ttl: Duration::from_hours(1),
            limits: Limits::default(),
        }
    }
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A CustomResourceDefinition cannot be served.
    #[error("reading the CustomResourceDefinitions")]
    Definitions(#[from] RegistryError),
    /// The file cannot be used.
    #[error("opening the object database")]
    Disk(#[from] DiskError),
    /// The objects that are always there could not be written.
    #[error("writing the first objects")]
    Bootstrap(#[source] ApiError),
}

/// The running server. Stops when dropped; [`Localplane::shutdown`] also waits for it.
pub struct Localplane {
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    writer: JoinHandle<()>,
    cleaner: JoinHandle<()>,
    _guard: DropGuard,
}

impl std::fmt::Debug for Localplane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Localplane").finish_non_exhaustive()
    }
}

impl Localplane {
    /// Opens the objects and starts serving in process.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let registry = Arc::new(registry::Registry::new(config.definitions)?);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let writer_stop = CancellationToken::new();
        let (store, writer) = store::Store::open(
            config.data.as_deref(),
            Arc::clone(&registry),
            config.clock,
            config.history,
            writer_stop.clone(),
        )?;
        let plane = Arc::new(plane::Plane {
            namespaces: registry.builtin_id("namespaces"),
            documents: openapi::Documents::new(registry),
            store,
            memory: memory::Memory::default(),
            stop: stop.clone(),
        });
        bootstrap::run(&plane).await.map_err(StartError::Bootstrap)?;
        let cleaner = tokio::spawn(gc::run(Arc::clone(&plane), config.event_ttl));
        // The writer ends after all tasks that could still write.
        let stopping = stop.clone();
        let writer = tokio::spawn(async move {
            stopping.cancelled().await;
            writer_stop.cancel();
            if let Err(error) = writer.await {
                tracing::error!(error = &error as &dyn std::error::Error, "the writer ended abnormally");
            }
        });
        Ok(Self {
            router: router::router(plane),
            limits: config.limits,
            stop,
            writer,
            cleaner,
            _guard: guard,
        })
    }

    /// The server as a tower service, for clients in this process.
    pub fn service(&self) -> LocalService {
        LocalService::new(self.router.clone())
    }

    /// Serves on a loopback address to those who have a token, under a certificate of its own.
    pub async fn listen(&self, address: SocketAddr, tokens: Tokens) -> Result<Listening, ListenError> {
        self.listen_as(&Identity::generate()?, address, tokens).await
    }

    /// The same under a certificate that was made before, so that clients know the server again.
    pub async fn listen_as(
        &self,
        identity: &Identity,
        address: SocketAddr,
        tokens: Tokens,
    ) -> Result<Listening, ListenError> {
        let router = self.router.clone();
        server::listen(router, address, tokens, identity, self.limits, self.stop.clone()).await
    }

    /// Ends watches, finishes the writes under way, closes the file.
    pub async fn shutdown(self) {
        self.stop.cancel();
        for task in [self.cleaner, self.writer] {
            if let Err(error) = task.await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a task of the server ended abnormally"
                );
            }
        }
    }
}
