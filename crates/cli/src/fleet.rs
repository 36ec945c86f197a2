//! The objects by which the controller's explanations judge a job, read once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use larder_api::names::{EDGE_NODE_LABEL, IMAGES_READY_CONDITION};
use larder_api::{ImagePrePullJob, ImagePullJob, NodeImage};
use larder_controller::explain::{Objects, holds_docker_configuration};
use larder_planner::agent_nodes::{AgentNodes, NoAgent};
use larder_planner::dialect;
use larder_planner::kubeedge::nodes::{self, NoNodes};
use larder_planner::kubeedge::{Before, Choice, PrePull};
use larder_planner::node_gate::{DEFAULT_MAX_WAIT, GateRules};
use larder_planner::task::Tasks;
use larder_planner::windows::Windows;
use larder_planner::{NodeKey, SecretRef};

use crate::failure::Failure;

/// What all jobs have in common.
pub(crate) struct Fleet {
    client: Client,
    nodes: Vec<Node>,
    node_images: Vec<NodeImage>,
    controller: ControllerSettings,
}

/// What an ImagePrePullJob looks at in a node.
struct NodeFacts {
    labels: BTreeMap<String, String>,
    ready: bool,
    no_agent: Option<NoAgent>,
}

impl<'a> From<&'a NodeFacts> for dialect::Candidate<'a> {
    fn from(node: &'a NodeFacts) -> Self {
        Self {
            labels: &node.labels,
            ready: node.ready,
            no_agent: node.no_agent,
        }
    }
}

/// What the controller of the cluster is told that jobs depend on. Without the right to read its Deployment, or outside a
/// cluster, the controller's defaults.
#[derive(Clone, Default)]
pub(crate) struct ControllerSettings {
    /// Which nodes have an agent.
    pub(crate) agent_nodes: AgentNodes,
    /// When the whole fleet may pull.
    pub(crate) windows: Windows,
    /// How new nodes wait for images.
    pub(crate) node_gate: Option<GateRules>,
}

pub(crate) async fn controller_settings(client: &Client) -> ControllerSettings {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let controllers =
        ListParams::default().labels("app.kubernetes.io/part-of=larder,app.kubernetes.io/component=controller");
    let deployments = deployments.list(&controllers).await.map(|list| list.items);
    let pods = deployments.unwrap_or_default().into_iter();
    let pods = pods.filter_map(|deployment| deployment.spec?.template.spec);
    let arguments: Vec<String> = pods
        .flat_map(|pod| pod.containers)
        .flat_map(|container| container.args.unwrap_or_default())
        .collect();
    let told = |flag: &str| arguments.iter().find_map(|argument| argument.strip_prefix(flag));
    let agent_nodes = told("--agent-nodes=").and_then(|nodes| AgentNodes::parse(nodes).ok());
    let windows = told("--windows=").and_then(|windows| Windows::parse_fleet(windows).ok());
    let node_gate = told("--node-gate=").map(|taint| GateRules {
        taint: taint.to_owned(),
        max_wait: DEFAULT_MAX_WAIT,
    });
    ControllerSettings {
        agent_nodes: agent_nodes.unwrap_or_default(),
        windows: windows.unwrap_or_default(),
        node_gate,
    }
}

