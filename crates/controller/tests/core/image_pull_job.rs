//! ImagePullJobs from their creation to their end.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use larder_api::ImagePullJob;
use larder_model::Reason;
use larder_testkit::wait_until;
use serde_json::json;

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{SOON, Stage, condition};

const SECOND: Duration = Duration::from_secs(1);

fn counts(job: &ImagePullJob) -> (i32, i32, i32, i32) {
    let status = job.status.clone().unwrap_or_default();
    (status.desired, status.succeeded, status.failed, status.active)
}

fn message(job: &ImagePullJob) -> String {
    job.status
        .as_ref()
        .and_then(|status| status.message.clone())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_job_on_three_nodes_completes() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 3]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 2})).await;
    let job = stage.job_ends("job").await;
    assert_eq!(message(&job), "job has completed");
    assert_eq!(counts(&job), (3, 3, 0, 0));
    assert_eq!(condition(&job, "Complete").as_deref(), Some("AllNodesSucceeded"));
    assert_eq!(fleet.all_pulls(), 3);
    assert!(fleet.most_at_once() <= 2);
    wait_until(SOON, "the Event", async || {
        stage
            .event_reasons("job")
            .await
            .contains(&"PullImageSucceed".to_owned())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn many_nodes_are_served_once_each_and_never_more_than_allowed() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Pulls(Duration::from_millis(20)); 30]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 4})).await;
    let job = stage.job_ends("job").await;
    assert_eq!(counts(&job), (30, 30, 0, 0));
    assert_eq!((fleet.all_pulls(), fleet.most_at_once()), (30, 4));
}

#[tokio::test]
async fn a_failure_is_named_and_the_job_fails() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK, Agent::Fails(Reason::NotFound), QUICK]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 3})).await;
    let job = stage.job_ends("job").await;
    let status = job.status.clone().unwrap();
    assert_eq!(message(&job), "job has completed");
    assert_eq!(status.failed_nodes, ["node-1"]);
    assert_eq!(status.progress.reasons, [("NotFound".to_owned(), 1)].into());
    assert_eq!(condition(&job, "Failed").as_deref(), Some("NodesFailed"));
    wait_until(SOON, "Events on the job and the node", async || {
        let (job, node) = (stage.event_reasons("job").await, stage.event_reasons("node-1").await);
        [job, node]
            .iter()
            .all(|reasons| reasons.contains(&"PullImageFailed".to_owned()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn nodes_that_cannot_take_part_do_not_stop_the_others() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Never, QUICK, QUICK, QUICK]).await;
    fleet.set_ready("node-1", false).await;
    stage.submit("job", json!({"image": "nginx:1"})).await;
    let job = stage
        .job_becomes("job", "done with the living", |job| counts(job) == (4, 2, 0, 0))
        .await;
    assert!(message(&job).contains("1 NodeNotReady"), "{}", message(&job));
    assert!(message(&job).contains("1 Unresponsive"), "{}", message(&job));
    fleet.set_ready("node-1", true).await;
    stage
        .job_becomes("job", "done with the one that came back", |job| counts(job).1 == 3)
        .await;
}

/// Takes the half minute that an agent is given to take up its order.
#[tokio::test]
async fn an_order_that_nobody_takes_up_passes_its_slot_on() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Mute, QUICK]).await;
    stage.submit("job", json!({"image": "nginx:1"})).await;
    stage
        .node_becomes("node-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    wait_until(2 * SOON, "the slot to be passed on", async || {
        fleet.pulls("node-1") == 1
    })
    .await
    .unwrap();
    stage
        .node_becomes("node-0", "free of the order", |object| object.spec.images.is_empty())
        .await;
    let job = stage
        .job_becomes("job", "done with the living", |job| counts(job) == (2, 1, 0, 0))
        .await;
    assert!(message(&job).ends_with("1 Unresponsive"), "{}", message(&job));
}

