//! What a start on the data of an earlier one finds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use larder_embedded::{DataFolder, Embedded, Node, Runtime, Settings};
use larder_model::NodeName;

async fn start(data: &std::path::Path, nodes: usize) -> Embedded {
    let node = |number| Node {
        name: NodeName::parse(&format!("node-{number}")).unwrap(),
        labels: BTreeMap::new(),
        runtime: Runtime::Folder,
    };
    let settings = Settings {
        address: None,
        nodes: (1..=nodes).map(node).collect(),
        hosts: None,
    };
    Embedded::start(DataFolder::open(data).unwrap(), settings)
        .await
        .unwrap()
}

async fn is_ready(embedded: &Embedded, name: &str) -> bool {
    let nodes: Api<NodeObject> = Api::all(embedded.client());
    let status = nodes.get(name).await.unwrap().status.unwrap_or_default();
    let mut conditions = status.conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test]
async fn a_node_that_is_not_started_again_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), 2).await;
    assert!(is_ready(&first, "node-2").await);
    first.shutdown().await;

    let second = start(folder.path(), 1).await;
    assert!(is_ready(&second, "node-1").await);
    assert!(!is_ready(&second, "node-2").await);
    second.shutdown().await;

    let third = start(folder.path(), 2).await;
    assert!(is_ready(&third, "node-2").await);
    third.shutdown().await;
}

#[tokio::test]
async fn a_kubeconfig_that_was_copied_goes_on_working() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), 1).await;
    let kubeconfig = std::fs::read_to_string(first.kubeconfig()).unwrap();
    first.shutdown().await;

    let second = start(folder.path(), 1).await;
    assert_eq!(std::fs::read_to_string(second.kubeconfig()).unwrap(), kubeconfig);
    assert_eq!(second.port_taken(), None);
    second.shutdown().await;
}

#[tokio::test]
async fn a_port_that_somebody_else_has_now_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    std::fs::write(folder.path().join("port"), port.to_string()).unwrap();

    let embedded = start(folder.path(), 1).await;
    assert_eq!(embedded.port_taken(), Some(port));
    assert!(!embedded.url().ends_with(&format!(":{port}")), "{}", embedded.url());
    let now = std::fs::read_to_string(folder.path().join("port")).unwrap();
    assert!(embedded.url().ends_with(&format!(":{now}")), "{now}");
    embedded.shutdown().await;
}
