//! What an ImagePrePullJob says about nodes, failures and time is what happens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use larder_api::ImagePrePullJobStatus;
use larder_e2e::kubeedge::{phases, task, text};
use larder_e2e::{Cluster, GROUP, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Pushed, Registry, Throttle, wait_until};
use serde_json::{Value, json};
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

async fn image(registry: &Registry, seed: u64, name: &str) -> Pushed {
    let recipe = Recipe::random(seed, 2, 100 * KIB).build();
    registry.push(&recipe, name, "v1").await.unwrap()
}

fn phase(status: &ImagePrePullJobStatus) -> &str {
    text(status.phase.as_ref())
}

/// An overrider that lets nodes with this label fail: no registry has that tag.
fn spoiled(label: &str) -> Value {
    json!([{ "nodeLabel": label, "overriders": { "imageOverriders": [
        { "component": "Tag", "operator": "replace", "value": "missing" },
    ] } }])
}

#[tokio::test]
async fn nodes_are_chosen_by_group_and_by_name() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let grouped = image(&registry, 101, "rules/grouped").await;
    let named = image(&registry, 102, "rules/named").await;
    let [hangzhou, beijing] = ["hangzhou", "beijing"].map(|group| json!({ GROUP: group }));
    let cluster = Cluster::start_edge(&[hangzhou.clone(), beijing, hangzhou]).await;
    cluster.create_node("cloud").await;
    cluster.create_edge_node("asleep", &json!({})).await;
    cluster.set_ready("asleep", false).await;

    let template = json!({ "images": [grouped.reference], "labelSelector": { "matchLabels": { GROUP: "hangzhou" } } });
    cluster.prepull("group", template).await;
    let status = cluster.prepull_finished("group").await;
    assert_eq!(phase(&status), "Completed", "{status:?}");
    assert_eq!(phases(&status), [("edge-0", "Successful"), ("edge-2", "Successful")]);
    for (node, wanted) in cluster.nodes.iter().zip([true, false, true]) {
        assert_eq!(
            node.has_image(&grouped.reference, &grouped.digest).await,
            wanted,
            "{}",
            node.name
        );
    }

    // Named twice counts once; who cannot take part says why and counts as failed.
    let nodes = ["edge-1", "nobody", "edge-1", "cloud", "asleep"];
    let template = json!({ "images": [named.reference], "nodeNames": nodes, "failureTolerate": "0.75" });
    cluster.prepull("names", template).await;
    let status = cluster.prepull_finished("names").await;
    assert_eq!(
        phase(&status),
        "Completed",
        "three of four is exactly what is tolerated: {status:?}"
    );
    assert_eq!((status.desired, status.succeeded, status.failed), (4, 1, 3));
    let reasons = [
        ("nobody", "failed to get node, err: nodes \"nobody\" not found"),
        ("cloud", "the node is not an edge node"),
        ("asleep", "the node is not ready"),
    ];
    for (node, reason) in reasons {
        let said = task(&status, node);
        assert_eq!(
            (text(said.phase.as_ref()), text(said.reason.as_ref())),
            ("Failure", reason)
        );
    }

    let template = json!({ "images": [named.reference], "labelSelector": { "matchLabels": { GROUP: "nowhere" } } });
    cluster.prepull("none", template).await;
    let status = cluster.prepull_finished("none").await;
    let reason = text(status.reason.as_ref());
    assert_eq!(
        (phase(&status), reason),
        ("Failure", "no nodes were matched with selector")
    );
}

