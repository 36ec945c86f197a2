//! Hollow nodes: the real agent, with a runtime that only waits. Each has a client of its own, and so its own connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimeSource, Settings};
use larder_model::{ImageRef, NodeName};
use larder_runtime::fake::{FakeRuntime, Script};
use larder_seal::KeyPair;
use larder_telemetry::Health;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::stage::Stage;
use crate::watching::Watching;
use crate::{LIMIT, PULL};

/// Requests at once while nodes are made.
const AT_ONCE: usize = 64;

/// Agents that are started together: a cluster does not start all its nodes in one moment either.
const BATCH: usize = 200;

/// The nodes that have been made so far.
pub struct Fleet<'a> {
    stage: &'a Stage,
    watching: &'a Watching,
    nodes: Vec<HollowNode>,
    agents: JoinSet<()>,
    stop: CancellationToken,
}

/// One node.
pub struct HollowNode {
    /// Its name.
    pub name: String,
    /// Its runtime.
    pub runtime: FakeRuntime,
}

/// Name of a node by its number; names sort as numbers do.
pub fn name_of(number: usize) -> String {
    format!("node-{number:05}")
}

/// What is written on the node of this number and name.
pub fn labels_of(number: usize, name: &str) -> BTreeMap<String, String> {
    let labels = [
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", "amd64".to_owned()),
        ("group", format!("group-{}", number % crate::crowd::GROUPS)),
    ];
    labels.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Makes the Nodes of these numbers, which Kubernetes takes for ready.
pub async fn make_nodes(client: &Client, numbers: std::ops::Range<usize>) {
    make_named(client, numbers.map(name_of).collect()).await;
}

/// Makes Nodes of these names, which Kubernetes takes for ready.
pub async fn make_named(client: &Client, names: Vec<String>) {
    let nodes = Api::<Node>::all(client.clone());
    let create = |(number, name): (usize, String)| {
        let nodes = nodes.clone();
        async move {
            let node = json!({
                "metadata": {"name": name, "labels": labels_of(number, &name)},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            let node: Node = serde_json::from_value(node).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
    };
    futures::stream::iter(names.into_iter().enumerate().map(create))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

impl<'a> Fleet<'a> {
    /// No node yet.
    pub fn new(stage: &'a Stage, watching: &'a Watching) -> Self {
        Self {
            stage,
            watching,
            nodes: Vec::new(),
            agents: JoinSet::new(),
            stop: CancellationToken::new(),
        }
    }

    /// More nodes, until there are so many; returns when all their agents have said something.
    pub async fn grow(&mut self, size: usize) {
        while self.nodes.len() < size {
            let first = self.nodes.len();
            let end = size.min(first + BATCH);
            make_nodes(&self.stage.client(), first..end).await;
            for number in first..end {
                self.start(name_of(number));
            }
            self.watching.answering(end, LIMIT).await;
        }
    }

    fn start(&mut self, name: String) {
        let runtime = FakeRuntime::new();
        runtime.script_all(Script::takes(PULL));
        let settings = Settings::new(NodeName::parse(&name).unwrap());
        // All have the same key: making one costs more than anything else here, and nobody reads secrets.
        let key = KeyPair::load_or_create(&self.stage.folder().join("node.key")).unwrap();
        let parts = Parts {
            client: self.stage.access().client().unwrap(),
            runtime: RuntimeSource::Given(Arc::new(runtime.clone())),
            credentials: Credentials::new(Some(key), None),
            clock: Clock::of_this_machine(),
            metrics: Metrics::default(),
            health: Health::default(),
        };
        let stop = self.stop.clone();
        self.agents.spawn(async move {
            larder_agent::run(settings, parts, stop).await.unwrap();
        });
        self.nodes.push(HollowNode { name, runtime });
    }

    /// The nodes.
    pub fn nodes(&self) -> &[HollowNode] {
        &self.nodes
    }

    /// From now on pulls take this long on every node that is there.
    pub fn pulls_take(&self, time: Duration) {
        for node in &self.nodes {
            node.runtime.script_all(Script::takes(time));
        }
    }

    /// Puts an image onto every node.
    pub fn put(&self, image: &ImageRef) {
        self.nodes.iter().for_each(|node| node.runtime.put(image));
    }

    /// Which nodes pulled an image, and when each pull began.
    pub fn pulls(&self, image: &ImageRef) -> Vec<(String, Instant)> {
        let of = |node: &HollowNode| {
            let pulls = node.runtime.pulls().into_iter().filter(|pull| pull.image == *image);
            pulls.map(|pull| (node.name.clone(), pull.at)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of).collect()
    }

    /// Ends the agents.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.agents.join_next().await {
            ended.unwrap();
        }
    }
}
