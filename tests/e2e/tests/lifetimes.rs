//! From the beginning of a job to its end: clean-up, nodes that come later, deadlines, pace.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kube::api::Api;
use larder_api::{ImagePullJob, NodeImage};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Pushed, Registry, Throttle, wait_for, wait_until};
use serde_json::{Value, json};

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

/// Each has a registry and a job of its own; none minds the others.
#[tokio::test]
async fn jobs_side_by_side() {
    let cluster = Cluster::start(3).await;
    tokio::join!(
        a_finished_job_is_removed_after_its_time_and_its_entries_with_it(&cluster),
        a_deadline_ends_a_job_whose_registry_hangs(&cluster),
        parallelism_is_never_exceeded_and_zero_is_a_pause(&cluster),
        edits_of_a_running_job_reach_its_orders(&cluster),
        a_slow_pull_tells_how_far_it_is(&cluster),
    );
}

async fn a_finished_job_is_removed_after_its_time_and_its_entries_with_it(cluster: &Cluster) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 14, "ttl/app").await;
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

async fn a_deadline_ends_a_job_whose_registry_hangs(cluster: &Cluster) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 17, "hang/app").await;
    registry.freeze().unwrap();
    let policy = json!({ "completionPolicy": { "type": "Always", "activeDeadlineSeconds": 5 }, "pullPolicy": { "timeoutSeconds": 4 } });
    cluster.submit("late", &image.reference, &policy).await;
    let status = cluster.finished("late").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (3, 0, 3, 0),
        "{status:?}"
    );
    registry.thaw().unwrap();
}

async fn parallelism_is_never_exceeded_and_zero_is_a_pause(cluster: &Cluster) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 18, "slow/app").await;
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

/// The line stands still, so that the job runs while it is edited.
async fn edits_of_a_running_job_reach_its_orders(cluster: &Cluster) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    image(&registry, 41, "edit/app").await;
    let next = image(&registry, 42, "edit/next").await;
    line.set(Link::Stalled);
    let name = format!("{}/edit/app", line.host());
    let fields = json!({ "parallelism": 1, "selector": { "names": ["node-0", "node-1"] } });
    cluster.submit("edited", &format!("{name}:v1"), &fields).await;
    let edit = async |spec: Value| {
        let patch = json!({ "spec": spec }).to_string();
        cluster
            .kubectl(&["patch", "imagepulljob", "edited", "--type=merge", "-p", &patch])
            .await
            .unwrap();
    };
    let becomes = async |node: &str, what: &str, is: &dyn Fn(&NodeImage) -> bool| {
        wait_for(SOON, format!("{node} to be {what}"), async || {
            let object = cluster.node_image(node).await;
            if is(&object) {
                Ok(())
            } else {
                Err(format!("{:?}", object.spec))
            }
        })
        .await
        .unwrap();
    };
    let ordered = |object: &NodeImage| object.entry(&name, "v1").is_some();
    becomes("node-0", "ordered", &ordered).await;
    assert!(!ordered(&cluster.node_image("node-1").await));
    edit(json!({ "parallelism": 2 })).await;
    becomes("node-1", "ordered too", &ordered).await;

    edit(json!({
        "pullPolicy": { "timeoutSeconds": 1234, "backoffLimit": 7 },
        "completionPolicy": { "activeDeadlineSeconds": 5000 },
        "imagePullPolicy": "Always",
        "sandboxConfig": { "labels": { "team": "blue" } },
    }))
    .await;
    for node in ["node-0", "node-1"] {
        becomes(node, "given the new rules", &|object| {
            let Some(entry) = object.entry(&name, "v1") else {
                return false;
            };
            let policy = &entry.pull_policy;
            let sandbox = object.spec.images[&name].sandbox_config.clone().unwrap_or_default();
            (policy.timeout_seconds, policy.backoff_limit) == (1234, 7)
                && policy.active_deadline_seconds.is_some()
                && entry.image_pull_policy.as_deref() == Some("Always")
                && sandbox.labels.get("team").is_some_and(|team| team == "blue")
        })
        .await;
    }
    edit(json!({ "selector": { "names": ["node-1"] } })).await;
    becomes("node-0", "left alone", &|object| !ordered(object)).await;

    // The next image comes by another way; the old one never arrives.
    edit(json!({ "image": next.reference })).await;
    becomes("node-1", "rid of the old image", &|object| !ordered(object)).await;
    let status = cluster.finished("edited").await;
    assert_eq!((status.desired, status.succeeded), (1, 1), "{status:?}");
    assert!(cluster.nodes[1].has_image(&next.reference, &next.digest).await);
}

async fn a_slow_pull_tells_how_far_it_is(cluster: &Cluster) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(100 * KIB as u64));
    let recipe = Recipe::random(43, 2, 400 * KIB);
    registry.push(&recipe.build(), "slow/app", "v1").await.unwrap();
    let reference = format!("{}/slow/app:v1", line.host());
    cluster.submit("slow", &reference, &json!({})).await;
    let seen = wait_for(SOON, "bytes between none and all", async || {
        let status = cluster.status("slow").await;
        let (done, total) = (status.progress.bytes_done, status.progress.bytes_total);
        match (done, total) {
            (Some(done), Some(total)) if 0 < done && done < total => Ok(total),
            _ => Err(format!("{status:?}")),
        }
    })
    .await
    .unwrap();
    let status = cluster.finished("slow").await;
    assert_eq!(status.succeeded, 3);
    let total = status.progress.bytes_total.unwrap();
    assert_eq!(status.progress.bytes_done, Some(total));
    assert!((800 * 1024..=total).contains(&seen), "{seen} of {total}");
}
