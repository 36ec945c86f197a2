//! Larder on one machine, without a cluster: the embedded API server, the controller and one agent for each node, in one
//! process.
//!
//! They are the same controller and the same agent that run in a cluster, and nothing here decides anything. This crate
//! opens the data folder, starts the parts, makes the Node objects that a kubelet would make, and ends the parts in order.
//!
//! What survives a restart (also after kill -9): all objects, each node's key, ledger and images.

mod data;
mod node;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::Client;
use larder_controller::run::{Controller, RunError};
use larder_localplane::{Config, ListenError, Listening, Localplane, StartError as PlaneError, Tokens};
use larder_telemetry::{Health, Registry};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use data::DataError;
pub use node::{Node, NodeError, Runtime};

use crate::data::Data;

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything is kept.
    pub data: PathBuf,
    /// Where kubectl is served; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Where `hosts.toml` files lie, for nodes that pull by themselves.
    pub hosts: Option<PathBuf>,
}

/// Why it does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The data folder.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The API server.
    #[error("the embedded API server does not start")]
    Plane(#[from] PlaneError),
    /// Its socket.
    #[error("the embedded API server cannot listen")]
    Listen(#[from] ListenError),
    /// A node.
    #[error("node {name} does not start")]
    Node {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: NodeError,
    },
}

/// Everything, running.
pub struct Embedded {
    plane: Localplane,
    listening: Listening,
    client: Client,
    kubeconfig: PathBuf,
    controller: JoinHandle<Result<(), RunError>>,
    agents: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Embedded {
    /// Starts all parts. They run until [`Embedded::shutdown`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let data = Data::open(&settings.data)?;
        let plane = Localplane::start(Config {
            data: Some(data.objects()),
            ..Config::new(larder_api::crds())
        })
        .await?;
        let token = data.token()?;
        let listening = plane.listen(settings.address, Tokens::admin(token.clone())).await?;
        let kubeconfig = data.write_kubeconfig(&listening.kubeconfig(&token))?;
        let client = Client::new(plane.service(), "default");
        let stop = CancellationToken::new();

        let mut agents = Vec::new();
        for node in &settings.nodes {
            let started = node
                .start(
                    &client,
                    &data.node(node.name.as_str())?,
                    settings.hosts.as_deref(),
                    stop.clone(),
                )
                .await;
            agents.push(started.map_err(|source| StartError::Node {
                name: node.name.to_string(),
                source,
            })?);
        }
        let controller = tokio::spawn(controller(client.clone(), stop.clone()));
        Ok(Self {
            plane,
            listening,
            client,
            kubeconfig,
            controller,
            agents,
            stop,
        })
    }

    /// A client in this process.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig for kubectl.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where kubectl is served.
    pub fn url(&self) -> String {
        self.listening.url()
    }

    /// Ends the controller and the agents, then the API server that they write to.
    pub async fn shutdown(self) {
        self.stop.cancel();
        match self.controller.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(error = &error as &dyn std::error::Error, "the controller ended early"),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "the controller ended abnormally"
            ),
        }
        for agent in self.agents {
            if let Err(error) = agent.await {
                tracing::error!(error = &error as &dyn std::error::Error, "an agent ended abnormally");
            }
        }
        self.plane.shutdown().await;
        self.listening.stopped().await;
    }
}

/// The one controller of this process: there is nobody to compete with for a lease.
async fn controller(client: Client, stop: CancellationToken) -> Result<(), RunError> {
    let settings = larder_controller::settings::Settings {
        leader_elect: false,
        ..larder_controller::settings::Settings::new("embedded".to_owned())
    };
    // Nobody asks an embedded controller for its numbers.
    let mut registry = Registry::default();
    let controller = Controller::new(client, settings, &Health::default(), &mut registry);
    let metrics = larder_controller::core::Metrics::default();
    let core = move |inputs| larder_controller::core::run(inputs, metrics);
    controller.run_around(core, stop).await
}
