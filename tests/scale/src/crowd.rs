//! Ten thousand nodes, two hundred jobs, a hundred thousand pairs of both: real objects, and one writer in the place of
//! all agents.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use larder_api::{ImagePullJob, NodeImage};
use larder_testkit::{wait_for, wait_until};
use serde_json::{Value, json};

use crate::LIMIT;
use crate::hollow::{make_nodes, name_of};
use crate::stage::{Controller, Stage, job_type};

/// Nodes are divided into so many groups by a label, and each job is for one of them.
pub const GROUPS: usize = 20;

/// Writes at once.
const AT_ONCE: usize = 64;

/// How large the crowd is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// Jobs, each for a twentieth of the nodes.
    pub jobs: usize,
    /// Changes, each on one node, whose cost is measured.
    pub changes: usize,
}

/// What the controller needs for it.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Pairs of jobs and nodes.
    pub pairs: usize,
    /// Resident megabytes after everything was handed out and answered.
    pub after_work: f64,
    /// Resident megabytes of a controller that was started on this.
    pub after_start: f64,
    /// The most it ever had.
    pub peak: f64,
    /// What one turn of its loop takes when one node changed.
    pub turn: Duration,
    /// The longest turn of all, in the whole life of the process.
    pub longest_turn: Duration,
}

/// Builds the crowd, lets the controller hand everything out, answers, and measures.
pub async fn run(stage: &Stage, size: Size) -> Measured {
    let client = stage.client();
    let images = Api::<NodeImage>::all(client.clone());
    let controller = stage.controller().await;
    make_nodes(&client, 0..size.nodes).await;
    let made = async || images.list_metadata(&ListParams::default()).await.unwrap().items.len() == size.nodes;
    wait_until(LIMIT, "a NodeImage for every node", made).await.unwrap();
    write_all(&images, size.nodes, |_| introduction()).await;
    drop(controller);

    make_jobs(stage, size.jobs).await;
    let controller = stage.controller().await;
    // All jobs are there from the start, so that their orders come in one write. Metadata alone: a list of everything costs
    // the API server more than the orders do.
    let ordered = async || {
        let listed = images.list_metadata(&ListParams::default()).await.unwrap();
        let written = |node: &kube::core::PartialObjectMeta<NodeImage>| Some(1) < node.metadata.generation;
        listed.items.iter().all(written)
    };
    wait_until(LIMIT, "every node to have its orders", ordered)
        .await
        .unwrap();
    let listed = images.list(&ListParams::default()).await.unwrap();
    let answers: BTreeMap<String, Value> = listed
        .into_iter()
        .map(|node| (node.name_any(), answer(&node)))
        .collect();
    write_all(&images, size.nodes, |name| answers[name].clone()).await;
    let pairs = jobs_are_served(stage, size).await;
    let (after_work, _) = controller.memory();
    drop(controller);

    let controller = stage.controller().await;
    settles(&controller).await;
    let (after_start, peak) = controller.memory();
    let turn = one_change(&images, &controller, size).await;
    Measured {
        pairs,
        after_work,
        after_start,
        peak,
        turn,
        longest_turn: Duration::from_secs_f64(controller.metric("larder_controller_longest_turn_seconds").await),
    }
}

async fn make_jobs(stage: &Stage, count: usize) {
    let (api_version, kind) = job_type();
    for number in 0..count {
        let job = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": format!("job-{number:03}")},
            "spec": {
                "image": format!("registry.example/team-{number:03}/image:1"), "parallelism": 1_000_000,
                "selector": {"matchLabels": {"group": format!("group-{}", number % GROUPS)}},
                "completionPolicy": {"type": "Never"},
            },
        });
        let job: ImagePullJob = serde_json::from_value(job).unwrap();
        stage.jobs().create(&PostParams::default(), &job).await.unwrap();
    }
}

/// Waits until every job says that all its nodes are done, and adds them up.
async fn jobs_are_served(stage: &Stage, size: Size) -> usize {
    let jobs = stage.jobs();
    let question = async || {
        let listed = jobs
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let statuses: Vec<_> = listed.items.into_iter().filter_map(|job| job.status).collect();
        let served =
            |status: &&larder_api::ImagePullJobStatus| 0 < status.desired && status.succeeded == status.desired;
        let done = statuses.iter().filter(served).count();
        if done == size.jobs {
            Ok(statuses
                .iter()
                .map(|status| usize::try_from(status.desired).unwrap())
                .sum())
        } else {
            Err(format!("{done} of {} are", size.jobs))
        }
    };
    wait_for(LIMIT, "all jobs to be served", question).await.unwrap()
}

async fn write_all(images: &Api<NodeImage>, nodes: usize, status: impl Fn(&str) -> Value) {
    let write = |number: usize| {
        let name = name_of(number);
        let patch = Patch::Merge(json!({"status": status(&name)}));
        let images = images.clone();
        async move {
            images
                .patch_status(&name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    };
    futures::stream::iter((0..nodes).map(write))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

/// What an agent says first.
fn introduction() -> Value {
    let agent = json!({"version": "0.1.0", "runtime": "containerd 2.1.9", "lastSeen": "2026-01-01T00:00:00Z"});
    json!({"desired": 0, "agent": agent})
}

/// What an agent says when it has everything.
fn answer(node: &NodeImage) -> Value {
    let digest = "sha256:d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26";
    let mut statuses = serde_json::Map::new();
    for (name, image) in &node.spec.images {
        let result = |entry: &larder_api::node_image::ImageTagSpec| {
            json!({
                "tag": entry.tag, "version": entry.version, "phase": "Succeeded", "progress": 100, "attempts": 1,
                "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "digest": digest,
                "imageID": format!("{name}@{digest}"), "bytesTotal": 31_457_280, "bytesDone": 31_457_280,
                "lastSucceeded": {"version": entry.version, "digest": digest, "completionTime": "2026-01-01T00:00:01Z"},
            })
        };
        let tags: Vec<Value> = image.tags.iter().map(result).collect();
        statuses.insert(name.clone(), json!({"tags": tags}));
    }
    json!({"desired": statuses.len(), "succeeded": statuses.len(), "imageStatuses": statuses})
}

/// Waits until the controller has nothing to do: it takes next to no processor time for a second.
async fn settles(controller: &Controller) {
    let question = async || {
        let before = controller.cpu();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let spent = controller.cpu() - before;
        if spent < 0.05 {
            Ok(())
        } else {
            Err(format!("{spent} s"))
        }
    };
    wait_for(LIMIT, "the controller to rest", question).await.unwrap();
}

/// Changes one node after the other, and gives back what the controller's loop took for each.
async fn one_change(images: &Api<NodeImage>, controller: &Controller, size: Size) -> Duration {
    let spent = async || {
        let sum = controller.metric("larder_controller_turn_seconds_sum").await;
        (sum, controller.metric("larder_controller_turn_seconds_count").await)
    };
    let (sum, count) = spent().await;
    for number in 0..size.changes {
        let name = name_of(number * size.nodes / size.changes);
        let seen = format!("2026-01-02T00:00:{:02}Z", number % 60);
        let patch = json!({"status": {"agent": {"lastSeen": seen}}});
        let params = PatchParams::default();
        images.patch_status(&name, &params, &Patch::Merge(patch)).await.unwrap();
    }
    let (sum_after, count_after) = spent().await;
    Duration::from_secs_f64((sum_after - sum) / (count_after - count).max(1.0))
}
