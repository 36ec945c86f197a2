//! Which nodes take part, and what becomes of those that cannot.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use larder_api::names::{EDGE_NODE_LABEL, NODE_GROUP_LABEL};
use larder_testkit::wait_until;
use serde_json::json;

use super::scene::{condition, counts, edge_fleet, message, phases};
use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage};

#[tokio::test]
async fn named_nodes_that_do_not_qualify_are_recorded_with_the_known_texts() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[QUICK, QUICK]).await;
    fleet.add("cloud", QUICK, json!({EDGE_NODE_LABEL: "yes"})).await;
    fleet.set_ready("edge-1", false).await;
    let names = ["edge-0", "gone", "cloud", "edge-1", "edge-0"];
    stage
        .prepull("job", json!({"nodeNames": names, "failureTolerate": "0.75"}))
        .await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"));
    assert_eq!(counts(&status), (4, 1, 3), "a name that stands twice counts once");
    let reasons: Vec<_> = status.node_status.iter().map(|node| node.reason.as_deref()).collect();
    assert_eq!(reasons[0], None);
    assert!(reasons[1].unwrap().starts_with("failed to get node, err: "));
    assert_eq!(
        reasons[2..],
        [Some("the node is not an edge node"), Some("the node is not ready")]
    );
    assert_eq!(fleet.all_pulls(), 1);
}

#[tokio::test]
async fn labelled_nodes_that_do_not_qualify_are_left_out_and_counted() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs, QUICK]).await;
    fleet.add("cloud", QUICK, json!({})).await;
    fleet.set_ready("edge-1", false).await;
    stage.prepull("job", json!({"labelSelector": {}})).await;
    let status = stage
        .prepull_becomes("job", "running", |status| phases(status) == [("edge-0", "InProgress")])
        .await;
    assert!(
        message(&status).contains("2 nodes with the right labels left out: 1 not edge nodes, 1 not ready"),
        "{}",
        message(&status)
    );
}

#[tokio::test]
async fn a_node_group_is_chosen_by_its_label() {
    let stage = Stage::new().await;
    let fleet = Fleet::new(&stage.client);
    for (name, group) in [("a", "hangzhou"), ("b", "shanghai"), ("c", "hangzhou")] {
        let labels = json!({EDGE_NODE_LABEL: "", NODE_GROUP_LABEL: group});
        fleet.add(name, QUICK, labels).await;
    }
    let selector = json!({"matchLabels": {NODE_GROUP_LABEL: "hangzhou"}});
    stage.prepull("job", json!({"labelSelector": selector})).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("a", "Successful"), ("c", "Successful")]);
    assert_eq!(fleet.pulls("b"), 0);
}

#[tokio::test]
async fn a_selector_that_matches_nobody_ends_the_job() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK]).await;
    let selector = json!({"matchLabels": {"region": "nowhere"}});
    stage.prepull("job", json!({"labelSelector": selector})).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Failure"));
    assert_eq!(status.reason.as_deref(), Some("no nodes were matched with selector"));
    assert_eq!(condition(&status, "Failed").as_deref(), Some("NoNodesMatched"));
}

#[tokio::test]
async fn with_a_deadline_a_node_that_is_not_ready_is_waited_for() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[QUICK, QUICK]).await;
    fleet.set_ready("edge-0", false).await;
    let template = json!({"nodeNames": ["edge-0", "edge-1"], "activeDeadlineSeconds": 600});
    stage.prepull("job", template).await;
    let status = stage
        .prepull_becomes("job", "done with the other", |status| counts(status) == (2, 1, 0))
        .await;
    assert_eq!(phases(&status), [("edge-0", "Pending"), ("edge-1", "Successful")]);
    assert_eq!(status.node_status[0].reason.as_deref(), Some("the node is not ready"));
    fleet.set_ready("edge-0", true).await;
    assert_eq!(counts(&stage.prepull_ends("job").await), (2, 2, 0));
}

#[tokio::test]
async fn whoever_joins_later_is_not_taken_in() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Hangs, QUICK]).await;
    stage.prepull("job", json!({"labelSelector": {}})).await;
    stage
        .prepull_becomes("job", "running", |status| status.desired == 2)
        .await;
    fleet.add("late", QUICK, json!({EDGE_NODE_LABEL: ""})).await;
    stage
        .node_becomes("late", "known", |object| object.status.is_some())
        .await;
    stage.edit_prepull("job", json!({"concurrency": 3})).await;
    let status = stage
        .prepull_becomes("job", "done with the other", |status| status.succeeded == 1)
        .await;
    assert_eq!(phases(&status), [("edge-0", "InProgress"), ("edge-1", "Successful")]);
    assert_eq!(fleet.pulls("late"), 0);
}

#[tokio::test]
async fn a_success_stays_when_its_node_leaves_and_the_controller_restarts() {
    let mut stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[QUICK, Agent::Hangs]).await;
    stage
        .prepull("job", json!({"labelSelector": {}, "concurrency": 2}))
        .await;
    stage
        .prepull_becomes("job", "half done", |status| {
            phases(status) == [("edge-0", "Successful"), ("edge-1", "InProgress")]
        })
        .await;
    let nodes = Api::<Node>::all(stage.client.clone());
    nodes.delete("edge-0", &DeleteParams::default()).await.unwrap();
    wait_until(SOON, "its NodeImage to go", async || {
        stage.node_images().get_opt("edge-0").await.unwrap().is_none()
    })
    .await
    .unwrap();
    stage.stop_controller().await;
    stage.start_controller(|_| {});
    stage.report_success("edge-1", "nginx").await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("edge-0", "Successful"), ("edge-1", "Successful")]);
}
