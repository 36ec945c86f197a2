//! etcd is put back to an older copy at a random moment of running jobs, as an administrator does after a loss of data.
//!
//! Each round has two jobs. One is submitted before the copy is made and is there afterwards, at an earlier point of its life; the
//! other is submitted after it, is gone, and is submitted again. Nothing is restarted but etcd and kube-apiserver. Both jobs
//! end well within their bound, and their images are on every node.

use std::time::Duration;

use larder_testkit::image::Recipe;
use larder_testkit::wait_until;
use rand::Rng as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{LAYER, LAYERS, NODES, PULL_MILLIS, Storm};
use crate::SOON;

/// A round that went well.
#[derive(Debug, Clone, Copy)]
pub struct Restore {
    /// Nodes on which the first job was done when the copy was made.
    pub done_in_copy: usize,
    /// Nodes on which it was done when the copy was put back.
    pub done_before: usize,
    /// From then until both jobs had ended.
    pub took: Duration,
}

/// A job and its image.
struct Submitted {
    job: String,
    /// The image's name.
    name: String,
    digest: String,
    parallelism: usize,
}

impl Storm {
    /// Runs two jobs and puts etcd back in the middle; panics if anything is not as it must be.
    pub async fn restore_round(&mut self) -> Restore {
        let number = self.rounds;
        self.rounds += 1;
        let kept = self.prepare(&format!("kept-{number}")).await;
        let lost = self.prepare(&format!("lost-{number}")).await;
        self.submit_prepared(&kept).await;
        self.sleep_a_while().await;
        let done_in_copy = self.done(&kept.name).await.len();
        let copy = self.cluster.plane.back_up().await.unwrap();
        self.submit_prepared(&lost).await;
        self.sleep_a_while().await;
        let done_before = self.done(&kept.name).await.len();
        self.cluster.plane.restore(&copy).await.unwrap();
        let restored = Instant::now();

        wait_until(SOON, "the second job to be unknown", async || {
            let found = self.cluster.kubectl(&["get", "imagepulljob", &lost.job]).await;
            found.is_err_and(|error| error.contains("NotFound"))
        })
        .await
        .unwrap();
        self.submit_prepared(&lost).await;
        for submitted in [&kept, &lost] {
            self.assert_ended_well(number, submitted).await;
        }
        Restore {
            done_in_copy,
            done_before,
            took: restored.elapsed(),
        }
    }

    /// Pushes an image for a job.
    async fn prepare(&mut self, job: &str) -> Submitted {
        let recipe = Recipe::random(self.random.random(), LAYERS, LAYER);
        let repository = format!("storm/{job}");
        let pushed = self.registry.push(&recipe.build(), &repository, "v1").await.unwrap();
        Submitted {
            job: job.to_owned(),
            name: format!("{}/{repository}", self.line.host()),
            digest: pushed.digest,
            parallelism: self.random.random_range(1..=NODES),
        }
    }

    async fn submit_prepared(&self, submitted: &Submitted) {
        let fields = json!({ "parallelism": submitted.parallelism, "pullSecrets": ["pantry"] });
        let reference = format!("{}:v1", submitted.name);
        self.cluster.submit(&submitted.job, &reference, &fields).await;
    }

    async fn sleep_a_while(&mut self) {
        let longest = NODES as u64 * PULL_MILLIS;
        sleep(Duration::from_millis(self.random.random_range(0..longest))).await;
    }

    async fn assert_ended_well(&self, number: u64, submitted: &Submitted) {
        let status = self.cluster.finished(&submitted.job).await;
        let all = i32::try_from(NODES).unwrap();
        assert_eq!(
            (status.desired, status.succeeded, status.failed),
            (all, all, 0),
            "round {number}, {}: {status:?}\n{}",
            submitted.job,
            self.cluster.logs()
        );
        let reference = format!("{}:v1", submitted.name);
        for node in &self.cluster.nodes {
            let there = node.has_image(&reference, &submitted.digest).await;
            assert!(there, "round {number}: {} lacks {reference}", node.name);
        }
    }
}
