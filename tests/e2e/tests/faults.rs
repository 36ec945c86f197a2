//! Trouble that is not sudden death: nodes that never answer, full NodeImages, vanished namespaces, registries that are
//! away, leaders that change. Every job ends, or says what it waits for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use larder_api::node_image::ImageTagStatus;
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Pushed, Registry, Throttle, wait_for, wait_until};
use serde_json::{Map, Value, json};

const KIB: usize = 1024;

/// How long nobody may lead after the leader was killed.
const TAKEOVER: Duration = Duration::from_secs(20);

async fn image(registry: &Registry, seed: u64, name: &str) -> Pushed {
    registry
        .push(&Recipe::random(seed, 2, 128 * KIB).build(), name, "v1")
        .await
        .unwrap()
}

#[tokio::test]
async fn a_node_that_never_answers_holds_up_nobody() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 24, "fault/app").await;
    let mut cluster = Cluster::start(3).await;
    cluster.nodes[0].agent.kill().unwrap();
    let fields = json!({ "parallelism": 1, "completionPolicy": { "type": "Always", "activeDeadlineSeconds": 50 },
                         "pullPolicy": { "timeoutSeconds": 10, "backoffLimit": 1 } });
    let orders = cluster.watch_orders(image.reference.trim_end_matches(":v1"), "v1");
    cluster.submit("job", &image.reference, &fields).await;
    wait_until(SOON, "the living nodes to be done", async || {
        cluster.status("job").await.succeeded == 2
    })
    .await
    .unwrap();
    assert_eq!(orders.end(2).await.most, 1);
    let message = cluster.status("job").await.message.unwrap();
    assert!(
        message.contains("1 Unresponsive"),
        "it does not say what it waits for: {message}"
    );
    let status = cluster.finished("job").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (3, 2, 1),
        "{status:?}"
    );
    assert_eq!(status.failed_nodes, ["node-0"]);
}

/// Two replicas that both see late what happens, and late whether their writes were taken; the one that leads is killed
/// in the middle of a job.
#[tokio::test]
async fn a_follower_takes_over_within_twenty_seconds_and_exceeds_nothing() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let slow = Throttle::start(registry.address()).await.unwrap();
    slow.set(Link::bytes_per_second(128 * KIB as u64));
    image(&registry, 25, "fault/app").await;
    let name = format!("{}/fault/app", slow.host());
    let mut cluster = Cluster::start(3).await;
    let access = cluster.plane.access().clone();
    let lines = [
        Throttle::start(access.address()).await.unwrap(),
        Throttle::start(access.address()).await.unwrap(),
    ];
    let leases = Api::<Lease>::namespaced(cluster.client(), "larder-system");
    let lease = async || leases.get("larder-controller").await.unwrap().spec.unwrap();
    let first = lease().await.holder_identity;
    cluster.controller.kill().unwrap();
    let mut leader = cluster
        .replica("first", &access.through(lines[0].address()).unwrap())
        .await;
    wait_until(SOON, "the first replica to lead", async || {
        lease().await.holder_identity != first
    })
    .await
    .unwrap();
    let leading = lease().await.holder_identity;
    let mut follower = cluster
        .replica("second", &access.through(lines[1].address()).unwrap())
        .await;
    for line in &lines {
        line.set(Link::bytes_per_second(20 * KIB as u64));
    }

    let orders = cluster.watch_orders(&name, "v1");
    cluster
        .submit("job", &format!("{name}:v1"), &json!({ "parallelism": 1 }))
        .await;
    wait_until(SOON, "the first order", async || {
        for node in &cluster.nodes {
            if cluster.node_image(&node.name).await.entry(&name, "v1").is_some() {
                return true;
            }
        }
        false
    })
    .await
    .unwrap();
    leader.kill().unwrap();
    wait_until(TAKEOVER, "the other replica to lead", async || {
        lease().await.holder_identity != leading
    })
    .await
    .unwrap();
    let status = cluster.finished("job").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0));
    let seen = orders.end(3).await;
    assert_eq!(seen.most, 1, "parallelism over a change of leaders");
    assert!(seen.lost.is_empty(), "{:?}", seen.lost);
    for node in &cluster.nodes {
        assert_eq!(
            node.containerd.pulls(&format!("{name}:v1")),
            1,
            "pulls on {}",
            node.name
        );
    }
    follower.kill().unwrap();
}

