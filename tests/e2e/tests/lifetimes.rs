//! From the beginning of a job to its end: clean-up, nodes that come later, deadlines, pace.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kube::api::Api;
use larder_api::ImagePullJob;
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Pushed, Registry, wait_until};
use serde_json::json;

const KIB: usize = 1024;

async fn image(registry: &Registry, seed: u64, name: &str) -> Pushed {
    registry
        .push(&Recipe::random(seed, 2, 100 * KIB).build(), name, "v1")
        .await
        .unwrap()
}

fn repository(image: &Pushed) -> &str {
    image.reference.trim_end_matches(":v1")
}

#[tokio::test]
async fn a_finished_job_is_removed_after_its_time_and_its_entries_with_it() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 14, "ttl/app").await;
    let cluster = Cluster::start(2).await;
    let policy = json!({ "completionPolicy": { "type": "Always", "ttlSecondsAfterFinished": 3 } });
    cluster.submit("short", &image.reference, &policy).await;
    cluster.finished("short").await;
    let jobs = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    wait_until(SOON, "the job to be removed", async || {
        jobs.get_opt("short").await.unwrap().is_none()
    })
    .await
    .unwrap();
    for node in &cluster.nodes {
        wait_until(SOON, "the entry to be removed", async || {
            cluster
                .node_image(&node.name)
                .await
                .entry(repository(&image), "v1")
                .is_none()
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_job_that_never_ends_reaches_nodes_that_come_later() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 15, "never/app").await;
    let mut cluster = Cluster::start(1).await;
    cluster
        .submit(
            "always-there",
            &image.reference,
            &json!({ "completionPolicy": { "type": "Never" } }),
        )
        .await;
    wait_until(SOON, "the first node to have it", async || {
        cluster.status("always-there").await.succeeded == 1
    })
    .await
    .unwrap();
    cluster.create_node("node-late").await;
    cluster.add_node("node-late").await;
    wait_until(SOON, "the new node to have it", async || {
        cluster.status("always-there").await.succeeded == 2
    })
    .await
    .unwrap();
    let late = cluster.nodes.last().unwrap();
    assert!(late.has_image(&image.reference, &image.digest).await);
    assert_eq!(cluster.status("always-there").await.completion_time, None);
}

#[tokio::test]
async fn nodes_whose_agents_come_later_are_waited_for() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 19, "early/app").await;
    let mut cluster = Cluster::start(1).await;
    let late = ["node-late", "node-later"];
    for name in late {
        cluster.create_node(name).await;
    }
    cluster.submit("early", &image.reference, &json!({})).await;
    for name in late {
        cluster.add_node(name).await;
    }
    let status = cluster.finished("early").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (3, 3, 0),
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
async fn a_deadline_ends_a_job_whose_registry_hangs() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 17, "hang/app").await;
    let cluster = Cluster::start(2).await;
    registry.freeze().unwrap();
    let policy = json!({ "completionPolicy": { "type": "Always", "activeDeadlineSeconds": 5 }, "pullPolicy": { "timeoutSeconds": 4 } });
    cluster.submit("late", &image.reference, &policy).await;
    let status = cluster.finished("late").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (2, 0, 2, 0),
        "{status:?}"
    );
    registry.thaw().unwrap();
}

#[tokio::test]
async fn parallelism_is_never_exceeded_and_zero_is_a_pause() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 18, "slow/app").await;
    let cluster = Cluster::start(3).await;
    cluster
        .submit("paused", &image.reference, &json!({ "parallelism": 0 }))
        .await;
    wait_until(SOON, "the job to be seen", async || {
        cluster.status("paused").await.desired == 3
    })
    .await
    .unwrap();
    assert_eq!(cluster.status("paused").await.active, 0);

    let seen = cluster.watch_orders(repository(&image), "v1");
    let patch = r#"{"spec":{"parallelism":1}}"#;
    cluster
        .kubectl(&["patch", "imagepulljob", "paused", "--type=merge", "-p", patch])
        .await
        .unwrap();
    let status = cluster.finished("paused").await;
    assert_eq!((status.desired, status.succeeded), (3, 3));
    let most = seen.end(3).await.most;
    assert_eq!(most, 1, "orders without a result at one moment");
}
