//! Failures: which are tolerated, what they say, and when a job stops.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use larder_model::Reason;
use larder_testkit::wait_until;
use serde_json::json;

use super::scene::{condition, counts, edge_fleet, phases};
use crate::fleet::{Agent, QUICK};
use crate::stage::{SOON, Stage};

#[tokio::test]
async fn one_image_of_two_is_there_and_says_so() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Lacks("nginx", Reason::NotFound)]).await;
    let template = json!({"images": ["nginx:1", "redis:7"], "nodeNames": ["edge-0"]});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Failure"));
    assert_eq!(
        status.reason.as_deref(),
        Some("the number of failed nodes is 1/1, which exceeds the failure tolerance threshold")
    );
    let node = &status.node_status[0];
    let reason = node.reason.as_deref().unwrap();
    assert_eq!(
        reason,
        "there were some failures when pulling images: nginx:1 (NotFound)"
    );
    let said = |number: usize| {
        let image = &node.image_status[number];
        (image.status.as_deref().unwrap(), image.reason.as_deref())
    };
    assert_eq!(said(0), ("False", Some("it did not work")), "the node's own words");
    assert_eq!(said(1), ("True", None));
    assert_eq!(status.progress.reasons, [("NotFound".to_owned(), 1)].into());
    wait_until(SOON, "Events on the job and the node", async || {
        let (job, node) = (stage.event_reasons("job").await, stage.event_reasons("edge-0").await);
        [job, node]
            .iter()
            .all(|reasons| reasons.contains(&"PullImageFailed".to_owned()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn as_many_failures_as_allowed_are_a_success() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Fails(Reason::NotFound), QUICK]).await;
    let template = json!({"labelSelector": {}, "failureTolerate": "0.5", "concurrency": 2});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"));
    assert_eq!(condition(&status, "Complete").as_deref(), Some("WithinTolerance"));
    assert_eq!(phases(&status), [("edge-0", "Failure"), ("edge-1", "Successful")]);
}

#[tokio::test]
async fn once_it_cannot_be_saved_nothing_more_is_pulled() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[Agent::Fails(Reason::NotFound), QUICK, QUICK]).await;
    stage
        .prepull("job", json!({"labelSelector": {}, "failureTolerate": "0"}))
        .await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Failure"));
    assert_eq!(condition(&status, "Failed").as_deref(), Some("TooManyFailures"));
    assert_eq!(fleet.all_pulls(), 1);
    assert_eq!(
        phases(&status),
        [("edge-0", "Failure"), ("edge-1", "Pending"), ("edge-2", "Pending")]
    );
}

#[tokio::test]
async fn a_node_whose_checks_say_no_fails_with_their_words() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Fails(Reason::CheckFailed)]).await;
    stage.prepull("job", json!({"nodeNames": ["edge-0"]})).await;
    let status = stage.prepull_ends("job").await;
    let node = &status.node_status[0];
    assert_eq!(node.reason.as_deref(), Some("it did not work"));
    let flow = &node.action_flow;
    assert_eq!(flow.len(), 1);
    assert_eq!(
        (flow[0].action.as_deref(), flow[0].status.as_deref()),
        (Some("Check"), Some("False"))
    );
    assert_eq!(status.event.as_deref(), Some("Check"));
}

/// Takes the second that the node has, and the ten that its last word may take.
#[tokio::test]
async fn a_node_that_is_silent_past_its_time_is_unknown_and_passes_its_slot_on() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Hangs, QUICK]).await;
    let template = json!({"labelSelector": {}, "timeoutSeconds": 1, "failureTolerate": "0.5"});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(phases(&status), [("edge-0", "Unknown"), ("edge-1", "Successful")]);
    assert_eq!(
        status.node_status[0].reason.as_deref(),
        Some("The node task has timed out")
    );
    assert_eq!(counts(&status), (2, 1, 1));
    stage
        .node_becomes("edge-0", "free of the order", |object| object.spec.images.is_empty())
        .await;
}

#[tokio::test]
async fn a_deadline_ends_the_job_and_its_pulls() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Hangs, QUICK]).await;
    let template = json!({"labelSelector": {}, "concurrency": 2, "activeDeadlineSeconds": 2});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(condition(&status, "Failed").as_deref(), Some("DeadlineExceeded"));
    assert_eq!(counts(&status), (2, 1, 1));
    assert_eq!(status.progress.reasons, [("DeadlineExceeded".to_owned(), 1)].into());
    stage
        .node_becomes("edge-0", "free of the order", |object| object.spec.images.is_empty())
        .await;
}

/// An agent knows one deadline per entry, and calls it by the entry's field.
#[tokio::test]
async fn a_node_whose_time_is_over_is_told_of_in_the_jobs_own_words() {
    let stage = Stage::new().await;
    let _fleet = edge_fleet(&stage, &[Agent::Fails(Reason::DeadlineExceeded)]).await;
    let template = json!({"nodeNames": ["edge-0"], "timeoutSeconds": 120});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.progress.reasons, [("Timeout".to_owned(), 1)].into());
    let image = status.node_status[0].image_status[0].reason.as_deref().unwrap();
    assert!(image.contains("timeoutSeconds (120 s)"), "{image}");
    let events = Api::<Event>::all(stage.client.clone());
    let told = async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &&Event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some("job");
        let mut notes = all.items.iter().filter(about).filter_map(|event| event.note.as_deref());
        notes.any(|note| note.contains("edge-0") && note.contains("timeoutSeconds (120 s)"))
    };
    wait_until(SOON, "an Event that names the field", told).await.unwrap();
}
