//! Larder on one machine, without a cluster: the embedded API server, the controller and one agent for each node, in one
//! process.
//!
//! They are the same controller and the same agent that run in a cluster, and nothing here decides anything. This crate
//! opens the data folder, starts the parts, makes the Node objects that a kubelet would make, and ends the parts in order.
//!
//! What survives a restart (also after kill -9): all objects, each node's key, ledger and images.

mod data;
mod node;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use larder_api::NodeImage;
use larder_controller::run::{Controller, RunError};
use larder_localplane::{Config, ListenError, Listening, Localplane, StartError as PlaneError, Tokens};
use larder_telemetry::{Health, Registry};
use secrecy::SecretString;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use data::{DataError, DataFolder};
pub use larder_localplane::DiskError;
pub use node::{Node, NodeError, Runtime};

use crate::node::RunningNode;

/// How long to wait before the parts are asked again whether they are ready.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where kubectl is served; port 0 lets the system choose. None: where it was served last on this data, else somewhere
    /// on this machine.
    pub address: Option<SocketAddr>,
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
    /// The file of all objects is damaged, or another version wrote it.
    #[error("{file} cannot be read")]
    Objects {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        source: DiskError,
    },
    /// The API server.
    #[error("the embedded API server does not start")]
    Plane(#[source] PlaneError),
    /// Its socket.
    #[error("the embedded API server cannot listen")]
    Listen(#[from] ListenError),
    /// The Nodes of an earlier start.
    #[error("the nodes of an earlier start cannot be brought up to date")]
    Retire(#[from] kube::Error),
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

/// Parts that were not ready in time, and what they waited for.
#[derive(Debug, Error)]
#[error("not ready after {} s: {parts}", .limit.as_secs())]
pub struct NotReady {
    limit: Duration,
    parts: String,
}

/// Everything, running.
pub struct Embedded {
    plane: Localplane,
    listening: Listening,
    client: Client,
    kubeconfig: PathBuf,
    port_taken: Option<u16>,
    controller: JoinHandle<Result<(), RunError>>,
    health: Health,
    nodes: Vec<RunningNode>,
    stop: CancellationToken,
    _data: DataFolder,
}

impl Embedded {
    /// Starts all parts. They run until [`Embedded::shutdown`].
    pub async fn start(data: DataFolder, settings: Settings) -> Result<Self, StartError> {
        let plane = Localplane::start(Config {
            data: Some(data.objects()),
            ..Config::new(larder_api::crds())
        })
        .await
        .map_err(|error| unreadable(error, data.objects()))?;
        let token = data.token()?;
        let (listening, port_taken) = listen(&plane, &data, settings.address, &token).await?;
        data.remember_port(listening.address().port())?;
        let kubeconfig = data.write_kubeconfig(&listening.kubeconfig(&token))?;
        let client = Client::new(plane.service(), "default");
        let stop = CancellationToken::new();

        node::retire_others(&client, &settings.nodes).await?;
        let mut nodes = Vec::new();
        for node in &settings.nodes {
            let started = node
                .start(
                    &client,
                    &data.node(node.name.as_str())?,
                    settings.hosts.as_deref(),
                    stop.clone(),
                )
                .await;
            nodes.push(started.map_err(|source| StartError::Node {
                name: node.name.to_string(),
                source,
            })?);
        }
        let health = Health::default();
        let controller = tokio::spawn(controller(client.clone(), health.clone(), stop.clone()));
        Ok(Self {
            plane,
            listening,
            client,
            kubeconfig,
            port_taken,
            controller,
            health,
            nodes,
            stop,
            _data: data,
        })
    }

    /// Waits until the controller and the agents are ready and every node has its NodeImage, so that a job that is created
    /// now finds its nodes.
    pub async fn ready(&self, limit: Duration) -> Result<(), NotReady> {
        let mut waits_for = String::new();
        let ready = async {
            loop {
                match self.waits_for().await {
                    Some(parts) => waits_for = parts,
                    None => return,
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        let in_time = tokio::time::timeout(limit, ready).await;
        in_time.map_err(|_| NotReady {
            limit,
            parts: waits_for,
        })
    }

    /// What is not ready yet.
    async fn waits_for(&self) -> Option<String> {
        let controller = self
            .health
            .not_ready()
            .map(|why| format!("controller ({})", why.trim()));
        let node_images: Api<NodeImage> = Api::all(self.client.clone());
        let node_images = match node_images.list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(error) => return Some(format!("API server ({error})")),
        };
        let nodes = self.nodes.iter().filter_map(|node| {
            let why = node.health.not_ready().map(|why| why.trim().replace('\n', ", "));
            let object = node_images
                .iter()
                .find(|object| object.metadata.name.as_deref() == Some(node.name.as_str()));
            let answered =
                object.is_some_and(|object| object.status.as_ref().is_some_and(|status| status.agent.is_some()));
            let why = why.or_else(|| (!answered).then(|| "its agent has not answered".to_owned()));
            why.map(|why| format!("{} ({why})", node.name))
        });
        let parts: Vec<String> = controller.into_iter().chain(nodes).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
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

    /// The port of the last time, where somebody else has it now and another one was taken.
    pub fn port_taken(&self) -> Option<u16> {
        self.port_taken
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
        for node in self.nodes {
            if let Err(error) = node.agent.await {
                tracing::error!(error = &error as &dyn std::error::Error, "an agent ended abnormally");
            }
        }
        self.plane.shutdown().await;
        self.listening.stopped().await;
    }
}

/// Listens where it was asked to, or where it was last. Somebody else may have that port by now: then on another one, and
/// the old one is told too.
async fn listen(
    plane: &Localplane,
    data: &DataFolder,
    address: Option<SocketAddr>,
    token: &SecretString,
) -> Result<(Listening, Option<u16>), StartError> {
    let identity = data.identity()?;
    let tokens = Tokens::admin(token.clone());
    let on = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let last = data.last_port().filter(|_| address.is_none());
    let listened = match last {
        Some(port) => plane.listen_as(&identity, on(port), tokens.clone()).await,
        None => {
            plane
                .listen_as(&identity, address.unwrap_or(on(0)), tokens.clone())
                .await
        }
    };
    match (listened, last) {
        (Err(ListenError::Bind { .. }), Some(port)) => {
            let elsewhere = plane.listen_as(&identity, on(0), tokens).await?;
            Ok((elsewhere, Some(port)))
        }
        (Err(ListenError::Identity(source)), _) => {
            let folder = data.path().to_owned();
            Err(DataError::Identity { folder, source }.into())
        }
        (listened, _) => Ok((listened?, None)),
    }
}

/// A person has to do something about the file alone.
fn unreadable(error: PlaneError, file: PathBuf) -> StartError {
    match error {
        PlaneError::Disk(source) => StartError::Objects { file, source },
        other => StartError::Plane(other),
    }
}

/// The one controller of this process: there is nobody to compete with for a lease.
async fn controller(client: Client, health: Health, stop: CancellationToken) -> Result<(), RunError> {
    let settings = larder_controller::settings::Settings {
        leader_elect: false,
        // Its API server has no policies. The agents are in this process, and belong to the same user as the Secrets.
        accept_unenforced_node_policy: true,
        ..larder_controller::settings::Settings::new("embedded".to_owned())
    };
    // Nobody asks an embedded controller for its numbers.
    let mut registry = Registry::default();
    Controller::new(client, settings, &health, &mut registry)
        .run(stop)
        .await
}
