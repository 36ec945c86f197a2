//! Jobs that are deleted and created again under the same name, while other jobs run: each has results of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Api, DeleteParams, PostParams};
use larder_api::{ImagePullJob, ImagePullJobStatus};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_for};
use serde_json::json;

const NODES: usize = 2;

/// How often the job is created again.
const ROUNDS: usize = 20;

/// Other jobs at a time.
const LANES: usize = 3;

/// One job ends within this, also on a slow machine.
const ENDS: Duration = Duration::from_mins(2);

/// Jobs in a cluster.
struct Jobs<'a> {
    cluster: &'a Cluster,
    api: Api<ImagePullJob>,
}

impl Jobs<'_> {
    /// Creates a job as soon as there is none of its name, and gives back its uid.
    async fn create(&self, name: &str, image: &str) -> String {
        let job: ImagePullJob = serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": { "name": name },
            "spec": { "image": image, "parallelism": NODES, "imagePullPolicy": "IfNotPresent" },
        }))
        .unwrap();
        let created = wait_for(SOON, format!("{name} to be created"), async || {
            let created = self.api.create(&PostParams::default(), &job).await;
            created.map_err(|error| error.to_string())
        });
        created.await.unwrap().metadata.uid.unwrap()
    }

    async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until this very job has ended, and checks that no node is missing in its status.
    async fn has_every_result(&self, name: &str, uid: &str) {
        let ended = wait_for(ENDS, format!("{name} to end"), async || {
            let job = self.api.get(name).await.map_err(|error| error.to_string())?;
            assert_eq!(job.metadata.uid.as_deref(), Some(uid));
            let status = job.status.unwrap_or_default();
            if status.completion_time.is_some() {
                Ok(status)
            } else {
                Err(format!("{status:?}"))
            }
        });
        let status = ended
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.cluster.logs()));
        let ImagePullJobStatus {
            desired,
            succeeded,
            failed,
            ..
        } = status;
        let nodes = i32::try_from(NODES).unwrap();
        assert_eq!((desired, succeeded, failed), (nodes, nodes, 0), "{name}: {status:?}");
    }
}

/// Each round creates the job twice: the first is deleted at once, so that writes and their responses are still on their way
/// when the second one of that name is there.
#[tokio::test]
async fn a_job_that_is_created_again_under_its_name_loses_no_result() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(51, 1, 64 * 1024).build();
    let mut references = Vec::new();
    for number in 0..=LANES {
        let pushed = registry.push(&image, &format!("again/app-{number}"), "v1").await;
        references.push(pushed.unwrap().reference);
    }
    let cluster = Cluster::start(NODES).await;
    let jobs = Jobs {
        cluster: &cluster,
        api: Api::namespaced(cluster.client(), "default"),
    };
    let done = AtomicBool::new(false);
    let rounds = async {
        for _ in 0..ROUNDS {
            jobs.create("again", &references[0]).await;
            jobs.delete("again").await;
            let uid = jobs.create("again", &references[0]).await;
            jobs.has_every_result("again", &uid).await;
            jobs.delete("again").await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let load = (1..=LANES).map(async |lane| {
        for round in 0..10 * ROUNDS {
            let name = format!("load-{lane}-{round}");
            let uid = jobs.create(&name, &references[lane]).await;
            jobs.has_every_result(&name, &uid).await;
            jobs.delete(&name).await;
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    futures::join!(rounds, futures::future::join_all(load));
}
