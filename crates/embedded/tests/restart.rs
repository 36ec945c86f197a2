//! What a start on the data of an earlier one finds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use larder_embedded::{DataFolder, Embedded, Node, Runtime, Settings};
use larder_model::NodeName;

/// A folder that is there already, and private.
fn folder() -> tempfile::TempDir {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

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
    let folder = folder();
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

/// Every file below the folder that is not part of an image, with its mode.
fn modes(folder: &std::path::Path, found: &mut BTreeMap<String, u32>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        let name = entry.path().display().to_string();
        found.insert(name, std::os::unix::fs::MetadataExt::mode(&about) & 0o7777);
        if about.is_dir() && entry.file_name() != "images" {
            modes(&entry.path(), found);
        }
    }
}

#[tokio::test]
async fn nothing_in_the_data_folder_can_be_read_by_others() {
    let folder = folder();
    let data = folder.path().join("data");
    let embedded = start(&data, 1).await;
    embedded.ready(Duration::from_secs(30)).await.unwrap();
    let mut found = BTreeMap::new();
    modes(folder.path(), &mut found);
    embedded.shutdown().await;
    for file in [
        "objects.redb",
        "nodes/node-1/state/ledger.redb",
        "server.key",
        "kubeconfig",
    ] {
        assert!(found.contains_key(&data.join(file).display().to_string()), "{found:?}");
    }
    found.retain(|name, _| !name.ends_with("/images"));
    let open: Vec<_> = found.iter().filter(|(_, mode)| *mode & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");
}

#[tokio::test]
async fn objects_that_an_earlier_version_left_readable_are_restricted() {
    let folder = folder();
    start(folder.path(), 1).await.shutdown().await;
    let objects = folder.path().join("objects.redb");
    let mode = |path: &std::path::Path| std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o7777;
    std::fs::set_permissions(&objects, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    start(folder.path(), 1).await.shutdown().await;
    assert_eq!(mode(&objects), 0o600);
}

#[tokio::test]
async fn a_kubeconfig_that_was_copied_goes_on_working() {
    let folder = folder();
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
    let folder = folder();
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
