//! Per-region rewrites, from the job to the node's entries and back.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use larder_api::ImagePrePullJob;
use larder_api::names::EDGE_NODE_LABEL;
use serde_json::{Value, json};

use super::scene::phases;
use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::Stage;

async fn submit(stage: &Stage, images: Value, overriders: Value) {
    let job = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob", "metadata": {"name": "job"},
        "spec": {
            "imagePrePullTemplate": {"images": images, "labelSelector": {}, "concurrency": 9, "failureTolerate": "0.5"},
            "imagePrePullOverriders": overriders,
        },
    });
    let job: ImagePrePullJob = serde_json::from_value(job).unwrap();
    stage.prepulls().create(&PostParams::default(), &job).await.unwrap();
}

async fn two_regions(stage: &Stage) -> Fleet {
    let fleet = Fleet::new(&stage.client);
    for (name, region) in [("a", "hangzhou"), ("b", "elsewhere")] {
        fleet
            .add(name, QUICK, json!({EDGE_NODE_LABEL: "", "region": region}))
            .await;
    }
    fleet
}

#[tokio::test]
async fn each_region_pulls_from_its_registry_and_keeps_the_name_in_the_job() {
    let stage = Stage::new().await;
    let fleet = two_regions(&stage).await;
    let change = json!({"component": "Registry", "operator": "replace", "value": "hangzhou.registry.example"});
    let overrider = json!({"nodeLabel": "region=hangzhou", "overriders": {"imageOverriders": [change]}});
    submit(
        &stage,
        json!(["registry.example/app:1"]),
        json!([{"imagePrePullOverrider": overrider}]),
    )
    .await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("a", "Successful"), ("b", "Successful")]);
    let said = |number: usize| {
        let image = &status.node_status[number].image_status[0];
        (image.image.as_deref(), image.resolved_image.as_deref())
    };
    assert_eq!(
        said(0),
        (Some("registry.example/app:1"), Some("hangzhou.registry.example/app:1"))
    );
    assert_eq!(said(1), (Some("registry.example/app:1"), None));
    assert_eq!(fleet.pulls_of("hangzhou.registry.example/app"), 1);
    let object = stage.node_images().get("a").await.unwrap();
    let entry = object.entry("hangzhou.registry.example/app", "1").unwrap();
    assert_eq!(entry.alias.as_deref(), Some("registry.example/app:1"));
    let object = stage.node_images().get("b").await.unwrap();
    assert_eq!(object.entry("registry.example/app", "1").unwrap().alias, None);
}

#[tokio::test]
async fn a_rewrite_that_makes_no_sense_is_one_regions_failure() {
    let stage = Stage::new().await;
    let fleet = two_regions(&stage).await;
    let change = json!({"component": "Tag", "operator": "replace", "value": "not a tag"});
    let selector = json!({"matchLabels": {"region": "hangzhou"}});
    let overrider = json!({"labelSelector": selector, "overriders": {"imageOverriders": [change]}});
    submit(&stage, json!(["registry.example/app:1"]), json!([overrider])).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("a", "Failure"), ("b", "Successful")]);
    let reason = status.node_status[0].reason.as_deref().unwrap();
    assert!(reason.contains("the overriders make no valid image"), "{reason}");
    assert_eq!(status.progress.reasons, [("InvalidReference".to_owned(), 1)].into());
    assert_eq!(fleet.all_pulls(), 1);
}

/// A node moves to another region.
async fn relabel(stage: &Stage, node: &str, region: &str) {
    let patch = json!({"metadata": {"labels": {"region": region}}});
    Api::<Node>::all(stage.client.clone())
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    stage
        .node_becomes(node, "known to have moved", |object| {
            object
                .metadata
                .labels
                .iter()
                .flatten()
                .any(|(_, value)| value == region)
        })
        .await;
}

#[tokio::test]
async fn a_node_that_moves_before_its_turn_gets_the_images_of_its_new_region() {
    let stage = Stage::new().await;
    let fleet = two_regions(&stage).await;
    fleet.set_ready("b", false).await;
    let change = json!({"component": "Registry", "operator": "replace", "value": "hangzhou.registry.example"});
    let overriders = json!([{"nodeLabel": "region=hangzhou", "overriders": {"imageOverriders": [change]}}]);
    let job = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob", "metadata": {"name": "job"},
        "spec": {
            "imagePrePullTemplate": {"images": ["registry.example/app:1"], "labelSelector": {}, "activeDeadlineSeconds": 900},
            "imagePrePullOverriders": overriders,
        },
    });
    let job: ImagePrePullJob = serde_json::from_value(job).unwrap();
    stage.prepulls().create(&PostParams::default(), &job).await.unwrap();
    stage
        .prepull_becomes("job", "waiting for b", |status| {
            phases(status) == [("a", "Successful"), ("b", "Pending")]
        })
        .await;
    relabel(&stage, "b", "hangzhou").await;
    fleet.set_ready("b", true).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("a", "Successful"), ("b", "Successful")]);
    assert_eq!(fleet.pulls_of("hangzhou.registry.example/app"), 2);
    assert_eq!(fleet.all_pulls(), 2);
}

#[tokio::test]
async fn a_node_that_moves_later_keeps_what_it_was_asked_for() {
    let mut stage = Stage::new().await;
    let fleet = two_regions(&stage).await;
    fleet.set("b", Agent::Hangs);
    let change = json!({"component": "Registry", "operator": "replace", "value": "hangzhou.registry.example"});
    let overrider = json!({"nodeLabel": "region=hangzhou", "overriders": {"imageOverriders": [change]}});
    submit(&stage, json!(["registry.example/app:1"]), json!([overrider])).await;
    stage
        .prepull_becomes("job", "at work on b", |status| {
            phases(status) == [("a", "Successful"), ("b", "InProgress")]
        })
        .await;
    relabel(&stage, "a", "elsewhere").await;
    relabel(&stage, "b", "hangzhou").await;
    stage.edit_prepull("job", json!({"retryTimes": 1})).await;
    stage
        .prepull_becomes("job", "known to be edited", |status| {
            let mut conditions = status.progress.conditions.iter();
            conditions.any(|condition| condition.observed_generation == Some(2))
        })
        .await;
    stage.stop_controller().await;
    stage.start_controller(|_| {});
    stage.report_success("b", "registry.example/app").await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("a", "Successful"), ("b", "Successful")]);
    assert_eq!(fleet.all_pulls(), 1, "b hangs, and nobody is asked for more");
    let other = stage.node_images().get("b").await.unwrap();
    assert!(other.entry("hangzhou.registry.example/app", "1").is_none());
}
