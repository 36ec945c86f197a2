//! The guides' examples, end to end: three containerd nodes, real agents, a real controller, a real registry.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::Engine as _;
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_until};
use serde_json::json;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_job_puts_an_image_on_every_node() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = registry
        .push(&Recipe::random(1, 3, MIB).build(), "guide/app", "v1")
        .await
        .unwrap();
    let cluster = Cluster::start(3).await;

    cluster.submit("everywhere", &image.reference, &json!({})).await;
    let status = cluster.finished("everywhere").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (3, 3, 0, 0)
    );
    assert_eq!(status.message.as_deref(), Some("job has completed"));
    for node in &cluster.nodes {
        assert!(
            node.has_image(&image.reference, &image.digest).await,
            "{} lacks it",
            node.name
        );
    }
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Complete",
            "imagepulljob/everywhere",
            "--timeout=10s",
        ])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_selector_by_name_and_by_label() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = registry
        .push(&Recipe::random(2, 1, MIB).build(), "guide/app", "v1")
        .await
        .unwrap();
    let other = registry
        .push(&Recipe::random(3, 1, MIB).build(), "guide/other", "v1")
        .await
        .unwrap();
    let cluster = Cluster::start(3).await;

    cluster
        .submit(
            "by-name",
            &image.reference,
            &json!({ "selector": { "names": ["node-1"] } }),
        )
        .await;
    let labels = json!({ "selector": { "matchLabels": { "e2e/number": "2" } } });
    cluster.submit("by-label", &other.reference, &labels).await;
    for job in ["by-name", "by-label"] {
        let status = cluster.finished(job).await;
        assert_eq!((status.desired, status.succeeded), (1, 1), "{job}");
    }
    for (number, node) in cluster.nodes.iter().enumerate() {
        assert_eq!(
            node.has_image(&image.reference, &image.digest).await,
            number == 1,
            "{}",
            node.name
        );
        assert_eq!(
            node.has_image(&other.reference, &other.digest).await,
            number == 2,
            "{}",
            node.name
        );
    }
}

#[tokio::test]
async fn a_private_registry_with_a_pull_secret() {
    let registry = Registry::start(Auth::basic("cook", "salt")).await.unwrap();
    let image = registry
        .push(&Recipe::random(4, 1, MIB).build(), "guide/private", "v1")
        .await
        .unwrap();
    let cluster = Cluster::start(2).await;
    let auth = base64::engine::general_purpose::STANDARD.encode("cook:salt");
    let config = json!({ "auths": { registry.host(): { "auth": auth } } }).to_string();
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "name": "pantry", "namespace": "default" },
            "stringData": { ".dockerconfigjson": config },
        }))
        .await;

    cluster
        .submit("private", &image.reference, &json!({ "pullSecrets": ["pantry"] }))
        .await;
    let status = cluster.finished("private").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (2, 2, 0),
        "{status:?}"
    );
    let orders = cluster.kubectl(&["get", "nodeimages", "-o", "yaml"]).await.unwrap();
    assert!(
        !orders.contains(&auth) && !orders.contains("salt"),
        "a password in plain text"
    );
}

#[tokio::test]
async fn an_image_that_does_not_exist() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let cluster = Cluster::start(2).await;
    let missing = format!("{}/guide/missing:v1", registry.host());
    cluster
        .submit("missing", &missing, &json!({ "pullPolicy": { "backoffLimit": 1 } }))
        .await;
    let status = cluster.finished("missing").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (2, 0, 2));
    assert_eq!(status.failed_nodes, ["node-0", "node-1"]);
    let name = missing.trim_end_matches(":v1");
    let node = cluster.node_image("node-0").await;
    let result = node.result(name, "v1").unwrap();
    let message = result.message.clone().unwrap();
    assert!(
        message.starts_with(&format!("Failed to pull image reference \"{missing}\": ")),
        "{message}"
    );
}

#[tokio::test]
async fn a_controller_that_is_killed_in_the_middle() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = registry
        .push(&Recipe::random(5, 2, MIB).build(), "guide/app", "v1")
        .await
        .unwrap();
    let mut cluster = Cluster::start(3).await;
    cluster
        .submit("killed", &image.reference, &json!({ "parallelism": 1 }))
        .await;
    wait_until(SOON, "the first node to be done", async || {
        cluster.status("killed").await.succeeded > 0
    })
    .await
    .unwrap();
    cluster.controller.restart().unwrap();
    let status = cluster.finished("killed").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0));
}