#[tokio::test]
async fn parallelism_0_pauses_and_an_edit_resumes() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 2]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 0})).await;
    let job = stage
        .job_becomes("job", "paused", |job| counts(job) == (2, 0, 0, 0))
        .await;
    assert!(message(&job).ends_with("paused (parallelism 0)"), "{}", message(&job));
    assert_eq!(fleet.all_pulls(), 0);
    let edit = Patch::Merge(json!({"spec": {"parallelism": "2"}}));
    stage.jobs().patch("job", &PatchParams::default(), &edit).await.unwrap();
    assert_eq!(counts(&stage.job_ends("job").await), (2, 2, 0, 0));
}

#[tokio::test]
async fn a_deadline_ends_the_job_and_takes_its_orders_back() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK, Agent::Hangs]).await;
    let spec = json!({
        "image": "nginx:1", "parallelism": 2,
        "pullPolicy": {"timeoutSeconds": 1}, "completionPolicy": {"activeDeadlineSeconds": 2},
    });
    stage.submit("job", spec).await;
    let job = stage.job_ends("job").await;
    assert_eq!(message(&job), "job exceeds activeDeadlineSeconds");
    assert_eq!(counts(&job), (2, 1, 1, 0));
    assert_eq!(
        job.status.unwrap().progress.reasons,
        [("DeadlineExceeded".to_owned(), 1)].into()
    );
    stage
        .node_becomes("node-1", "free of the order", |object| object.spec.images.is_empty())
        .await;
    stage
        .node_becomes("node-0", "left as it is", |object| object.entry("nginx", "1").is_some())
        .await;
}

#[tokio::test]
async fn a_deleted_job_takes_its_entries_along_and_a_ttl_deletes_it() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[QUICK, Agent::Hangs]).await;
    stage
        .submit("stays", json!({"image": "nginx:1", "parallelism": 2}))
        .await;
    stage
        .node_becomes("node-1", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    stage.jobs().delete("stays", &DeleteParams::default()).await.unwrap();
    stage
        .node_becomes("node-0", "empty", |object| object.spec.images.is_empty())
        .await;
    stage
        .node_becomes("node-1", "empty", |object| object.spec.images.is_empty())
        .await;

    let spec = json!({
        "image": "nginx:1", "selector": {"names": ["node-0"]}, "completionPolicy": {"ttlSecondsAfterFinished": 0},
    });
    stage.submit("leaves", spec).await;
    wait_until(SOON, "the job to be deleted", async || {
        stage.jobs().get_opt("leaves").await.unwrap().is_none()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_second_job_takes_nothing_from_the_first() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK, Agent::Pulls(3 * SECOND)]).await;
    stage
        .submit(
            "first",
            json!({"image": "nginx:1", "parallelism": 2, "pullPolicy": {"timeoutSeconds": 50}}),
        )
        .await;
    stage.job_becomes("first", "half done", |job| counts(job).1 == 1).await;
    let second = json!({"image": "docker.io/library/nginx:1", "imagePullPolicy": "Always", "parallelism": 2});
    stage.submit("second", second).await;
    let first = stage.job_ends("first").await;
    assert_eq!(counts(&first), (2, 2, 0, 0));
    assert_eq!(counts(&stage.job_ends("second").await), (2, 2, 0, 0));
    assert_eq!(fleet.pulls("node-0"), 2);
    let object = stage
        .node_becomes("node-0", "shared", |object| object.entry("nginx", "1").is_some())
        .await;
    let entry = object.entry("nginx", "1").unwrap();
    assert_eq!((entry.owner_references.len(), entry.version), (2, 1));
}