#[tokio::test]
async fn failures_are_tolerated_exactly_and_end_a_job_early() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 103, "rules/tolerated").await;
    let [good, bad] = [json!({}), json!({ "spoiled": "" })];
    let cluster = Cluster::start_edge(&[bad.clone(), bad, good.clone(), good]).await;
    let history = cluster.watch_prepulls().await;
    let spec = |tolerate: &str| {
        let names = ["edge-0", "edge-1", "edge-2", "edge-3"];
        json!({
            "imagePrePullTemplate": { "images": [image.reference], "nodeNames": names, "failureTolerate": tolerate },
            "imagePrePullOverriders": spoiled("spoiled"),
        })
    };
    let orders = cluster.watch_all_orders();
    // One node at a time, and nothing is tolerated: the first failure is the last order.
    cluster.prepull_spec("strict", spec("0")).await;
    let status = cluster.prepull_finished("strict").await;
    assert_eq!(phase(&status), "Failure");
    assert_eq!(
        text(status.reason.as_ref()),
        "the number of failed nodes is 1/4, which exceeds the failure tolerance threshold"
    );
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (4, 0, 1),
        "{status:?}"
    );
    for node in &cluster.nodes[1..] {
        assert_eq!(
            node.containerd.pulls(&image.reference),
            0,
            "{} was never asked",
            node.name
        );
    }

    cluster.prepull_spec("half", spec("0.5")).await;
    let status = cluster.prepull_finished("half").await;
    assert_eq!(
        phase(&status),
        "Completed",
        "two of four is exactly what is tolerated: {status:?}"
    );
    assert_eq!((status.desired, status.succeeded, status.failed), (4, 2, 2));
    let failed = task(&status, "edge-0");
    let reason = text(failed.reason.as_ref());
    assert!(
        reason.starts_with("there were some failures when pulling images: "),
        "{reason}"
    );
    assert_eq!(text(failed.image_status[0].status.as_ref()), "False");
    assert!(text(failed.image_status[0].resolved_image.as_ref()).ends_with(":missing"));
    let most = orders.end(4).await.most;
    assert_eq!(most, 1, "concurrency is 1 if nothing is said");
    for job in ["strict", "half"] {
        for said in history.until_over(job, SOON).await {
            let (phase, state) = (said.status.phase.as_deref(), said.status.state.as_deref());
            assert!(
                phase != Some("Init") && state != Some("Init"),
                "CloudCore acts on {said:?}"
            );
        }
    }
}

#[tokio::test]
async fn as_many_nodes_at_once_as_the_job_says() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(104, 1, MIB).build();
    registry.push(&recipe, "rules/many", "v1").await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(500_000));
    let reference = format!("{}/rules/many:v1", line.host());
    let cluster = Cluster::start_edge(&[json!({}), json!({}), json!({}), json!({})]).await;
    let orders = cluster.watch_orders(reference.trim_end_matches(":v1"), "v1");
    cluster
        .prepull("two", json!({ "images": [reference], "labelSelector": {} }))
        .await;
    let begun = |status: &ImagePrePullJobStatus| status.succeeded == 1;
    cluster.prepull_until("two", "the first node", begun).await;
    // An edit counts for a job that runs.
    let patch = r#"{"spec":{"imagePrePullTemplate":{"concurrency":2}}}"#;
    cluster
        .kubectl(&["patch", "imageprepulljob", "two", "--type=merge", "-p", patch])
        .await
        .unwrap();
    let status = cluster.prepull_finished("two").await;
    assert_eq!((phase(&status), status.succeeded), ("Completed", 4), "{status:?}");
    assert_eq!(orders.end(4).await.most, 2);
}

