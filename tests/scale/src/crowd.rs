//! Ten thousand nodes, two hundred jobs, a hundred thousand pairs of both: real objects, written as a controller and its
//! agents leave them behind.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use larder_api::{ImagePullJob, NodeImage, NodeImageSpec};
use larder_testkit::wait_for;
use serde_json::{Value, json};

use crate::LIMIT;
use crate::hollow::{labels_of, make_nodes, name_of};
use crate::stage::{Controller, NAMESPACE, Stage, job_type};

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
    /// Resident megabytes when it has nothing left to do.
    pub memory: f64,
    /// The most it ever had.
    pub peak: f64,
    /// What one turn of its loop takes when one node changed.
    pub turn: Duration,
    /// The longest turn of all, in the whole life of the process.
    pub longest_turn: Duration,
}

/// Makes the crowd as an earlier controller and its agents would have left it, starts the controller on it, and measures.
pub async fn run(stage: &Stage, size: Size) -> Measured {
    let client = stage.client();
    let images = Api::<NodeImage>::all(client.clone());
    let uids = make_jobs(stage, size.jobs).await;
    make_nodes(&client, 0..size.nodes).await;
    make_images(&images, size.nodes, &uids).await;

    let controller = stage.controller().await;
    let pairs = jobs_are_served(stage, size).await;
    settles(&controller).await;
    let (memory, peak) = controller.memory();
    let turn = one_change(&images, &controller, size).await;
    Measured {
        pairs,
        memory,
        peak,
        turn,
        longest_turn: Duration::from_secs_f64(controller.metric("larder_controller_longest_turn_seconds").await),
    }
}

/// Makes the jobs, and gives back their uids.
async fn make_jobs(stage: &Stage, count: usize) -> Vec<String> {
    let (api_version, kind) = job_type();
    let mut uids = Vec::new();
    for number in 0..count {
        let job = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": job_name(number)},
            "spec": {
                "image": format!("{}:1", image_name(number)), "parallelism": 10,
                "selector": {"matchLabels": {"group": format!("group-{}", number % GROUPS)}},
                "completionPolicy": {"type": "Never"},
            },
        });
        let job: ImagePullJob = serde_json::from_value(job).unwrap();
        let made = stage.jobs().create(&PostParams::default(), &job).await.unwrap();
        uids.push(made.metadata.uid.unwrap());
    }
    uids
}

fn job_name(number: usize) -> String {
    format!("job-{number:03}")
}

fn image_name(job: usize) -> String {
    format!("registry.example/team-{job:03}/image")
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

/// Makes a NodeImage for every node, with orders of all jobs of its group, and the agent's answers to them.
async fn make_images(images: &Api<NodeImage>, nodes: usize, uids: &[String]) {
    let make = |number: usize| {
        let images = images.clone();
        async move {
            let (name, params) = (name_of(number), PatchParams::default());
            let mut object = NodeImage::new(&name, orders(number, uids));
            object.metadata.labels = Some(labels_of(number, &name));
            images.create(&PostParams::default(), &object).await.unwrap();
            let patch = Patch::Merge(json!({"status": answers(&object.spec)}));
            images.patch_status(&name, &params, &patch).await.unwrap();
        }
    };
    futures::stream::iter((0..nodes).map(make))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

/// What the controller has ordered from a node.
fn orders(node: usize, uids: &[String]) -> NodeImageSpec {
    let (api_version, kind) = job_type();
    let policy = json!({"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 86_400, "activeDeadlineSeconds": 2_400});
    let mut images = serde_json::Map::new();
    for (job, uid) in uids.iter().enumerate().filter(|(job, _)| job % GROUPS == node % GROUPS) {
        let owner =
            json!({"apiVersion": api_version, "kind": kind, "name": job_name(job), "namespace": NAMESPACE, "uid": uid});
        let entry = json!({
            "tag": "1", "version": 1, "createdAt": now(), "pullPolicy": policy, "imagePullPolicy": "IfNotPresent",
            "claims": [{"uid": uid, "version": 1}], "ownerReferences": [owner], "progressSeconds": 2,
        });
        images.insert(image_name(job), json!({"tags": [entry]}));
    }
    serde_json::from_value(json!({"images": images})).unwrap()
}

/// What an agent says when it has everything.
fn answers(orders: &NodeImageSpec) -> Value {
    let digest = "sha256:d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26";
    let mut statuses = serde_json::Map::new();
    for name in orders.images.keys() {
        let result = json!({
            "tag": "1", "version": 1, "phase": "Succeeded", "progress": 100, "attempts": 1, "startTime": now(),
            "completionTime": now(), "digest": digest, "imageID": format!("{name}@{digest}"),
            "bytesTotal": 31_457_280, "bytesDone": 31_457_280,
            "lastSucceeded": {"version": 1, "digest": digest, "completionTime": now()},
        });
        statuses.insert(name.clone(), json!({"tags": [result]}));
    }
    let agent = json!({"version": "0.1.0", "runtime": "containerd 2.1.9", "lastSeen": now()});
    json!({"desired": statuses.len(), "succeeded": statuses.len(), "agent": agent, "imageStatuses": statuses})
}

#[expect(clippy::disallowed_methods, reason = "the API compares these with its own clock")]
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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
