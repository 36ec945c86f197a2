//! Jobs, as a person writes them and waits for them.

use std::time::Duration;

use kube::api::Api;
use larder_api::{ImagePullJob, ImagePullJobStatus, NodeImage};
use larder_testkit::wait_for;
use serde_json::{Value, json};

use crate::Cluster;

/// Every job of the tests ends within this, whatever is killed meanwhile: the longest wait is for the lease of a
/// controller that is gone.
const JOB: Duration = Duration::from_mins(1);

impl Cluster {
    /// An ImagePullJob in `default`, with these fields beside the image.
    pub async fn submit(&self, name: &str, image: &str, fields: &Value) {
        let mut spec = json!({ "image": image, "completionPolicy": { "type": "Always" }, "parallelism": 10 });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().cloned().unwrap_or_default());
        self.apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImagePullJob",
            "metadata": { "name": name, "namespace": "default" },
            "spec": spec,
        }))
        .await;
    }

    /// The status of a job.
    pub async fn status(&self, name: &str) -> ImagePullJobStatus {
        let jobs = Api::<ImagePullJob>::namespaced(self.client(), "default");
        jobs.get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until a job has ended, either way, and gives back its status.
    pub async fn finished(&self, name: &str) -> ImagePullJobStatus {
        let waited = wait_for(JOB, format!("job {name} to end"), async || {
            let status = self.status(name).await;
            if status.completion_time.is_some() {
                Ok(status)
            } else {
                Err(format!("{status:?}"))
            }
        });
        waited.await.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// The NodeImage of a node.
    pub async fn node_image(&self, node: &str) -> NodeImage {
        self.find_node_image(node).await.unwrap()
    }

    /// The same, if there is one.
    pub async fn find_node_image(&self, node: &str) -> Option<NodeImage> {
        Api::<NodeImage>::all(self.client()).get_opt(node).await.unwrap()
    }
}
