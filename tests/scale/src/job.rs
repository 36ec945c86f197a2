//! One job from its creation to its end, with everything that can be measured about it.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use larder_api::ImagePullJob;
use larder_model::ImageRef;
use larder_testkit::unique_name;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::hollow::Fleet;
use crate::stage::{Effort, Stage, job_type};
use crate::watching::Watching;
use crate::{LIMIT, PULL};

/// Where jobs run.
pub struct Place<'a> {
    /// The servers.
    pub stage: &'a Stage,
    /// The nodes.
    pub fleet: &'a Fleet<'a>,
    /// What the API shows.
    pub watching: &'a Watching,
}

/// A job that was created.
pub struct Submitted {
    /// Its name.
    pub name: String,
    /// What it pulls: an image that no other job asks for.
    pub image: ImageRef,
    /// When its creation was sent.
    pub sent: Instant,
    statuses: JoinHandle<Vec<Shown>>,
}

/// A status that the API showed.
#[derive(Clone, Copy, Debug)]
struct Shown {
    at: Instant,
    over: bool,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the creation until the API shows that the job is over.
    pub took: Duration,
    /// From the creation until the first status.
    pub first_status: Duration,
    /// The longest time between two statuses while it ran.
    pub stalest: Duration,
    /// From the creation until the first call to a runtime, if there was one.
    pub first_call: Option<Duration>,
    /// From the end of each pull to its result in a watch event.
    pub end_to_result: Vec<Duration>,
    /// From the end of each pull to the call that takes its slot.
    pub slot_to_call: Vec<Duration>,
    /// What the API server had to do for it.
    pub effort: Effort,
}

impl Place<'_> {
    /// Creates a job for an image of its own; `spec` holds everything but the image.
    pub async fn submit(&self, image: ImageRef, mut spec: Value) -> Submitted {
        spec["image"] = json!(image.familiar());
        let name = unique_name("job");
        let (api_version, kind) = job_type();
        let job = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let job: ImagePullJob = serde_json::from_value(job).unwrap();
        let jobs = self.stage.jobs();
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let changes = watcher(jobs.clone(), config).default_backoff().applied_objects();
        let statuses = tokio::spawn(async move {
            let mut changes = Box::pin(changes);
            let mut shown = Vec::new();
            while let Some(change) = changes.next().await {
                let at = Instant::now();
                let Some(status) = change.ok().and_then(|job| job.status) else {
                    continue;
                };
                let over = status.completion_time.is_some();
                shown.push(Shown { at, over });
                if over {
                    break;
                }
            }
            shown
        });
        let sent = Instant::now();
        jobs.create(&PostParams::default(), &job).await.unwrap();
        Submitted {
            name,
            image,
            sent,
            statuses,
        }
    }

    /// Runs a job on so many nodes to its end. `pulls` says whether the nodes have to pull, or have the image.
    pub async fn run(&self, parallelism: usize, nodes: usize, pulls: bool) -> Measured {
        let image = fresh_image();
        if !pulls {
            self.fleet.put(&image);
        }
        let before = self.stage.effort().await;
        let spec = json!({"parallelism": parallelism, "completionPolicy": {"type": "Always"}});
        let job = self.submit(image.clone(), spec).await;
        let sent = job.sent;
        let shown = job.over().await;
        let effort = self.stage.effort().await.since(&before);
        let results = self.watching.results(&image, nodes, LIMIT).await;
        let pulled = self.fleet.pulls(&image);
        assert_eq!(
            pulled.len(),
            if pulls { nodes } else { 0 },
            "every node pulls once, or not at all"
        );
        let end_to_result = pulled
            .iter()
            .map(|(node, call)| results[node].saturating_duration_since(*call + PULL));
        let end_to_result = end_to_result.collect();
        let mut calls: Vec<Instant> = pulled.into_iter().map(|(_, call)| call).collect();
        calls.sort();
        let times: Vec<Instant> = shown.iter().map(|shown| shown.at).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        Measured {
            took: *times.last().unwrap() - sent,
            first_status: times[0] - sent,
            stalest: gaps.max().unwrap_or_default(),
            first_call: calls.first().map(|call| *call - sent),
            end_to_result,
            slot_to_call: slot_to_call(&calls, parallelism),
            effort,
        }
    }
}

impl Submitted {
    /// Waits until the API shows that the job is over; every status until then.
    async fn over(mut self) -> Vec<Shown> {
        let shown = timeout(LIMIT, &mut self.statuses).await.unwrap().unwrap();
        assert!(shown.last().is_some_and(|shown| shown.over), "the job never ended");
        shown
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        self.statuses.abort();
    }
}

/// An image that nobody has asked for.
pub fn fresh_image() -> ImageRef {
    ImageRef::parse(&format!("registry.example/{}:1", unique_name("image"))).unwrap()
}

/// In order of time: the n-th end frees the slot of the n-th call after those that began at once.
fn slot_to_call(calls: &[Instant], parallelism: usize) -> Vec<Duration> {
    let next = calls.iter().skip(parallelism);
    calls
        .iter()
        .zip(next)
        .map(|(call, next)| next.saturating_duration_since(*call + PULL))
        .collect()
}
