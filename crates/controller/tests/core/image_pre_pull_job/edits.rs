//! Edits of a job: while it runs, and after it was refused.

use larder_model::Reason;
use serde_json::json;

use super::scene::{condition, counts, edge_fleet, phases};
use crate::fleet::{Agent, QUICK};
use crate::stage::Stage;

#[tokio::test]
async fn another_image_is_handed_out_and_the_old_one_taken_back() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage
        .node_becomes("edge-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    fleet.set("edge-0", QUICK);
    stage.edit_prepull("job", json!({"images": ["redis:7"]})).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.node_status[0].image_status.len(), 1);
    assert_eq!(status.node_status[0].image_status[0].image.as_deref(), Some("redis:7"));
    stage
        .node_becomes("edge-0", "free of the old one", |object| {
            object.entry("nginx", "1").is_none()
        })
        .await;
}

#[tokio::test]
async fn one_more_image_is_owed_by_nodes_that_were_done() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[QUICK, Agent::Hangs]).await;
    stage
        .prepull("job", json!({"nodeNames": ["edge-0", "edge-1"], "concurrency": 2}))
        .await;
    stage
        .prepull_becomes("job", "half done", |status| status.succeeded == 1)
        .await;
    stage
        .edit_prepull("job", json!({"images": ["nginx:1", "redis:7"]}))
        .await;
    let status = stage
        .prepull_becomes("job", "done with both on one node", |status| {
            status.node_status[0].image_status.len() == 2
        })
        .await;
    assert_eq!(phases(&status), [("edge-0", "Successful"), ("edge-1", "InProgress")]);
    assert_eq!((fleet.pulls("edge-0"), fleet.pulls_of("nginx")), (2, 1));
}

#[tokio::test]
async fn more_nodes_at_once_reach_those_who_wait() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Hangs, Agent::Hangs]).await;
    stage.prepull("job", json!({"labelSelector": {}})).await;
    stage
        .prepull_becomes("job", "at work on one", |status| {
            phases(status) == [("edge-0", "InProgress"), ("edge-1", "Pending")]
        })
        .await;
    stage.edit_prepull("job", json!({"concurrency": 2})).await;
    stage
        .prepull_becomes("job", "at work on both", |status| {
            phases(status) == [("edge-0", "InProgress"), ("edge-1", "InProgress")]
        })
        .await;
}

#[tokio::test]
async fn other_nodes_replace_those_who_left_the_list() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs, QUICK]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage
        .node_becomes("edge-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    stage.edit_prepull("job", json!({"nodeNames": ["edge-1"]})).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("edge-1", "Successful")]);
    stage
        .node_becomes("edge-0", "free of the order", |object| object.spec.images.is_empty())
        .await;
    assert_eq!(fleet.all_pulls(), 1);
}

#[tokio::test]
async fn a_timeout_that_is_raised_reaches_the_order() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Hangs]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage
        .node_becomes("edge-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    stage
        .edit_prepull("job", json!({"timeoutSeconds": 900, "checkItems": ["cpu", "mem"]}))
        .await;
    stage
        .node_becomes("edge-0", "told", |object| {
            let entry = object.entry("nginx", "1").unwrap();
            entry.pull_policy.timeout_seconds == 900 && entry.checks == ["cpu", "mem"]
        })
        .await;
}

#[tokio::test]
async fn a_refused_job_runs_once_it_is_mended() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK]).await;
    let template = json!({"images": [{"name": "only a label"}], "nodeNames": ["edge-0"]});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(condition(&status, "Failed").as_deref(), Some("InvalidSpec"));
    assert_eq!(
        status.reason.as_deref(),
        Some("images[0]: there is no repo, and the tag holds no name either; give repo")
    );
    stage.edit_prepull("job", json!({"images": ["nginx:1"]})).await;
    let status = stage
        .prepull_becomes("job", "done", |status| status.phase.as_deref() == Some("Completed"))
        .await;
    assert_eq!(counts(&status), (1, 1, 0));
    assert_eq!(
        (status.reason, condition_of(&status.progress.conditions, "Failed")),
        (None, None)
    );
}

#[tokio::test]
async fn a_job_that_ran_is_not_run_again() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Fails(Reason::NotFound)]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    stage.prepull_ends("job").await;
    fleet.set("edge-0", QUICK);
    stage.edit_prepull("job", json!({"images": ["redis:7"]})).await;
    // Another job that is made after the edit has run: the controller has seen the edit.
    stage.prepull("next", json!({"nodeNames": ["edge-0"]})).await;
    stage.prepull_ends("next").await;
    assert_eq!(fleet.pulls_of("redis"), 0);
    let status = stage.prepulls().get("job").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failure"));
}

fn condition_of(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    kind: &str,
) -> Option<String> {
    let mut conditions = conditions.iter();
    let found = conditions.find(|condition| condition.type_ == kind && condition.status == "True");
    found.map(|condition| condition.reason.clone())
}
