//! ImageListPullJobs and their children.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_model::Reason;
use larder_testkit::{wait_for, wait_until};
use serde_json::{Value, json};

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage};

async fn submit(stage: &Stage, spec: Value) {
    let list = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
        "metadata": {"name": "list"}, "spec": spec,
    });
    let list: ImageListPullJob = serde_json::from_value(list).unwrap();
    stage.lists().create(&PostParams::default(), &list).await.unwrap();
}

async fn becomes(stage: &Stage, what: &str, is: impl Fn(&ImageListPullJob) -> bool) -> ImageListPullJob {
    let lists = stage.lists();
    wait_for(SOON, format!("the list to be {what}"), async || {
        let list = lists.get("list").await.map_err(|error| error.to_string())?;
        if is(&list) {
            Ok(list)
        } else {
            Err(format!("{:?}", list.status))
        }
    })
    .await
    .unwrap()
}

fn over(list: &ImageListPullJob) -> bool {
    list.status
        .as_ref()
        .is_some_and(|status| status.completion_time.is_some())
}

async fn children(stage: &Stage) -> Vec<ImagePullJob> {
    stage.jobs().list(&ListParams::default()).await.unwrap().items
}

#[tokio::test]
async fn a_list_makes_one_child_per_image_and_ends_with_them() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 3]).await;
    submit(
        &stage,
        json!({"images": ["nginx:1", "redis:7", "docker.io/library/nginx:1"], "parallelism": 2}),
    )
    .await;
    let list = becomes(&stage, "over", over).await;
    let status = list.status.unwrap();
    assert_eq!(
        (status.desired, status.completed, status.succeeded, status.active),
        (2, 2, 2, 0)
    );
    assert_eq!(status.progress.conditions[0].type_, "Complete");
    let children = children(&stage).await;
    assert_eq!(children.len(), 2);
    assert!(children.iter().all(|child| child.name_any().starts_with("list-")));
    assert_eq!(fleet.all_pulls(), 6);
    wait_until(SOON, "the Events", async || {
        let reasons = stage.event_reasons("list").await;
        reasons.iter().any(|reason| reason == "Successful create ImagePullJob")
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_failed_image_is_named() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK, Agent::Fails(Reason::NotFound)]).await;
    submit(&stage, json!({"images": ["nginx:1"], "parallelism": 2})).await;
    let status = becomes(&stage, "over", over).await.status.unwrap();
    assert_eq!((status.completed, status.succeeded), (1, 0));
    let failed = &status.failed_image_statuses[0];
    assert_eq!(failed.name.as_deref(), Some("nginx:1"));
    assert_eq!(status.progress.conditions[0].reason, "NodesFailed");
}

#[tokio::test]
async fn an_edited_list_has_the_children_that_it_asks_for() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Hangs]).await;
    submit(&stage, json!({"images": ["nginx:1", "redis:7"]})).await;
    wait_until(SOON, "two children", async || children(&stage).await.len() == 2)
        .await
        .unwrap();
    let edit = json!({"spec": {"images": ["redis:7", "busybox:1"]}});
    stage
        .lists()
        .patch("list", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    wait_until(SOON, "the other children", async || {
        let mut images: Vec<String> = children(&stage)
            .await
            .into_iter()
            .map(|child| child.spec.image)
            .collect();
        images.sort();
        images == ["busybox:1", "redis:7"]
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_list_with_a_time_to_live_pulls_once_and_goes() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 2]).await;
    let spec = json!({
        "images": ["nginx:1", "redis:7"], "parallelism": 2, "pullPolicy": {"timeoutSeconds": 50},
        "completionPolicy": {"activeDeadlineSeconds": 100, "ttlSecondsAfterFinished": 1},
    });
    submit(&stage, spec).await;
    wait_until(SOON, "the list to go", async || {
        stage.lists().get_opt("list").await.unwrap().is_none()
    })
    .await
    .unwrap();
    wait_until(SOON, "its children to go", async || children(&stage).await.is_empty())
        .await
        .unwrap();
    assert_eq!(fleet.all_pulls(), 4);
}

#[tokio::test]
async fn a_finished_child_that_was_deleted_by_hand_is_not_made_again_after_a_restart() {
    let mut stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    submit(&stage, json!({"images": ["nginx:1", "redis:7"], "parallelism": 0})).await;
    wait_until(SOON, "two children", async || children(&stage).await.len() == 2)
        .await
        .unwrap();
    let child_of = |jobs: Vec<ImagePullJob>, image: &str| {
        let child = jobs.into_iter().find(|child| child.spec.image == image);
        child.unwrap().name_any()
    };
    // One child is done by somebody's word, the other waits for as long as the list is paused.
    let nginx = child_of(children(&stage).await, "nginx:1");
    let done = json!({"status": {"desired": 1, "succeeded": 1, "completionTime": "2026-01-01T00:00:00Z"}});
    let (parameters, done) = (PatchParams::default(), Patch::Merge(done));
    stage.jobs().patch_status(&nginx, &parameters, &done).await.unwrap();
    becomes(&stage, "half done", |list| {
        let status = list.status.as_ref();
        status.is_some_and(|status| status.finished_images.iter().any(|image| image.name == "nginx:1"))
    })
    .await;
    stage.stop_controller().await;
    stage.jobs().delete(&nginx, &DeleteParams::default()).await.unwrap();
    stage.start_controller(|_| {});

    let redis = child_of(children(&stage).await, "redis:7");
    stage.jobs().patch_status(&redis, &parameters, &done).await.unwrap();
    let status = becomes(&stage, "over", over).await.status.unwrap();
    assert_eq!((status.completed, status.succeeded), (2, 2));
    assert_eq!(children(&stage).await.len(), 1, "the child was made again");
    assert_eq!(fleet.all_pulls(), 0);
}

#[tokio::test]
async fn a_deadline_below_the_default_timeout_is_kept() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK]).await;
    let spec = json!({"images": ["nginx:1"], "completionPolicy": {"activeDeadlineSeconds": 60}});
    submit(&stage, spec).await;
    let status = becomes(&stage, "over", over).await.status.unwrap();
    assert_eq!((status.completed, status.succeeded), (1, 1));
    let child = children(&stage).await.remove(0).spec.template;
    assert_eq!(child.pull_policy.timeout_seconds, 60);
}
