//! Edge nodes, jobs for them, and what the jobs say.

use kube::api::{Patch, PatchParams, PostParams};
use larder_api::image_pre_pull_job::NodeTaskStatus;
use larder_api::names::EDGE_NODE_LABEL;
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus};
use larder_testkit::wait_for;
use serde_json::{Value, json};

use crate::fleet::{Agent, Fleet};
use crate::stage::{SOON, Stage};

/// Edge nodes `edge-0`, `edge-1`, …, each with an agent.
pub(super) async fn edge_fleet(stage: &Stage, agents: &[Agent]) -> Fleet {
    let fleet = Fleet::new(&stage.client);
    for (number, agent) in agents.iter().enumerate() {
        fleet
            .add(&format!("edge-{number}"), *agent, json!({EDGE_NODE_LABEL: ""}))
            .await;
    }
    fleet
}

impl Stage {
    /// Creates a job with this template, beside one image.
    pub(super) async fn prepull(&self, name: &str, template: Value) -> ImagePrePullJob {
        self.prepull_with(name, template, json!({})).await
    }

    /// The same with more metadata.
    pub(super) async fn prepull_with(&self, name: &str, template: Value, metadata: Value) -> ImagePrePullJob {
        let mut whole = json!({"images": ["nginx:1"]});
        whole
            .as_object_mut()
            .unwrap()
            .extend(template.as_object().unwrap().clone());
        let mut about = json!({"name": name});
        about
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        let job = json!({
            "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
            "metadata": about, "spec": {"imagePrePullTemplate": whole},
        });
        let job: ImagePrePullJob = serde_json::from_value(job).unwrap();
        self.prepulls().create(&PostParams::default(), &job).await.unwrap()
    }

    pub(super) async fn edit_prepull(&self, name: &str, template: Value) {
        let patch = json!({"spec": {"imagePrePullTemplate": template}});
        self.prepulls()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// A node whose agent hangs says that it has an image after all.
    pub(super) async fn report_success(&self, node: &str, image: &str) {
        let object = self.node_images().get(node).await.unwrap();
        let entry = &object.spec.images[image].tags[0];
        let (tag, version) = (&entry.tag, entry.version);
        let result = json!({
            "tag": tag, "version": version, "phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z",
            "lastSucceeded": {"version": version},
        });
        let patch = json!({"status": {"imageStatuses": {image: {"tags": [result]}}}});
        self.node_images()
            .patch_status(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits until a job's status is as described, and gives it back.
    pub(super) async fn prepull_becomes(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&ImagePrePullJobStatus) -> bool,
    ) -> ImagePrePullJobStatus {
        let jobs = self.prepulls();
        wait_for(SOON, format!("{name} to be {what}"), async || {
            let job = jobs.get(name).await.map_err(|error| error.to_string())?;
            let status = job.status.unwrap_or_default();
            if is(&status) {
                Ok(status)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await
        .unwrap()
    }

    /// Waits until a job has ended, and gives its status back.
    pub(super) async fn prepull_ends(&self, name: &str) -> ImagePrePullJobStatus {
        self.prepull_becomes(name, "over", |status| {
            matches!(status.phase.as_deref(), Some("Completed" | "Failure"))
        })
        .await
    }
}

/// The condition of a type that is true, as `reason`.
pub(super) fn condition(status: &ImagePrePullJobStatus, kind: &str) -> Option<String> {
    let mut conditions = status.progress.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == kind && condition.status == "True");
    found.map(|condition| condition.reason.clone())
}

/// What the job says beside its numbers.
pub(super) fn message(status: &ImagePrePullJobStatus) -> String {
    let mut conditions = status.progress.conditions.iter();
    let progressing = conditions.find(|condition| condition.type_ == "Progressing");
    progressing
        .map(|condition| condition.message.clone())
        .unwrap_or_default()
}

/// Name and phase of each node.
pub(super) fn phases(status: &ImagePrePullJobStatus) -> Vec<(&str, &str)> {
    fn text(text: Option<&String>) -> &str {
        text.map(String::as_str).unwrap_or_default()
    }
    let phase = |node| {
        let node: &NodeTaskStatus = node;
        (text(node.node_name.as_ref()), text(node.phase.as_ref()))
    };
    status.node_status.iter().map(phase).collect()
}

/// Nodes there are, that succeeded, that failed.
pub(super) fn counts(status: &ImagePrePullJobStatus) -> (i32, i32, i32) {
    (status.desired, status.succeeded, status.failed)
}