impl Fleet {
    pub(crate) async fn read(client: &Client) -> Result<Self, Failure> {
        let nodes: Api<Node> = Api::all(client.clone());
        let node_images: Api<NodeImage> = Api::all(client.clone());
        let all = ListParams::default();
        let (nodes, node_images) = futures::try_join!(nodes.list(&all), node_images.list(&all))
            .map_err(|error| Failure::from_api("reading nodes", &error))?;
        let controller = controller_settings(client).await;
        Ok(Self {
            client: client.clone(),
            nodes: nodes.items,
            node_images: node_images.items,
            controller,
        })
    }

    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.name_any() == name) || self.node_image(name).is_some()
    }

    pub(crate) fn node_image(&self, name: &str) -> Option<&NodeImage> {
        self.node_images.iter().find(|object| object.name_any() == name)
    }

    /// Whether a new node waits for its images before pods are scheduled there.
    pub(crate) fn is_gated(&self, name: &str) -> bool {
        let node = self.nodes.iter().find(|node| node.name_any() == name);
        let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition.type_ == IMAGES_READY_CONDITION && condition.status != "True")
    }

    /// Where a job lives, or would live.
    pub(crate) fn namespace_of(&self, job: &ImagePullJob) -> String {
        let default = || self.client.default_namespace().to_owned();
        job.namespace().unwrap_or_else(default)
    }

    /// The nodes that an ImagePrePullJob would choose now, and what it would ask of each.
    pub(crate) fn choose(&self, plan: &PrePull) -> Result<(Choice, Tasks), NoNodes> {
        let nodes = self.node_facts();
        let candidates: BTreeMap<NodeKey, dialect::Candidate<'_>> =
            nodes.iter().map(|(name, node)| (name.clone(), node.into())).collect();
        let mut choice = nodes::choose(&plan.nodes, &candidates, plan.waits_for_nodes(), &Before::default())?;
        let tasks = plan.tasks(&mut choice, &candidates, &Tasks::default());
        Ok((choice, tasks))
    }

    /// Whether a node is one of KubeEdge's.
    pub(crate) fn is_edge(&self, name: &str) -> bool {
        let node = self.nodes.iter().find(|node| node.name_any() == name);
        node.is_some_and(|node| node.labels().contains_key(EDGE_NODE_LABEL))
    }

    /// Whether Kubernetes calls a node ready.
    pub(crate) fn is_ready(&self, name: &str) -> bool {
        self.node_facts().get(name).is_some_and(|node| node.ready)
    }

    fn node_facts(&self) -> BTreeMap<NodeKey, NodeFacts> {
        let facts = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
            let name = node.name_any();
            let no_agent = self
                .controller
                .agent_nodes
                .without_agent(&name, node.labels(), taints.unwrap_or_default());
            let facts = NodeFacts {
                labels: node.labels().clone(),
                ready,
                no_agent,
            };
            (NodeKey::from(name), facts)
        };
        self.nodes.iter().map(facts).collect()
    }

    /// What one job is judged by: its pods and Secrets too.
    pub(crate) async fn objects_for(&self, job: &ImagePullJob) -> Result<Objects, Failure> {
        let template = &job.spec.template;
        let namespace = self.namespace_of(job);
        let mut objects = Objects {
            nodes: self.nodes.clone(),
            agent_nodes: self.controller.agent_nodes.clone(),
            fleet_windows: self.controller.windows.clone(),
            node_gate: self.controller.node_gate.clone(),
            node_images: self.node_images.clone(),
            ..Objects::default()
        };
        if template.pod_selector.is_some() {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            let pods = pods.list(&ListParams::default()).await;
            objects.pods = pods.map_err(|error| Failure::from_api("reading pods", &error))?.items;
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        for name in &template.pull_secrets {
            look_at(&secrets, name, format!("{namespace}/{name}"), &mut objects).await;
        }
        Ok(objects)
    }

    /// The same for an ImagePrePullJob, which names its Secrets with their namespaces.
    pub(crate) async fn objects_for_pre_pull(&self, job: &ImagePrePullJob) -> Objects {
        let mut objects = Objects {
            nodes: self.nodes.clone(),
            agent_nodes: self.controller.agent_nodes.clone(),
            fleet_windows: self.controller.windows.clone(),
            node_gate: self.controller.node_gate.clone(),
            node_images: self.node_images.clone(),
            ..Objects::default()
        };
        let tasks = PrePull::of(job).ok().and_then(|plan| self.choose(&plan).ok());
        let secrets: BTreeSet<SecretRef> = tasks
            .iter()
            .flat_map(|(_, tasks)| tasks.iter())
            .flat_map(|task| task.secrets().into_iter().cloned())
            .collect();
        for secret in secrets {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
            look_at(&secrets, &secret.name, secret.to_string(), &mut objects).await;
        }
        objects
    }
}

/// Finds out whether a pull secret can be used; its content is not kept. Without the right
/// to read it, nothing is reported about it.
async fn look_at(secrets: &Api<Secret>, name: &str, full_name: String, objects: &mut Objects) {
    match secrets.get_opt(name).await {
        Ok(None) => objects.missing_secrets.push(full_name),
        Ok(Some(secret)) if !holds_docker_configuration(&secret) => objects.unreadable_secrets.push(full_name),
        Ok(Some(_)) | Err(_) => {}
    }
}
