//! ImagePrePullJobs, as a person writes them and waits for them.

use std::time::Duration;

use kube::api::Api;
use larder_api::image_pre_pull_job::NodeTaskStatus;
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus};
use larder_testkit::{Auth, wait_for};
use serde_json::{Value, json};

use crate::Cluster;

/// An order that a node has not seen in time is handed out again after a minute.
const JOB: Duration = Duration::from_mins(3);

impl Cluster {
    /// An ImagePrePullJob with this template.
    pub async fn prepull(&self, name: &str, template: Value) {
        self.prepull_spec(name, json!({ "imagePrePullTemplate": template }))
            .await;
    }

    /// An ImagePrePullJob with this spec.
    pub async fn prepull_spec(&self, name: &str, spec: Value) {
        self.apply(&json!({
            "apiVersion": "operations.kubeedge.io/v1alpha2",
            "kind": "ImagePrePullJob",
            "metadata": { "name": name },
            "spec": spec,
        }))
        .await;
    }

    /// `kubectl apply -f` of a file with this text.
    pub async fn apply_yaml(&self, text: &str) {
        let name = larder_testkit::unique_name("apply");
        let file = self.scratch.write(&format!("{name}.yaml"), text).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.unwrap();
    }

    /// The status of a job.
    pub async fn prepull_status(&self, name: &str) -> ImagePrePullJobStatus {
        self.prepulls().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until a job's status is as wanted.
    pub async fn prepull_until(
        &self,
        name: &str,
        what: &str,
        good: impl Fn(&ImagePrePullJobStatus) -> bool,
    ) -> ImagePrePullJobStatus {
        let waited = wait_for(JOB, format!("job {name}: {what}"), async || {
            let status = self.prepull_status(name).await;
            if good(&status) {
                Ok(status)
            } else {
                Err(serde_json::to_string(&status).unwrap_or_default())
            }
        });
        waited.await.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// Waits until a job has ended, either way, and gives back its status.
    pub async fn prepull_finished(&self, name: &str) -> ImagePrePullJobStatus {
        self.prepull_until(name, "to end", |status| {
            matches!(status.phase.as_deref(), Some("Completed" | "Failure"))
        })
        .await
    }

    /// `kubectl create secret docker-registry` in `default`, as the guide does it.
    pub async fn create_registry_secret(&self, name: &str, registry: &str, auth: &Auth) {
        let Auth::Basic { user, password } = auth else {
            return;
        };
        self.kubectl(&[
            "create",
            "secret",
            "docker-registry",
            name,
            &format!("--docker-server={registry}"),
            &format!("--docker-username={user}"),
            &format!("--docker-password={password}"),
            "--docker-email=tiger@acme.example",
        ])
        .await
        .unwrap();
    }

    pub(crate) fn prepulls(&self) -> Api<ImagePrePullJob> {
        Api::all(self.client())
    }
}

/// Name and phase of each node of a job.
pub fn phases(status: &ImagePrePullJobStatus) -> Vec<(&str, &str)> {
    status
        .node_status
        .iter()
        .map(|node| (text(node.node_name.as_ref()), text(node.phase.as_ref())))
        .collect()
}

/// One node of a job.
pub fn task<'a>(status: &'a ImagePrePullJobStatus, node: &str) -> &'a NodeTaskStatus {
    let found = status
        .node_status
        .iter()
        .find(|task| task.node_name.as_deref() == Some(node));
    found.unwrap_or_else(|| panic!("no node {node} in {status:?}"))
}

/// A text that may be missing.
pub fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}
