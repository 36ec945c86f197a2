//! From creation to the end and beyond.

use std::collections::BTreeSet;
use std::pin::pin;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use larder_api::names::KUBEEDGE_FINALIZER;
use larder_testkit::wait_until;
use serde_json::json;

use super::scene::{condition, counts, edge_fleet, phases};
use crate::fleet::{Agent, QUICK};
use crate::stage::{SOON, Stage};

#[tokio::test]
async fn two_images_on_three_nodes() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[QUICK; 3]).await;
    let template = json!({"images": ["nginx:1", "redis:7"], "labelSelector": {}});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"));
    assert_eq!(counts(&status), (3, 3, 0));
    assert_eq!(condition(&status, "Complete").as_deref(), Some("AllNodesSucceeded"));
    assert_eq!(
        phases(&status),
        [
            ("edge-0", "Successful"),
            ("edge-1", "Successful"),
            ("edge-2", "Successful")
        ]
    );
    let images = status.node_status[0].image_status.iter();
    let said: Vec<_> = images
        .map(|image| (image.image.as_deref(), image.status.as_deref()))
        .collect();
    assert_eq!(said, [(Some("nginx:1"), Some("True")), (Some("redis:7"), Some("True"))]);
    assert_eq!(
        (
            status.state.as_deref(),
            status.event.as_deref(),
            status.action.as_deref()
        ),
        (Some("Successful"), Some("Pull"), Some("Success"))
    );
    assert_eq!(status.status.len(), 3);
    assert_eq!(fleet.all_pulls(), 6);
    wait_until(SOON, "the Event", async || {
        stage
            .event_reasons("job")
            .await
            .contains(&"PullImageSucceed".to_owned())
    })
    .await
    .unwrap();
}

/// KubeEdge's own task manager acts on jobs whose phase is `Init`.
#[tokio::test]
async fn no_phase_is_ever_init() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK; 2]).await;
    let jobs = stage.prepulls();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        let mut shown = pin!(watcher(jobs, Config::default()).default_backoff().applied_objects());
        while let Some(Ok(job)) = shown.next().await {
            let phase = job.status.and_then(|status| status.phase);
            let over = matches!(phase.as_deref(), Some("Completed" | "Failure"));
            seen.extend(phase);
            if over {
                break;
            }
        }
        seen
    });
    stage.prepull("job", json!({"nodeNames": ["edge-0", "edge-1"]})).await;
    let seen = tokio::time::timeout(SOON, seen).await.unwrap().unwrap();
    assert_eq!(seen.first().map(String::as_str), Some("InProgress"));
    let words: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(words, BTreeSet::from(["Completed", "InProgress"]));
}

#[tokio::test]
async fn what_the_documents_promise_stands_in_the_order() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Hangs]).await;
    let plain = json!({"images": ["zebra:1", "apple:1"], "nodeNames": ["edge-0"], "retryTimes": 2});
    stage.prepull("job", plain).await;
    let node = stage
        .node_becomes("edge-0", "ordered", |object| object.entry("zebra", "1").is_some())
        .await;
    let (first, second) = (node.entry("zebra", "1").unwrap(), node.entry("apple", "1").unwrap());
    for entry in [first, second] {
        assert_eq!(entry.checks, ["disk"]);
        assert_eq!(entry.image_pull_policy.as_deref(), Some("IfNotPresent"));
        let policy = &entry.pull_policy;
        assert_eq!((policy.timeout_seconds, policy.backoff_limit), (300, 2));
        assert_eq!(policy.active_deadline_seconds, Some(300), "all images together");
        let owner = &entry.owner_references[0];
        assert_eq!(
            (owner.kind.as_deref(), owner.name.as_deref(), owner.namespace.as_deref()),
            (Some("ImagePrePullJob"), Some("job"), None)
        );
    }
    assert_eq!((first.position, second.position), (Some(0), Some(1)), "as in the job");
}

#[tokio::test]
async fn no_more_nodes_at_once_than_asked_for() {
    let stage = Stage::new().await;
    let slow = Agent::Pulls(std::time::Duration::from_millis(100));
    let fleet = edge_fleet(&stage, &[slow; 6]).await;
    stage
        .prepull("job", json!({"labelSelector": {}, "concurrency": 2}))
        .await;
    assert_eq!(counts(&stage.prepull_ends("job").await), (6, 6, 0));
    assert_eq!((fleet.all_pulls(), fleet.most_at_once()), (6, 2));
}

