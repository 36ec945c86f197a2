//! The same controller on a real kube-apiserver: what it writes, a real one accepts; and two of them share the work.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use larder_api::ImageListPullJob;
use larder_model::Reason;
use larder_testkit::{ControlPlane, Options, wait_until};
use serde_json::json;

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage, condition};

async fn plane() -> ControlPlane {
    let options = Options {
        crds: larder_api::crds(),
        controller_manager: true,
        ..Options::default()
    };
    ControlPlane::start(options).await.unwrap()
}

#[tokio::test]
async fn jobs_lists_and_nodes_from_beginning_to_end() {
    let plane = plane().await;
    let mut stage = Stage::on_kubernetes(&plane).await;
    stage.start_controller(|_| {});
    let fleet = Fleet::of(&stage.client, &[QUICK, QUICK, Agent::Fails(Reason::NotFound)]).await;

    let spec = json!({"image": "nginx:1", "parallelism": 2, "completionPolicy": {"ttlSecondsAfterFinished": 3_000}});
    stage.submit("job", spec).await;
    let job = stage.job_ends("job").await;
    let status = job.status.clone().unwrap();
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 2, 1));
    assert_eq!(
        (status.message.as_deref(), status.failed_nodes),
        (Some("job has completed"), vec!["node-2".to_owned()])
    );
    assert_eq!(condition(&job, "Failed").as_deref(), Some("NodesFailed"));
    wait_until(SOON, "the Event", async || {
        stage.event_reasons("job").await.contains(&"PullImageFailed".to_owned())
    })
    .await
    .unwrap();
    // One write to create it, one for the order.
    let object = stage.node_images().get("node-0").await.unwrap();
    assert_eq!(object.metadata.generation, Some(2));

    stage.jobs().delete("job", &DeleteParams::default()).await.unwrap();
    stage
        .node_becomes("node-0", "clean", |object| object.spec.images.is_empty())
        .await;

    fleet.set("node-2", QUICK);
    let list = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob", "metadata": {"name": "list"},
        "spec": {"images": ["nginx:1", "redis:7"], "parallelism": 3, "completionPolicy": {"ttlSecondsAfterFinished": 1}},
    });
    let list: ImageListPullJob = serde_json::from_value(list).unwrap();
    stage.lists().create(&PostParams::default(), &list).await.unwrap();
    wait_until(SOON, "the list and its children to come and go", async || {
        let jobs = stage.jobs().list(&ListParams::default()).await.unwrap();
        stage.lists().get_opt("list").await.unwrap().is_none() && jobs.items.is_empty()
    })
    .await
    .unwrap();
    stage
        .node_becomes("node-2", "clean", |object| object.spec.images.is_empty())
        .await;
    stage.stop_controller().await;
}

/// A hand writes into the NodeImages all the time, so that the guard of every patch is put to the test.
#[tokio::test]
async fn other_writers_and_a_second_controller_change_nothing() {
    let plane = plane().await;
    let mut stage = Stage::on_kubernetes(&plane).await;
    let namespace = stage.namespace.clone();
    for _ in 0..2 {
        let namespace = namespace.clone();
        stage.add_controller(move |settings| {
            settings.leader_elect = true;
            settings.namespace = namespace;
        });
    }
    let fleet = Fleet::of(&stage.client, &[Agent::Pulls(Duration::from_millis(150)); 12]).await;
    let nodes = stage.node_images();
    let hand = tokio::spawn(async move {
        for round in 0.. {
            let entry = json!({"tag": format!("{}", round % 3), "pullPolicy": {"ttlSecondsAfterFinished": 60}});
            let patch = Patch::Merge(json!({"spec": {"images": {"by-hand": {"tags": [entry]}}}}));
            let name = format!("node-{}", round % 12);
            nodes.patch(&name, &PatchParams::default(), &patch).await.ok();
            tokio::task::yield_now().await;
        }
    });
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 3})).await;
    let job = stage.job_ends("job").await;
    hand.abort();
    assert_eq!(job.status.unwrap().succeeded, 12);
    assert!(
        fleet.most_at_once_of("nginx") <= 3,
        "{}",
        fleet.most_at_once_of("nginx")
    );
    assert_eq!(fleet.pulls_of("nginx"), 12);
    stage.stop_controller().await;
}

#[tokio::test]
async fn an_api_server_that_dies_in_the_middle_costs_time_and_nothing_else() {
    let mut plane = plane().await;
    let mut stage = Stage::on_kubernetes(&plane).await;
    stage.start_controller(|_| {});
    let fleet = Fleet::of(&stage.client, &[Agent::Pulls(Duration::from_millis(200)); 10]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 2})).await;
    wait_until(SOON, "the first pulls", async || 3 <= fleet.all_pulls())
        .await
        .unwrap();
    plane.kill_api_server().unwrap();
    plane.restart_api_server().await.unwrap();
    let job = stage.job_ends("job").await;
    assert_eq!(job.status.unwrap().succeeded, 10);
    assert_eq!(fleet.all_pulls(), 10);
    assert!(fleet.most_at_once() <= 2, "{}", fleet.most_at_once());
    stage.stop_controller().await;
}

/// Watches of the controller and of the test's own agents try again up to half a minute after the API server is back.
const AFTER_RESTART: Duration = Duration::from_mins(2);

async fn succeeds_after_restart(stage: &Stage, name: &str, image: &str) {
    stage.submit(name, json!({"image": image, "parallelism": 2})).await;
    wait_until(AFTER_RESTART, format!("{name} to succeed on both nodes"), async || {
        let status = stage.jobs().get(name).await.ok().and_then(|job| job.status);
        status.is_some_and(|status| status.completion_time.is_some() && status.succeeded == 2)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn jobs_are_served_after_etcd_was_restored_from_an_older_copy() {
    let mut plane = plane().await;
    let mut stage = Stage::on_kubernetes(&plane).await;
    stage.start_controller(|_| {});
    let backup = plane.back_up().await.unwrap();
    let fleet = Fleet::of(&stage.client, &[QUICK, QUICK]).await;
    for number in 0..8 {
        succeeds_after_restart(&stage, &format!("lost-{number}"), &format!("redis:{number}")).await;
    }
    drop(fleet);
    plane.restore(&backup).await.unwrap();
    let _fleet = Fleet::of(&stage.client, &[QUICK, QUICK]).await;
    // One of a new name, and one of a name that was lost.
    succeeds_after_restart(&stage, "after", "nginx:1").await;
    succeeds_after_restart(&stage, "lost-0", "nginx:2").await;
}
