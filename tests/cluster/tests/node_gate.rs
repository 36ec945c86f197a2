//! A node that joins with the start-up taint: pods are scheduled there when their image is there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "it measures")]

use jiff::Timestamp;
use larder_cluster::{Cluster, SOON};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, Link, NodeOptions, Registry, Throttle, runnable_image, wait_until};
use serde_json::{Value, json};

const TAINT: &str = "larder.dev/warming";

/// A moment that an object tells.
async fn moment(cluster: &Cluster, object: &str, path: &str) -> Timestamp {
    let text = cluster.field(object, path).await;
    text.parse()
        .unwrap_or_else(|error| panic!("{object} {path} {text:?}: {error}"))
}

/// A pod waits for a node of this pool, which joins with these taints. Prints how long it took until the pod ran.
async fn joins(cluster: &mut Cluster, pool: &str, image: &str, taints: Value, line: &Throttle) {
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pool, "namespace": "default"},
            "spec": {
                "nodeSelector": {"pool": pool}, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": image, "imagePullPolicy": "IfNotPresent"}],
            },
        }))
        .await;
    let options = NodeOptions {
        kubelet: json!({ "registerWithTaints": taints }),
        labels: vec![("pool".to_owned(), pool.to_owned())],
        reaches: vec![line.address()],
        ..NodeOptions::default()
    };
    cluster.join(pool, options).await;
    let pod = format!("pod/{pool}");
    let waited = wait_until(SOON, format!("{pod} to run"), async || {
        cluster.field(&pod, ".status.phase").await == "Running"
    });
    if let Err(error) = waited.await {
        let node = cluster.kubectl(&["get", "node", pool, "-o", "yaml"]).await;
        panic!("{error}\n{node:?}\n{}", cluster.logs().await);
    }
    let joined = moment(cluster, &format!("node/{pool}"), ".metadata.creationTimestamp").await;
    let scheduled = ".status.conditions[?(@.type==\"PodScheduled\")].lastTransitionTime";
    let scheduled = moment(cluster, &pod, scheduled).await;
    let started = moment(cluster, &pod, ".status.containerStatuses[0].state.running.startedAt").await;
    println!(
        "{pool}: the pod was scheduled {} s after the node registered, and ran {} s after that, {} s in all",
        scheduled.duration_since(joined).as_secs(),
        started.duration_since(scheduled).as_secs(),
        started.duration_since(joined).as_secs(),
    );
}

#[tokio::test]
async fn a_pod_starts_on_a_new_node_without_waiting_for_its_image() {
    let mut cluster = Cluster::start_for([NodeOptions::default()], &["gated", "plain"]).await;
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(4 << 20));
    let image = runnable_image([Layer::random(1, 24 << 20)]).unwrap();
    registry.push(&image, "app", "v1").await.unwrap();
    let image = format!("{}/app:v1", line.host());
    cluster.install(&["controller.nodeGate.enabled=true"]).await;
    cluster
        .pull(
            "app",
            &image,
            json!({
                "completionPolicy": {"type": "Never"}, "nodeGate": true, "selector": {"matchLabels": {"pool": "gated"}},
            }),
        )
        .await;

    let taint = json!([{"key": TAINT, "effect": "NoSchedule"}]);
    joins(&mut cluster, "gated", &image, taint, &line).await;
    let condition = ".status.conditions[?(@.type==\"larder.dev/ImagesReady\")]";
    let reason = cluster.field("node/gated", &format!("{condition}.reason")).await;
    assert_eq!(reason, "ImagesReady");
    assert!(!cluster.field("node/gated", ".spec.taints").await.contains(TAINT));
    let released = moment(&cluster, "node/gated", &format!("{condition}.lastTransitionTime")).await;
    let scheduled = ".status.conditions[?(@.type==\"PodScheduled\")].lastTransitionTime";
    assert!(released <= moment(&cluster, "pod/gated", scheduled).await);
    let events = cluster
        .kubectl(&[
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=gated,reason=Pulled",
        ])
        .await
        .unwrap();
    assert!(events.contains("already present on machine"), "{events}");

    joins(&mut cluster, "plain", &image, json!([]), &line).await;
    let reason = cluster.field("node/plain", &format!("{condition}.reason")).await;
    assert_eq!(reason, "NoGatingJobs");
}
