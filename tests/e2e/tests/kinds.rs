//! What else the guides show: lists of images, entries written by hand, jobs that stay, clean-up, pods, deadlines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Pushed, Registry, wait_for, wait_until};
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
async fn a_list_job_has_one_child_per_image() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let images = [
        image(&registry, 11, "list/a").await,
        image(&registry, 12, "list/b").await,
    ];
    let cluster = Cluster::start(2).await;
    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImageListPullJob",
            "metadata": { "name": "list", "namespace": "default" },
            "spec": {
                "images": [images[0].reference, images[1].reference],
                "completionPolicy": { "type": "Always" },
            },
        }))
        .await;
    let lists = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    let status = wait_for(SOON, "the list job to end", async || {
        let status = lists.get("list").await.unwrap().status.unwrap_or_default();
        if status.completion_time.is_some() {
            Ok(status)
        } else {
            Err(format!("{status:?}\n{}", cluster.logs()))
        }
    })
    .await
    .unwrap();
    assert_eq!((status.desired, status.succeeded, status.completed), (2, 2, 2));
    let children = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    let children = children.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(children.len(), 2);
    let owned = |child: &ImagePullJob| {
        child
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.name == "list")
    };
    assert!(children.iter().all(owned));
    for node in &cluster.nodes {
        for image in &images {
            assert!(
                node.has_image(&image.reference, &image.digest).await,
                "{} lacks {image:?}",
                node.name
            );
        }
    }
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Complete",
            "imagelistpulljob/list",
            "--timeout=10s",
        ])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_entry_written_by_hand_is_pulled_and_removed_after_its_time() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 13, "hand/app").await;
    let cluster = Cluster::start(1).await;
    let name = repository(&image);
    let tags = json!([{ "tag": "v1", "pullPolicy": { "ttlSecondsAfterFinished": 5 } }]);
    let patch = json!({ "spec": { "images": { name: { "tags": tags } } } }).to_string();
    cluster
        .kubectl(&["patch", "nodeimage", "node-0", "--type=merge", "-p", &patch])
        .await
        .unwrap();
    let node = &cluster.nodes[0];
    wait_until(SOON, "the image to be there", async || {
        node.has_image(&image.reference, &image.digest).await
    })
    .await
    .unwrap();
    wait_for(SOON, "the entry and its result to go", async || {
        let node_image = cluster.node_image("node-0").await;
        let (entry, result) = (node_image.entry(name, "v1"), node_image.result(name, "v1"));
        if entry.is_none() && result.is_none() {
            Ok(())
        } else {
            Err(format!("{entry:?} {result:?}"))
        }
    })
    .await
    .unwrap();
    assert!(
        node.has_image(&image.reference, &image.digest).await,
        "the image itself stays"
    );
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
async fn pods_say_which_nodes() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 16, "pods/app").await;
    let cluster = Cluster::start(2).await;
    let pod = serde_json::from_value(json!({
        "metadata": { "name": "web", "labels": { "app": "web" } },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "web", "image": "web" }] },
    }))
    .unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    cluster
        .submit(
            "by-pod",
            &image.reference,
            &json!({ "podSelector": { "matchLabels": { "app": "web" } } }),
        )
        .await;
    let status = cluster.finished("by-pod").await;
    assert_eq!((status.desired, status.succeeded), (1, 1));
    assert!(cluster.nodes[1].has_image(&image.reference, &image.digest).await);
    assert!(!cluster.nodes[0].has_image(&image.reference, &image.digest).await);
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
    let most = seen.most_at_once(Duration::from_secs(10)).await;
    assert_eq!(most, 1, "orders without a result at one moment");
}