#[tokio::test]
async fn tries_and_times_are_those_of_the_job() {
    let mut registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 105, "rules/tries").await;
    let other = self::image(&registry, 106, "rules/other").await;
    let cluster = Cluster::start_edge(&[json!({}), json!({})]).await;
    let tries = async |reference: &str| {
        let node = cluster.node_image("edge-0").await;
        let result = node.result(reference.trim_end_matches(":v1"), "v1");
        result.and_then(|result| result.attempts)
    };

    // One image is there, the other is not: the good one counts, and the bad one says why.
    let missing = format!("{}/rules/missing:v1", registry.host());
    let template = json!({ "images": [missing, other.reference], "nodeNames": ["edge-0"], "retryTimes": 3 });
    cluster.prepull("partly", template).await;
    let status = cluster.prepull_finished("partly").await;
    assert_eq!(phase(&status), "Failure");
    let images = &task(&status, "edge-0").image_status;
    let results: Vec<_> = images.iter().map(|image| text(image.status.as_ref())).collect();
    assert_eq!(results, ["False", "True"], "{images:?}");
    assert!(text(images[0].reason.as_ref()).contains("rules/missing"), "{images:?}");
    assert!(cluster.nodes[0].has_image(&other.reference, &other.digest).await);

    // A registry that is down is tried again as often as the job says.
    registry.kill().unwrap();
    let template = json!({ "images": [image.reference], "nodeNames": ["edge-0"], "retryTimes": 2 });
    cluster.prepull("tries", template).await;
    let status = cluster.prepull_finished("tries").await;
    assert_eq!(phase(&status), "Failure");
    assert_eq!(tries(&image.reference).await, Some(3), "the first and two more");

    // A registry that hangs costs each node its own time, counted from its own turn.
    registry.restart().await.unwrap();
    registry.freeze().unwrap();
    let template = json!({
        "images": [image.reference], "nodeNames": ["edge-0", "edge-1"], "timeoutSeconds": 5, "failureTolerate": "1",
        "checkItems": [],
    });
    let start = Instant::now();
    cluster.prepull("times", template).await;
    let status = cluster.prepull_finished("times").await;
    let took = start.elapsed();
    registry.thaw().unwrap();
    assert!(
        took >= Duration::from_secs(10),
        "two nodes, one after the other: {took:?}"
    );
    assert_eq!((phase(&status), status.failed), ("Completed", 2), "{status:?}");
    for node in ["edge-0", "edge-1"] {
        let said = task(&status, node);
        let (node_phase, reason) = (text(said.phase.as_ref()), text(said.reason.as_ref()));
        assert_eq!(
            (node_phase, reason),
            ("Failure", "The node task has timed out"),
            "{said:?}"
        );
    }
    let events: Vec<_> = status
        .status
        .iter()
        .filter_map(|node| node.node_status.as_ref()?.event.clone())
        .collect();
    assert_eq!(events, ["TimeOut", "TimeOut"]);
}

#[tokio::test]
async fn a_job_that_is_deleted_stops_its_pulls_and_its_name_can_be_used_again() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(107, 1, 20 * MIB).build();
    let image = registry.push(&recipe, "rules/deleted", "v1").await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(500_000));
    let reference = format!("{}/rules/deleted:v1", line.host());
    let name = reference.trim_end_matches(":v1");
    let cluster = Cluster::start_edge(&[json!({})]).await;
    // As a job looks that KubeEdge's own controller has once seen.
    let job = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2",
        "kind": "ImagePrePullJob",
        "metadata": { "name": "again", "finalizers": ["kubeedge.io/imageprepulljob-controller"] },
        "spec": { "imagePrePullTemplate": { "images": [reference], "nodeNames": ["edge-0"] } },
    });
    let history = cluster.watch_prepulls().await;
    cluster.apply(&job).await;
    let node = &cluster.nodes[0];
    wait_until(SOON, "the first bytes", async || line.bytes() > MIB as u64)
        .await
        .unwrap();
    cluster
        .kubectl(&["delete", "imageprepulljob", "again", "--timeout=30s"])
        .await
        .unwrap();
    wait_until(SOON, "the order to be withdrawn", async || {
        cluster.node_image("edge-0").await.entry(name, "v1").is_none()
    })
    .await
    .unwrap();
    // The runtime gives up its downloads: nothing of them is left under way.
    wait_until(SOON, "the download to end", async || {
        let active = node.containerd.ctr(["content", "active"]).await.unwrap();
        !String::from_utf8_lossy(&active.stdout).contains("layer-sha256")
    })
    .await
    .unwrap();
    assert!(!node.has_image(&reference, &image.digest).await);

    line.set(Link::Open);
    let mut job = job;
    job["metadata"].as_object_mut().unwrap().remove("finalizers");
    job["spec"]["imagePrePullTemplate"]["ttlSecondsAfterFinished"] = json!(3);
    cluster.apply(&job).await;
    let said = history.until_over("again", SOON).await;
    let lives: std::collections::BTreeSet<_> = said.iter().map(|said| said.uid.as_str()).collect();
    assert_eq!(lives.len(), 2);
    assert_eq!(phase(&said.last().unwrap().status), "Completed", "{said:?}");
    assert!(node.has_image(&reference, &image.digest).await);
    // And it goes by itself when its time is over.
    wait_until(SOON, "the end of the job", async || {
        cluster.kubectl(&["get", "imageprepulljob", "again"]).await.is_err()
    })
    .await
    .unwrap();
}
