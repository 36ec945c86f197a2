//! Control plane and nodes.

use larder_testkit::{ControlPlane, Kubectl, Node, NodeOptions, Options, Scratch, kubectl};
use serde_json::Value;

use crate::images;

/// A control plane and its nodes.
pub struct Cluster {
    /// `node-0` first.
    pub nodes: Vec<Node>,
    /// The control plane.
    pub plane: ControlPlane,
    scratch: Scratch,
}

impl Cluster {
    /// Starts a cluster with one node for each of these options. They have the images of Larder itself, imported from the
    /// archives, and nothing else.
    pub async fn start(nodes: impl IntoIterator<Item = NodeOptions>) -> Self {
        Self::start_for(nodes, &[]).await
    }

    /// The same; nodes of these names may join later, see [`Self::join`].
    pub async fn start_for(nodes: impl IntoIterator<Item = NodeOptions>, later: &[&str]) -> Self {
        // Before anything else runs: the compiler needs the machine for itself.
        let archives = images::archives().await;
        let nodes: Vec<_> = (0..)
            .zip(nodes)
            .map(|(number, options)| (format!("node-{number}"), options))
            .collect();
        let plane = ControlPlane::start(Options {
            nodes: nodes
                .iter()
                .map(|(name, _)| name.clone())
                .chain(later.iter().map(ToString::to_string))
                .collect(),
            ..Options::default()
        })
        .await
        .unwrap();
        let mut cluster = Self {
            nodes: Vec::new(),
            plane,
            scratch: Scratch::create("cluster").unwrap(),
        };
        for (name, options) in nodes {
            let node = Node::start(cluster.plane.access(), &name, options).await.unwrap();
            for archive in &archives {
                node.import_archive(archive).await.unwrap();
            }
            cluster.nodes.push(node);
        }
        cluster
    }

    /// One more node, which has the images of Larder itself from the beginning. Returns when it is Ready.
    pub async fn join(&mut self, name: &str, options: NodeOptions) {
        let options = NodeOptions {
            archives: images::archives().await,
            ..options
        };
        let node = Node::start(self.plane.access(), name, options).await.unwrap();
        self.nodes.push(node);
    }

    /// kubectl with all permissions; its output if it succeeds.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = kubectl(Kubectl::Current, self.plane.kubeconfig(), arguments)
            .await
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Applies an object as a person does, from a file.
    pub async fn apply(&self, object: &Value) {
        self.apply_text(&object.to_string()).await;
    }

    /// The same with several objects in YAML.
    pub async fn apply_text(&self, objects: &str) {
        let file = self
            .scratch
            .join(format!("{}.yaml", larder_testkit::unique_name("apply")));
        std::fs::write(&file, objects).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.unwrap();
    }

    /// Everything that may explain why a test failed.
    pub async fn logs(&self) -> String {
        let mut texts = Vec::new();
        for what in ["pods,nodeimages,imagepulljobs,imageprepulljobs", "events"] {
            let listed = self.kubectl(&["get", what, "-A", "-o", "wide"]).await;
            texts.push(listed.unwrap_or_else(|error| error));
        }
        texts.push(
            self.kubectl(&["describe", "pods", "-A"])
                .await
                .unwrap_or_else(|error| error),
        );
        for node in &self.nodes {
            texts.push(node.log_tail());
            texts.push(node.container_logs());
        }
        texts.join("\n")
    }
}