#[tokio::test]
async fn a_job_leaves_when_its_ttl_is_over() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK]).await;
    stage
        .prepull("job", json!({"nodeNames": ["edge-0"], "ttlSecondsAfterFinished": 1}))
        .await;
    let jobs = stage.prepulls();
    wait_until(SOON, "the job to be gone", async || {
        jobs.get_opt("job").await.unwrap().is_none()
    })
    .await
    .unwrap();
    let entry = stage.node_images().get("edge-0").await.unwrap();
    assert!(
        entry
            .entry("nginx", "1")
            .is_none_or(|entry| entry.owner_references.len() <= 1)
    );
}

#[tokio::test]
async fn deleting_a_job_takes_its_orders_back_and_its_name_can_be_used_again() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs]).await;
    let template = json!({"images": ["nginx:1", "redis:7"], "nodeNames": ["edge-0"]});
    stage.prepull("job", template.clone()).await;
    stage
        .node_becomes("edge-0", "ordered", |object| object.entry("redis", "7").is_some())
        .await;
    stage.prepulls().delete("job", &DeleteParams::default()).await.unwrap();
    stage
        .node_becomes("edge-0", "free of the orders", |object| object.spec.images.is_empty())
        .await;
    fleet.set("edge-0", QUICK);
    stage.prepull("job", template).await;
    assert_eq!(counts(&stage.prepull_ends("job").await), (1, 1, 0));
}

#[tokio::test]
async fn a_job_that_is_replaced_at_once_starts_over() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs]).await;
    let old = stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage
        .node_becomes("edge-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    fleet.set("edge-0", QUICK);
    stage.prepulls().delete("job", &DeleteParams::default()).await.unwrap();
    let new = stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    assert_ne!(old.metadata.uid, new.metadata.uid);
    assert_eq!(counts(&stage.prepull_ends("job").await), (1, 1, 0));
    let uid = new.metadata.uid.unwrap();
    stage
        .node_becomes("edge-0", "the new job's alone", |object| {
            let entry = object.entry("nginx", "1");
            let owners = entry.map(|entry| entry.owner_references.iter().map(|owner| owner.uid.clone()).collect());
            owners == Some(vec![Some(uid.clone())])
        })
        .await;
}

#[tokio::test]
async fn kubeedges_finalizer_is_not_in_the_way() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK]).await;
    let metadata = json!({"finalizers": ["example.org/other", KUBEEDGE_FINALIZER]});
    stage
        .prepull_with("job", json!({"nodeNames": ["edge-0"]}), metadata)
        .await;
    stage.prepull_ends("job").await;
    let job = stage.prepulls().get("job").await.unwrap();
    assert_eq!(job.metadata.finalizers, Some(vec!["example.org/other".to_owned()]));
    // Whoever puts it back still works with it; the two do not fight over it until the job is to go.
    let put_back = kube::api::Patch::Merge(json!({"metadata": {"finalizers": [KUBEEDGE_FINALIZER]}}));
    let params = kube::api::PatchParams::default();
    stage.prepulls().patch("job", &params, &put_back).await.unwrap();
    stage.prepulls().delete("job", &DeleteParams::default()).await.unwrap();
    wait_until(SOON, "the job to be gone", async || {
        stage.prepulls().get_opt("job").await.unwrap().is_none()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_reader_and_writer_of_v1alpha1_misses_nothing() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK]).await;
    let kind = GroupVersionKind::gvk("operations.kubeedge.io", "v1alpha1", "ImagePrePullJob");
    let resource = ApiResource::from_gvk_with_plural(&kind, "imageprepulljobs");
    let old = Api::<DynamicObject>::all_with(stage.client.clone(), &resource);
    let template = json!({"images": ["nginx:1"], "nodes": ["edge-0"], "imageSecrets": ""});
    let job = json!({"metadata": {"name": "job"}, "spec": {"imagePrePullTemplate": template}});
    let job = DynamicObject::new("job", &resource).data(job);
    old.create(&PostParams::default(), &job).await.unwrap();
    stage.prepull_ends("job").await;
    let status = old.get("job").await.unwrap().data["status"].clone();
    assert_eq!(
        (&status["state"], &status["event"]),
        (&json!("Successful"), &json!("Pull"))
    );
    let node = &status["status"][0];
    assert_eq!(node["nodeStatus"]["nodeName"], "edge-0");
    assert_eq!(node["nodeStatus"]["state"], "Successful");
    assert_eq!(
        node["imageStatus"],
        json!([{"image": "nginx:1", "state": "Successful"}])
    );
}

#[tokio::test]
async fn with_the_gate_off_a_job_is_told_so() {
    let stage = Stage::with(|settings| settings.gates.image_pull_jobs = false).await;
    let fleet = edge_fleet(&stage, &[QUICK]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage
        .prepull_becomes("job", "told", |status| {
            status.reason.as_deref() == Some("feature gate ImagePullJobGate is off")
        })
        .await;
    assert_eq!(fleet.all_pulls(), 0);
}
