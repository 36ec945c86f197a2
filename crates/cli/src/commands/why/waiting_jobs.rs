//! The jobs that wait for the fleet limit: those with a higher priority go first.

use kube::Client;
use larder_controller::explain::{is_capped, is_prepull_capped};

use crate::jobs::{self, Job};

/// The priorities of the jobs of all namespaces that wait for the fleet limit.
#[derive(Debug, Default)]
pub(super) struct WaitingJobs(Vec<i32>);

impl WaitingJobs {
    /// Reads all jobs. Who may not do that is told nothing about other namespaces.
    pub(super) async fn read(client: &Client) -> Self {
        Self::of(&jobs::list(client, true).await.unwrap_or_default())
    }

    fn of(jobs: &[Job]) -> Self {
        let priority = |job: &Job| match job {
            Job::Pull(job) => is_capped(job).then_some(job.spec.template.priority),
            Job::PrePull(job) => is_prepull_capped(job).then_some(job.spec.image_pre_pull_template.priority),
            // The jobs that it made wait.
            Job::List(_) => None,
        };
        Self(jobs.iter().filter_map(priority).collect())
    }

    /// How many have a higher priority than this.
    pub(super) fn before(&self, priority: i32) -> usize {
        self.0.iter().filter(|other| priority < **other).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
    use serde_json::{Value, json};

    const LIMIT: &str = "job is running; the whole fleet has as many pulls as --max-active-pulls allows";

    fn pull(priority: i32, status: &Value) -> Job {
        let job = json!({"metadata": {"name": "a"}, "spec": {"image": "a", "priority": priority}, "status": status});
        Job::Pull(Box::new(serde_json::from_value::<ImagePullJob>(job).unwrap()))
    }

    #[test]
    fn those_with_a_higher_priority_that_wait_go_first() {
        let pre_pull = json!({
            "metadata": {"name": "b"}, "spec": {"imagePrePullTemplate": {"images": ["a"], "priority": 9}},
            "status": {"conditions": [{
                "type": "Progressing", "status": "True", "reason": "FleetLimit", "message": LIMIT,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        let list = json!({"metadata": {"name": "c"}, "spec": {"images": ["a"], "priority": 9}});
        let waiting = WaitingJobs::of(&[
            pull(0, &json!({"message": LIMIT})),
            pull(5, &json!({"message": LIMIT})),
            pull(7, &json!({"message": "job is running, progress 50.0%"})),
            pull(8, &Value::Null),
            Job::PrePull(Box::new(serde_json::from_value::<ImagePrePullJob>(pre_pull).unwrap())),
            Job::List(Box::new(serde_json::from_value::<ImageListPullJob>(list).unwrap())),
        ]);
        assert_eq!(
            [-1, 0, 5, 9].map(|priority| waiting.before(priority)),
            [3, 2, 1, 0],
            "{waiting:?}"
        );
    }
}