#[tokio::test]
async fn edits_of_a_running_job_reach_its_entries() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Hangs]).await;
    stage.submit("job", json!({"image": "nginx:1"})).await;
    stage
        .node_becomes("node-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    let edit = json!({"spec": {"pullPolicy": {"timeoutSeconds": 1234}, "sandboxConfig": {"labels": {"a": "b"}}}});
    stage
        .jobs()
        .patch("job", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    stage
        .node_becomes("node-0", "edited", |object| {
            let entry = object.entry("nginx", "1");
            entry.is_some_and(|entry| entry.pull_policy.timeout_seconds == 1234)
                && object.spec.images["nginx"].sandbox_config.is_some()
        })
        .await;
    let edit = json!({"spec": {"image": "redis:7"}});
    stage
        .jobs()
        .patch("job", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    let other = stage
        .node_becomes("node-0", "given the new image", |object| {
            object.entry("redis", "7").is_some()
        })
        .await;
    drop(other);
    stage
        .node_becomes("node-0", "rid of the old one", |object| {
            object.entry("nginx", "1").is_none()
        })
        .await;
    let edit = json!({"spec": {"selector": {"names": ["elsewhere"]}}});
    stage
        .jobs()
        .patch("job", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    stage
        .node_becomes("node-0", "left alone", |object| object.spec.images.is_empty())
        .await;
}

#[tokio::test]
async fn a_node_that_leaves_the_selector_gives_its_slot_back() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Hangs, QUICK]).await;
    let selector = json!({"names": ["node-0"]});
    stage
        .submit(
            "job",
            json!({"image": "nginx:1", "parallelism": 1, "selector": selector}),
        )
        .await;
    stage
        .node_becomes("node-0", "ordered", |object| object.entry("nginx", "1").is_some())
        .await;
    let edit = Patch::Merge(json!({"spec": {"selector": {"names": ["node-1"]}}}));
    stage.jobs().patch("job", &PatchParams::default(), &edit).await.unwrap();
    assert_eq!(counts(&stage.job_ends("job").await), (1, 1, 0, 0));
    assert_eq!(fleet.pulls("node-1"), 1);
}

#[tokio::test]
async fn too_many_failures_end_the_job() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Fails(Reason::NotFound); 6]).await;
    stage
        .submit("job", json!({"image": "nginx:1", "failurePolicy": {"maxFailures": 1}}))
        .await;
    let job = stage.job_ends("job").await;
    assert_eq!(condition(&job, "Failed").as_deref(), Some("TooManyFailures"));
    assert_eq!(counts(&job), (6, 0, 2, 0));
    assert_eq!(fleet.all_pulls(), 2);
}

#[tokio::test]
async fn a_never_job_follows_new_nodes() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    stage
        .submit(
            "job",
            json!({"image": "nginx:1", "completionPolicy": {"type": "Never"}}),
        )
        .await;
    let job = stage
        .job_becomes("job", "done so far", |job| counts(job) == (1, 1, 0, 0))
        .await;
    assert_eq!(message(&job), "job is running, progress 100.0%");
    fleet.add("late", QUICK, json!({})).await;
    let job = stage
        .job_becomes("job", "done with the new one", |job| counts(job) == (2, 2, 0, 0))
        .await;
    assert_eq!(job.status.unwrap().completion_time, None);
}

#[tokio::test]
async fn the_finalizer_of_other_software_is_removed() {
    let stage = Stage::new().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Hangs]).await;
    let job = stage.submit("job", json!({"image": "nginx:1"})).await;
    let finalizers = json!({"metadata": {"finalizers": ["apps.kruise.io/deletion-protection", "example.com/other"]}});
    stage
        .jobs()
        .patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(finalizers))
        .await
        .unwrap();
    stage
        .job_becomes("job", "rid of one finalizer", |job| {
            job.finalizers() == ["example.com/other"]
        })
        .await;
}

#[tokio::test]
async fn the_whole_fleet_has_a_limit_of_its_own() {
    let stage = Stage::with(|settings| settings.max_active_pulls = std::num::NonZeroUsize::new(3)).await;
    let fleet = Fleet::of(&stage.client, &[Agent::Pulls(Duration::from_millis(30)); 8]).await;
    for name in ["a", "b", "c"] {
        stage
            .submit(name, json!({"image": format!("{name}:1"), "parallelism": 5}))
            .await;
    }
    for name in ["a", "b", "c"] {
        assert_eq!(counts(&stage.job_ends(name).await), (8, 8, 0, 0));
    }
    assert_eq!((fleet.all_pulls(), fleet.most_at_once()), (24, 3));
}