/// 256 names are all that a NodeImage holds. The node says so and is served when there is room; nobody waits for it.
#[tokio::test]
async fn a_node_image_with_256_images_is_full() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 26, "fault/app").await;
    let cluster = Cluster::start(2).await;
    let entry =
        json!({ "tags": [{ "tag": "v1", "pullPolicy": { "ttlSecondsAfterFinished": 86_400, "backoffLimit": 0 } }] });
    let name = |number: usize| format!("{}/nobody-has-{number}", registry.host());
    let images: Map<String, Value> = (0..256).map(|number| (name(number), entry.clone())).collect();
    let patch = async |images: Value| {
        let patch = json!({ "spec": { "images": images } }).to_string();
        cluster
            .kubectl(&["patch", "nodeimage", "node-0", "--type=merge", "-p", &patch])
            .await
    };
    patch(images.into()).await.unwrap();
    let refused = patch(json!({ "one-too-many": entry })).await.unwrap_err();
    assert!(refused.contains("256"), "{refused}");

    cluster
        .submit("job", &image.reference, &json!({ "parallelism": 1 }))
        .await;
    let waits = async || {
        let status = cluster.status("job").await;
        let full = status.progress.reasons.get("NodeFull") == Some(&1);
        if full && (status.desired, status.succeeded) == (2, 1) && status.completion_time.is_none() {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    };
    wait_for(SOON, "the other node to be done, and this one to be full", waits)
        .await
        .unwrap();
    wait_for(2 * SOON, "all 256 to be answered", async || {
        let object = cluster.node_image("node-0").await;
        let failed = object.status.as_ref().map_or(0, |status| status.failed);
        let size = serde_json::to_string(&object).unwrap().len();
        assert!(size < 256 * KIB, "{size} bytes");
        if failed == 256 {
            Ok(())
        } else {
            Err(format!("{failed} of 256"))
        }
    })
    .await
    .unwrap();

    patch(json!({ name(17): null })).await.unwrap();
    let status = cluster.finished("job").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (2, 2, 0),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_namespace_that_is_deleted_takes_its_running_jobs_along() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    for (seed, name) in [(27, "fault/stuck"), (28, "fault/listed"), (29, "fault/app")] {
        image(&registry, seed, name).await;
    }
    let cluster = Cluster::start(2).await;
    line.set(Link::Stalled);
    cluster.kubectl(&["create", "namespace", "team"]).await.unwrap();
    let reference = |name: &str| format!("{}/fault/{name}:v1", line.host());
    let job = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": kind,
            "metadata": { "name": name, "namespace": "team" }, "spec": spec,
        })
    };
    let spec = json!({ "image": reference("stuck"), "parallelism": 2 });
    cluster.apply(&job("ImagePullJob", "stuck", spec)).await;
    let spec = json!({ "image": reference("stuck"), "parallelism": 2, "completionPolicy": { "type": "Never" } });
    cluster.apply(&job("ImagePullJob", "stays", spec)).await;
    let spec = json!({ "images": [reference("listed")], "parallelism": 2 });
    cluster.apply(&job("ImageListPullJob", "list", spec)).await;
    let stuck = format!("{}/fault/stuck", line.host());
    for node in &cluster.nodes {
        wait_for(SOON, "both orders, and both jobs on the first", async || {
            let object = cluster.node_image(&node.name).await;
            let taken_up = object.entry(&stuck, "v1").is_some_and(|entry| {
                let version = object.result(&stuck, "v1").map(ImageTagStatus::version);
                entry.owner_references.len() == 2 && version == Some(entry.version)
            });
            if taken_up && object.spec.images.len() == 2 {
                Ok(())
            } else {
                Err(format!("{object:?}"))
            }
        })
        .await
        .unwrap();
        let pulls = node.containerd.pulls(&reference("stuck"));
        assert_eq!(pulls, 1, "the pull that runs is for both jobs");
    }

    cluster
        .kubectl(&["delete", "namespace", "team", "--wait=true", "--timeout=50s"])
        .await
        .unwrap();
    for node in &cluster.nodes {
        wait_for(SOON, "the orders to be withdrawn", async || {
            let object = cluster.node_image(&node.name).await;
            let status = object.status.clone().unwrap_or_default();
            if object.spec.images.is_empty() && status.image_statuses.is_empty() {
                Ok(())
            } else {
                Err(format!("{object:?}\n{}", cluster.logs()))
            }
        })
        .await
        .unwrap();
    }
    line.set(Link::Open);
    cluster.submit("other", &reference("app"), &json!({})).await;
    let status = cluster.finished("other").await;
    assert_eq!((status.desired, status.succeeded), (2, 2), "{status:?}");
}

#[tokio::test]
async fn a_registry_that_is_away_fails_a_job_in_its_bound_and_serves_the_next() {
    let mut registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 30, "fault/app").await;
    let cluster = Cluster::start(2).await;
    registry.kill().unwrap();
    let patient = json!({ "pullPolicy": { "backoffLimit": 10 } });
    cluster.submit("patient", &image.reference, &patient).await;
    wait_for(SOON, "the patient job to say what is wrong", async || {
        let object = cluster.node_image("node-0").await;
        let result = object.result(image.reference.trim_end_matches(":v1"), "v1").cloned();
        let said = result
            .as_ref()
            .and_then(|result| result.reason.clone())
            .unwrap_or_default();
        if said == "Unreachable" {
            Ok(())
        } else {
            Err(format!("{result:?}"))
        }
    })
    .await
    .unwrap();
    registry.restart().await.unwrap();
    let status = cluster.finished("patient").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (2, 2, 0),
        "{status:?}"
    );

    registry.kill().unwrap();
    let away = format!("{}/fault/other:v1", registry.host());
    let impatient = json!({ "pullPolicy": { "backoffLimit": 0 } });
    cluster.submit("away", &away, &impatient).await;
    let status = cluster.finished("away").await;
    assert_eq!(
        status.progress.reasons,
        [("Unreachable".to_owned(), 2)].into(),
        "{status:?}"
    );
    assert_eq!(status.failed_nodes, ["node-0", "node-1"]);
    registry.restart().await.unwrap();
    let other = registry
        .push(&Recipe::random(31, 1, KIB).build(), "fault/other", "v1")
        .await
        .unwrap();
    // What failed a moment ago is tried at once for a new job.
    cluster.submit("back", &away, &json!({})).await;
    let status = cluster.finished("back").await;
    assert_eq!((status.desired, status.succeeded), (2, 2), "{status:?}");
    for node in &cluster.nodes {
        assert!(node.has_image(&away, &other.digest).await);
    }
}
