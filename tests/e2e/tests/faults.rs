//! Parts that are killed in the middle of a job, and nodes that never answer: every job ends, no result is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Pushed, Registry, wait_until};
use serde_json::json;

const KIB: usize = 1024;

async fn image(registry: &Registry, seed: u64) -> Pushed {
    registry
        .push(&Recipe::random(seed, 3, 500 * KIB).build(), "fault/app", "v1")
        .await
        .unwrap()
}

/// A job that has begun: one node at a time, the first one done.
async fn begun(cluster: &Cluster, image: &Pushed) {
    cluster
        .submit("job", &image.reference, &json!({ "parallelism": 1 }))
        .await;
    wait_until(SOON, "the first node to be done", async || {
        cluster.status("job").await.succeeded > 0
    })
    .await
    .unwrap();
}

async fn ends_well(cluster: &Cluster, image: &Pushed, nodes: i32) {
    let status = cluster.finished("job").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (nodes, nodes, 0),
        "{status:?}"
    );
    for node in &cluster.nodes {
        assert!(
            node.has_image(&image.reference, &image.digest).await,
            "{} lacks it",
            node.name
        );
    }
}

#[tokio::test]
async fn agents_are_killed() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 21).await;
    let mut cluster = Cluster::start(3).await;
    begun(&cluster, &image).await;
    for node in &mut cluster.nodes {
        node.agent.restart().unwrap();
    }
    ends_well(&cluster, &image, 3).await;
}

#[tokio::test]
async fn containerds_are_killed() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 22).await;
    let mut cluster = Cluster::start(3).await;
    begun(&cluster, &image).await;
    for node in &mut cluster.nodes {
        node.containerd.kill().unwrap();
    }
    for node in &mut cluster.nodes {
        node.containerd.restart().await.unwrap();
    }
    ends_well(&cluster, &image, 3).await;
}

#[tokio::test]
async fn the_api_server_and_etcd_are_killed() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 23).await;
    let mut cluster = Cluster::start(3).await;
    begun(&cluster, &image).await;
    cluster.plane.kill_api_server().unwrap();
    cluster.plane.restart_api_server().await.unwrap();
    cluster.plane.kill_etcd().unwrap();
    cluster.plane.restart_etcd().await.unwrap();
    ends_well(&cluster, &image, 3).await;
}

#[tokio::test]
async fn a_node_that_never_answers_holds_up_nobody() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 24).await;
    let mut cluster = Cluster::start(3).await;
    cluster.nodes[0].agent.kill().unwrap();
    let fields = json!({ "parallelism": 1, "completionPolicy": { "type": "Always", "activeDeadlineSeconds": 50 },
                         "pullPolicy": { "timeoutSeconds": 10, "backoffLimit": 1 } });
    cluster.submit("job", &image.reference, &fields).await;
    wait_until(SOON, "the living nodes to be done", async || {
        cluster.status("job").await.succeeded == 2
    })
    .await
    .unwrap();
    let status = cluster.finished("job").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (3, 2, 1),
        "{status:?}"
    );
    assert_eq!(status.failed_nodes, ["node-0"]);
}

#[tokio::test]
async fn two_controllers_at_once() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 25).await;
    let mut cluster = Cluster::start(3).await;
    let mut second = cluster.second_controller().await;
    let name = image.reference.trim_end_matches(":v1");
    let orders = cluster.watch_orders(name, "v1");
    begun(&cluster, &image).await;
    cluster.controller.kill().unwrap();
    ends_well(&cluster, &image, 3).await;
    assert_eq!(
        orders.most_at_once(SOON).await,
        1,
        "parallelism over a change of leaders"
    );
    for node in &cluster.nodes {
        let node_image = cluster.node_image(&node.name).await;
        assert_eq!(
            node_image.result(name, "v1").unwrap().attempts,
            Some(1),
            "pulls on {}",
            node.name
        );
    }
    second.kill().unwrap();
}
