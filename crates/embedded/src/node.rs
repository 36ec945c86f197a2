//! One node: the Node object that a kubelet would make, and its agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimePlace, RuntimeSource, StateError};
use larder_model::NodeName;
use larder_private_files::{DirectoryError, require_subdirectory};
use larder_registry::hosts::Hosts;
use larder_registry::{Platform, RegistryClient};
use larder_runtime::RuntimeError;
use larder_runtime::detect::detect;
use larder_runtime::layout::LayoutRuntime;
use larder_telemetry::Health;
use serde_json::json;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A node to run.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its labels, beside the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Where its images go.
    pub runtime: Runtime,
}

/// Where a node's images go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// To this machine's container runtime if one answers, else to a folder.
    Machine,
    /// To a folder of its own.
    Folder,
}

/// A node that runs.
pub(crate) struct RunningNode {
    pub(crate) name: NodeName,
    /// Of its agent.
    pub(crate) health: Health,
    pub(crate) agent: JoinHandle<()>,
}

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// Its key, or the directory that holds it.
    #[error(transparent)]
    State(#[from] StateError),
    /// The place of its images.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its folder of images.
    #[error("its folder of images cannot be used")]
    Folder(#[from] RuntimeError),
    /// Its Node object.
    #[error("its Node object cannot be written")]
    Object(#[from] kube::Error),
}

impl Node {
    pub(crate) async fn start(
        &self,
        client: &Client,
        folder: &Path,
        hosts: Option<&Path>,
        stop: CancellationToken,
    ) -> Result<RunningNode, NodeError> {
        let state = folder.join("state");
        let key = larder_agent::node_key(&state)?;
        let runtime = self.runtime(folder, hosts).await?;
        self.register(client).await?;
        let settings = larder_agent::Settings {
            state_dir: Some(state),
            hosts_dir: hosts.map(Path::to_owned),
            // No kubelet removes images here.
            gc_threshold: 100,
            ..larder_agent::Settings::new(self.name.clone())
        };
        let health = Health::default();
        let parts = Parts {
            client: client.clone(),
            runtime,
            credentials: Credentials::new(Some(key), None),
            clock: Clock::of_this_machine(),
            metrics: Metrics::default(),
            health: health.clone(),
        };
        let name = self.name.clone();
        let agent = tokio::spawn(async move {
            if let Err(error) = larder_agent::run(settings, parts, stop).await {
                tracing::error!(node = %name, error = &error as &dyn std::error::Error, "the agent ended early");
            }
        });
        Ok(RunningNode {
            name: self.name.clone(),
            health,
            agent,
        })
    }

    async fn runtime(&self, folder: &Path, hosts: Option<&Path>) -> Result<RuntimeSource, NodeError> {
        if self.runtime == Runtime::Machine
            && let Ok(found) = detect(Path::new("/")).await
        {
            let place = RuntimePlace {
                endpoint: Some(found.endpoint),
                ..RuntimePlace::default()
            };
            return Ok(RuntimeSource::Found(place));
        }
        let registry = RegistryClient::new(larder_registry::Settings {
            hosts: hosts.map_or_else(Hosts::default, Hosts::in_dir),
            ..larder_registry::Settings::default()
        });
        let images = require_subdirectory(folder, "images")?;
        let images = LayoutRuntime::open(&images, registry, Platform::of_this_machine())?;
        Ok(RuntimeSource::Given(Arc::new(images)))
    }

    /// Makes the Node object, or brings it up to date, and says that the node is ready.
    async fn register(&self, client: &Client) -> Result<(), NodeError> {
        let nodes: Api<NodeObject> = Api::all(client.clone());
        let metadata = json!({ "name": self.name.as_str(), "labels": self.all_labels() });
        let object: NodeObject = match serde_json::from_value(json!({ "metadata": metadata })) {
            Ok(object) => object,
            Err(error) => return Err(kube::Error::SerdeError(error).into()),
        };
        match nodes.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = Patch::Merge(json!({ "metadata": { "labels": self.all_labels() } }));
                nodes.patch(self.name.as_str(), &PatchParams::default(), &patch).await?;
            }
            other => drop(other?),
        }
        say_ready(&nodes, self.name.as_str(), "True", "runs in this process").await?;
        Ok(())
    }

    fn all_labels(&self) -> BTreeMap<String, String> {
        let machine = Platform::of_this_machine();
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), self.name.to_string()),
            ("kubernetes.io/os".to_owned(), machine.os),
            ("kubernetes.io/arch".to_owned(), machine.architecture),
        ]);
        labels.extend(self.labels.clone());
        labels
    }
}

/// Says of Nodes that an earlier start had and this one has not that they are down, so that no job waits for them.
pub(crate) async fn retire_others(client: &Client, running: &[Node]) -> Result<(), kube::Error> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    for known in nodes.list(&ListParams::default()).await? {
        let name = known.name_any();
        if running.iter().all(|node| node.name.as_str() != name) {
            say_ready(&nodes, &name, "False", "was not started this time; see --nodes").await?;
        }
    }
    Ok(())
}

async fn say_ready(nodes: &Api<NodeObject>, name: &str, status: &str, message: &str) -> Result<(), kube::Error> {
    let ready = json!({ "type": "Ready", "status": status, "reason": "Embedded", "message": message });
    let patch = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}