#[tokio::test]
async fn a_job_that_waits_for_the_fleets_limit_says_so_and_is_not_passed_over() {
    let stage = Stage::with(|settings| settings.max_active_pulls = std::num::NonZeroUsize::new(1)).await;
    let fleet = Fleet::of(&stage.client, &[Agent::Hangs, Agent::Hangs]).await;
    stage.submit("first", json!({"image": "a:1", "parallelism": 2})).await;
    stage.job_becomes("first", "at work", |job| counts(job).3 == 1).await;
    stage.submit("second", json!({"image": "b:1"})).await;
    let waiting = stage
        .job_becomes("second", "held back", |job| {
            condition(job, "Progressing").as_deref() == Some("FleetLimit")
        })
        .await;
    assert!(
        message(&waiting).contains("--max-active-pulls"),
        "{}",
        message(&waiting)
    );
    let first = stage
        .job_becomes("first", "held back too", |job| {
            message(job).contains("--max-active-pulls")
        })
        .await;
    assert_eq!(condition(&first, "Progressing").as_deref(), Some("Pulling"));
    let ordered = async |image: &str| {
        let nodes = stage.node_images().list(&ListParams::default()).await.unwrap();
        let with = nodes.iter().filter(|node| node.entry(image, "1").is_some());
        with.map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    // The first job's only pull ends: the slot goes to the second, although the first has a node left.
    let [busy] = ordered("a").await.try_into().unwrap();
    let done = json!({"status": {"imageStatuses": {"a": {"tags": [
        {"tag": "1", "version": 0, "phase": "Succeeded", "lastSucceeded": {"version": 0}, "completionTime": "2026-01-01T00:00:00Z"},
    ]}}}});
    let nodes = stage.node_images();
    nodes
        .patch_status(&busy, &PatchParams::default(), &Patch::Merge(done))
        .await
        .unwrap();
    stage.job_becomes("second", "at work", |job| counts(job).3 == 1).await;
    assert_eq!((ordered("a").await.len(), ordered("b").await.len()), (1, 1));
    drop(fleet);
}

#[tokio::test]
async fn a_paused_fleet_hands_out_nothing_and_says_so() {
    let stage = Stage::with(|settings| settings.pause = true).await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    stage.submit("job", json!({"image": "nginx:1"})).await;
    let job = stage
        .job_becomes("job", "held", |job| message(job).contains("paused for the whole fleet"))
        .await;
    assert_eq!(condition(&job, "Progressing").as_deref(), Some("Paused"));
    assert_eq!(fleet.all_pulls(), 0);
}

#[tokio::test]
async fn jobs_are_told_that_the_gate_is_off() {
    let stage = Stage::with(|settings| settings.gates.image_pull_jobs = false).await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    stage.submit("job", json!({"image": "nginx:1"})).await;
    stage
        .job_becomes("job", "told", |job| {
            message(job) == "feature gate ImagePullJobGate is off"
        })
        .await;
    assert_eq!(fleet.all_pulls(), 0);
}

#[tokio::test]
async fn a_restart_in_the_middle_loses_nothing_and_repeats_nothing() {
    let mut stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[Agent::Pulls(Duration::from_millis(100)); 12]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 3})).await;
    stage.job_becomes("job", "under way", |job| 2 <= counts(job).1).await;
    stage.stop_controller().await;
    stage.start_controller(|_| {});
    assert_eq!(counts(&stage.job_ends("job").await), (12, 12, 0, 0));
    assert_eq!((fleet.all_pulls(), fleet.most_at_once()), (12, 3));
}

#[tokio::test]
async fn a_job_that_was_there_before_the_controller_waits_for_the_whole_fleet() {
    let mut stage = Stage::without_controller().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 20]).await;
    stage
        .submit("job", json!({"image": "nginx:1", "parallelism": 20}))
        .await;
    stage.start_controller(|_| {});
    assert_eq!(counts(&stage.job_ends("job").await), (20, 20, 0, 0));
    assert_eq!(fleet.all_pulls(), 20);
}
