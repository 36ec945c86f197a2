//! Events tell people what happened, and stay few however large the fleet is.

use larder_model::Reason;
use larder_testkit::wait_until;
use serde_json::json;

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage};

const FAILED: &str = "PullImageFailed";
const SUCCEEDED: &str = "PullImageSucceed";

async fn count(stage: &Stage, name: &str, reason: &str) -> usize {
    let reasons = stage.event_reasons(name).await;
    reasons.iter().filter(|known| *known == reason).count()
}

/// Five of a kind, and one that sums up the end.
#[tokio::test]
async fn thirty_failures_are_told_in_six_events() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Fails(Reason::NotFound); 30]).await;
    stage
        .submit("job", json!({"image": "nginx:1", "parallelism": 30}))
        .await;
    assert_eq!(stage.job_ends("job").await.status.unwrap().failed, 30);
    wait_until(SOON, "the Event of the end", async || {
        count(&stage, "job", FAILED).await == 6
    })
    .await
    .unwrap();
    // The next job's first Event is written after all of this one's.
    stage
        .submit("next", json!({"image": "redis:7", "parallelism": 30}))
        .await;
    wait_until(SOON, "the next job's Events", async || {
        0 < count(&stage, "next", FAILED).await
    })
    .await
    .unwrap();
    assert_eq!(count(&stage, "job", FAILED).await, 6);
}

#[tokio::test]
async fn a_job_that_went_well_is_told_once_and_on_no_node() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK; 10]).await;
    stage
        .submit("job", json!({"image": "nginx:1", "parallelism": 10}))
        .await;
    stage.job_ends("job").await;
    wait_until(SOON, "the Event", async || count(&stage, "job", SUCCEEDED).await == 1)
        .await
        .unwrap();
    for number in 0..10 {
        assert!(stage.event_reasons(&format!("node-{number}")).await.is_empty());
    }
}
