//! NodeImages: born with their node, gone with it, and what somebody writes into them by hand.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use larder_api::NodeImage;
use larder_testkit::wait_until;
use serde_json::json;

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage};

#[tokio::test]
async fn a_node_has_one_with_its_labels_and_takes_it_along() {
    let stage = Stage::new().await;
    let fleet = Fleet::new(&stage.client);
    fleet.add("a", QUICK, json!({"zone": "x"})).await;
    let label = |value: &'static str| {
        move |object: &NodeImage| {
            object
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get("zone").is_some_and(|zone| zone == value))
        }
    };
    stage.node_becomes("a", "there with its label", label("x")).await;
    let nodes = Api::<Node>::all(stage.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"zone": "y"}}}));
    nodes.patch("a", &PatchParams::default(), &patch).await.unwrap();
    stage.node_becomes("a", "relabelled", label("y")).await;
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    wait_until(SOON, "the NodeImage to go", async || {
        stage.node_images().get_opt("a").await.unwrap().is_none()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_virtual_node_has_none_and_a_fake_one_needs_no_node() {
    let stage = Stage::new().await;
    let fake = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": "fake", "labels": {"apps.kruise.io/fake-nodeimage": "true"}}, "spec": {},
    });
    let fake: NodeImage = serde_json::from_value(fake).unwrap();
    stage.node_images().create(&PostParams::default(), &fake).await.unwrap();
    let fleet = Fleet::new(&stage.client);
    fleet.add("virtual", QUICK, json!({"type": "virtual-kubelet"})).await;
    fleet.add("real", QUICK, json!({})).await;
    stage.node_becomes("real", "there", |_| true).await;
    assert!(stage.node_images().get_opt("virtual").await.unwrap().is_none());
    assert!(stage.node_images().get_opt("fake").await.unwrap().is_some());
}

#[tokio::test]
async fn what_somebody_writes_by_hand_is_pulled_and_leaves_after_its_own_time() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    stage
        .node_becomes("node-0", "there", |object| object.status.is_some())
        .await;
    let entry = json!({"tag": "1", "pullPolicy": {"ttlSecondsAfterFinished": 0}});
    let patch = json!({"spec": {"images": {"nginx": {"tags": [entry]}}}});
    stage
        .node_images()
        .patch("node-0", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    wait_until(SOON, "the pull", async || fleet.all_pulls() == 1)
        .await
        .unwrap();
    stage
        .node_becomes("node-0", "clean again", |object| object.spec.images.is_empty())
        .await;
}

#[tokio::test]
async fn a_full_node_image_stops_nobody_else() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Mute, QUICK]).await;
    stage
        .node_becomes("node-0", "there", |object| object.status.is_some())
        .await;
    let entry = json!({"tags": [{"tag": "1", "pullPolicy": {"ttlSecondsAfterFinished": 9_000}}]});
    let images: serde_json::Map<String, serde_json::Value> = (0..256)
        .map(|number| (format!("image-{number}"), entry.clone()))
        .collect();
    let patch = Patch::Merge(json!({"spec": {"images": images}}));
    stage
        .node_images()
        .patch("node-0", &PatchParams::default(), &patch)
        .await
        .unwrap();
    stage.submit("job", json!({"image": "nginx:1"})).await;
    let job = stage
        .job_becomes("job", "done with the other one", |job| {
            job.status
                .as_ref()
                .is_some_and(|status| (status.desired, status.succeeded) == (2, 1))
        })
        .await;
    assert_eq!(job.status.unwrap().progress.reasons["NodeFull"], 1);
}
