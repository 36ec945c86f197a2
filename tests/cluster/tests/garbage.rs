//! The kubelet removes images when the disk fills up: what a job pinned stays, what it only pulled goes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use std::time::Duration;

use larder_cluster::{Cluster, SOON};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, NodeOptions, Registry, runnable_image, wait_until};
use serde_json::{Value, json};

/// The kubelet collects when it starts, before it knows the disk, and then every five minutes.
const COLLECTION: Duration = Duration::from_mins(8);

const DISK: u64 = 2 << 30;

/// One image in the registry; a node stores it twice, packed and unpacked, which is a seventh of its disk.
const IMAGE: usize = 150 << 20;

#[tokio::test]
async fn a_pinned_image_survives_the_kubelets_garbage_collection_and_an_unpinned_one_does_not() {
    let thresholds = json!({
        "imageGCHighThresholdPercent": 20,
        // Far more than can be had: every image is looked at.
        "imageGCLowThresholdPercent": 1,
        "imageMinimumGCAge": "1s",
    });
    survives(thresholds, COLLECTION).await;
}

#[tokio::test]
async fn a_pinned_image_survives_disk_pressure_and_an_unpinned_one_does_not() {
    let thresholds = json!({
        // With both images less is free, with one of them more.
        "evictionHard": { "imagefs.available": "72%" },
        "evictionPressureTransitionPeriod": "1s",
        "imageMinimumGCAge": "1s",
    });
    survives(thresholds, SOON).await;
}

/// A job with a pin and one without bring an image each; then the kubelet gets these thresholds.
async fn survives(thresholds: Value, within: Duration) {
    let mut cluster = Cluster::start([NodeOptions {
        image_disk: Some(DISK),
        ..NodeOptions::default()
    }])
    .await;
    let registry = Registry::start(Auth::Open).await.unwrap();
    cluster.nodes[0].reach(registry.address()).unwrap();
    cluster.install(&["controller.replicas=1"]).await;
    for (number, name) in [(1, "pinned"), (2, "loose")] {
        let image = runnable_image([Layer::random(number, IMAGE)]).unwrap();
        let image = registry.push(&image, name, "v1").await.unwrap().reference;
        cluster.pull(name, &image, json!({ "pin": name == "pinned" })).await;
        cluster.complete(&format!("imagepulljob/{name}")).await;
    }
    let reference = |name: &str| format!("{}/{name}:v1", registry.host());
    let (pinned, loose) = (reference("pinned"), reference("loose"));
    wait_until(SOON, "both images and the pin", async || {
        let images = cluster.nodes[0].images().await.unwrap();
        let pins = cluster.pinned_images(&cluster.nodes[0]).await;
        images.contains(&pinned)
            && images.contains(&loose)
            && pins.iter().any(|name| name.starts_with("larder.local/pin/"))
    })
    .await
    .unwrap();

    cluster.nodes[0].reconfigure_kubelet(thresholds).await.unwrap();
    let node = &cluster.nodes[0];
    wait_until(
        within,
        "the kubelet to remove the image that nothing pins",
        async || !node.images().await.unwrap().contains(&loose),
    )
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail()));
    let images = node.images().await.unwrap();
    assert!(images.contains(&pinned), "{images:?}");
    cluster
        .wait_for_condition("node/node-0", "DiskPressure=False", SOON)
        .await;
    cluster.run_pod("pinned", "node-0", &pinned, "Never", json!({})).await;
    assert_eq!(cluster.pod_verdict("pinned").await, "Running");
}
