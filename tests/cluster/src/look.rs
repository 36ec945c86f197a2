//! What can be seen on a node and in its pods from outside.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use larder_testkit::Node;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{Cluster, NAMESPACE};

/// The bearer token that agents ask for at `/metrics`, and the Secret that holds it.
const METRICS_TOKEN: &str = "token-of-the-tests";
const METRICS_SECRET: &str = "metrics";

impl Cluster {
    /// Names of the images on a node that nothing may remove, as containerd marks them.
    pub async fn pinned_images(&self, node: &Node) -> Vec<String> {
        let listed = node.ctr(["images", "ls"]).await.unwrap();
        String::from_utf8_lossy(&listed.stdout)
            .lines()
            .filter(|line| line.contains("io.cri-containerd.pinned=pinned"))
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect()
    }

    /// Makes the namespace with the Secret for the agents' metrics. Returns the value that names it to the chart.
    pub async fn metrics_token(&self) -> String {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": METRICS_SECRET, "namespace": NAMESPACE},
            "stringData": {"token": METRICS_TOKEN},
        });
        self.apply(&namespace).await;
        self.apply(&secret).await;
        format!("monitoring.metricsTokenSecret={METRICS_SECRET}")
    }

    /// The names of all series that the pods of a part of Larder show to Prometheus.
    pub async fn metrics(&self, component: &str, port: u16) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (pod, on) in self.parts(component).await {
            let path = "-o=jsonpath={.status.podIP}";
            let address = self
                .kubectl(&["get", "pod", &pod, "-n", NAMESPACE, path])
                .await
                .unwrap();
            let node = self.nodes.iter().find(|node| node.name() == on).unwrap();
            let text = get(node, SocketAddr::new(address.parse().unwrap(), port), "/metrics").await;
            let samples = text.lines().filter(|line| line.starts_with("larder_"));
            names.extend(
                samples
                    .filter_map(|line| line.split(['{', ' ']).next())
                    .map(str::to_owned),
            );
        }
        names
    }
}

/// A request as Prometheus makes it, from the node on which the pod is.
async fn get(node: &Node, address: SocketAddr, path: &str) -> String {
    let mut stream = node.connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {METRICS_TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
