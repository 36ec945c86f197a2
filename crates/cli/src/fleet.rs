//! The objects by which the controller's explanations judge a job, read once.

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use larder_api::{ImagePullJob, NodeImage};
use larder_controller::explain::Objects;

use crate::failure::Failure;

/// What all jobs have in common.
pub(crate) struct Fleet {
    client: Client,
    nodes: Vec<Node>,
    node_images: Vec<NodeImage>,
}

impl Fleet {
    pub(crate) async fn read(client: &Client) -> Result<Self, Failure> {
        let nodes: Api<Node> = Api::all(client.clone());
        let node_images: Api<NodeImage> = Api::all(client.clone());
        let all = ListParams::default();
        let (nodes, node_images) = futures::try_join!(nodes.list(&all), node_images.list(&all))
            .map_err(|error| Failure::from_api("reading nodes", &error))?;
        Ok(Self {
            client: client.clone(),
            nodes: nodes.items,
            node_images: node_images.items,
        })
    }

    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.name_any() == name) || self.node_image(name).is_some()
    }

    pub(crate) fn node_image(&self, name: &str) -> Option<&NodeImage> {
        self.node_images.iter().find(|object| object.name_any() == name)
    }

    /// What one job is judged by: its pods and Secrets too.
    pub(crate) async fn objects_for(&self, job: &ImagePullJob) -> Result<Objects, Failure> {
        let template = &job.spec.template;
        let namespace = job
            .namespace()
            .unwrap_or_else(|| self.client.default_namespace().to_owned());
        let mut objects = Objects {
            nodes: self.nodes.clone(),
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
            // Whether it is there is all we want to know; whoever may not see it cannot be told.
            if let Ok(None) = secrets.get_metadata_opt(name).await {
                objects.missing_secrets.push(format!("{namespace}/{name}"));
            }
        }
        Ok(objects)
    }
}
