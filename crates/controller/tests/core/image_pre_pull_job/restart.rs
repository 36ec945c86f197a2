//! The controller goes and comes back: everything it needs stands in the API.

use larder_model::Reason;
use serde_json::json;

use super::scene::{counts, edge_fleet, phases};
use crate::fleet::{Agent, QUICK};
use crate::stage::Stage;

#[tokio::test]
async fn a_job_that_was_made_while_the_controller_was_down_runs() {
    let mut stage = Stage::without_controller().await;
    let _fleet = edge_fleet(&stage, &[QUICK; 2]).await;
    stage.prepull("job", json!({"labelSelector": {}})).await;
    stage.start_controller(|_| {});
    assert_eq!(counts(&stage.prepull_ends("job").await), (2, 2, 0));
}

#[tokio::test]
async fn a_job_goes_on_where_it_was() {
    let mut stage = Stage::new().await;
    let agents = [QUICK, Agent::Fails(Reason::NotFound), Agent::Hangs, QUICK];
    let fleet = edge_fleet(&stage, &agents).await;
    fleet.set_ready("edge-3", false).await;
    let template =
        json!({"labelSelector": {}, "concurrency": 3, "failureTolerate": "0.5", "activeDeadlineSeconds": 900});
    stage.prepull("job", template).await;
    let before = stage
        .prepull_becomes("job", "on its way", |status| {
            let phases: Vec<&str> = phases(status).into_iter().map(|(_, phase)| phase).collect();
            phases == ["Successful", "Failure", "InProgress", "Pending"]
        })
        .await;
    stage.stop_controller().await;
    fleet
        .add("late", QUICK, json!({larder_api::names::EDGE_NODE_LABEL: ""}))
        .await;
    fleet.set_ready("edge-3", true).await;
    stage.start_controller(|_| {});
    stage
        .prepull_becomes("job", "done with the one that came back", |status| {
            status.succeeded == 2
        })
        .await;
    stage.report_success("edge-2", "nginx").await;
    let after = stage.prepull_ends("job").await;
    assert_eq!(counts(&after), (4, 3, 1), "and nobody joined");
    assert_eq!(
        (&after.node_status[0], &after.node_status[1]),
        (&before.node_status[0], &before.node_status[1]),
        "what was said stays said"
    );
    assert_eq!(
        (fleet.all_pulls(), fleet.pulls("late")),
        (3, 0),
        "nothing is pulled twice"
    );
}

#[tokio::test]
async fn a_job_that_is_over_is_not_run_again() {
    let mut stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Fails(Reason::NotFound)]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    let before = stage.prepull_ends("job").await;
    stage.stop_controller().await;
    stage.start_controller(|_| {});
    stage.prepull("next", json!({"nodeNames": ["edge-0"]})).await;
    stage.prepull_ends("next").await;
    assert_eq!(fleet.all_pulls(), 2);
    assert_eq!(stage.prepulls().get("job").await.unwrap().status, Some(before));
}

#[tokio::test]
async fn jobs_that_kubeedge_ran_before_are_not_run_again() {
    let mut stage = Stage::without_controller().await;
    let fleet = edge_fleet(&stage, &[QUICK]).await;
    let said = [
        (
            "old",
            json!({"state": "Successful", "event": "Pull", "time": "2024-04-26T18:51:41Z"}),
        ),
        ("new", json!({"phase": "Completed"})),
    ];
    for (name, status) in said {
        stage.prepull(name, json!({"nodeNames": ["edge-0"]})).await;
        let patch = kube::api::Patch::Merge(json!({ "status": status }));
        let params = kube::api::PatchParams::default();
        stage.prepulls().patch_status(name, &params, &patch).await.unwrap();
    }
    stage.start_controller(|_| {});
    stage.prepull("next", json!({"nodeNames": ["edge-0"]})).await;
    stage.prepull_ends("next").await;
    assert_eq!(fleet.all_pulls(), 1);
}
