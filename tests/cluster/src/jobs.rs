//! Jobs of both dialects, as a person writes them and waits for them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Cluster, SOON};

impl Cluster {
    /// An ImagePullJob in `default`, with these fields beside the image.
    pub async fn pull(&self, name: &str, image: &str, fields: Value) {
        let mut spec = json!({ "image": image, "completionPolicy": { "type": "Always" }, "parallelism": 10 });
        extend(&mut spec, fields);
        self.apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImagePullJob",
            "metadata": { "name": name, "namespace": "default" },
            "spec": spec,
        }))
        .await;
    }

    /// An ImagePrePullJob for all edge nodes, with these fields beside the images.
    pub async fn prepull(&self, name: &str, images: &[&str], fields: Value) {
        let mut template = json!({ "images": images, "labelSelector": {}, "concurrency": 2 });
        extend(&mut template, fields);
        self.apply(&json!({
            "apiVersion": "operations.kubeedge.io/v1alpha2",
            "kind": "ImagePrePullJob",
            "metadata": { "name": name },
            "spec": { "imagePrePullTemplate": template },
        }))
        .await;
    }

    /// `kubectl wait` until a job (`imagepulljob/NAME`) is Complete.
    pub async fn complete(&self, job: &str) {
        self.wait_for_condition(job, "Complete", SOON).await;
    }

    /// `kubectl wait` until an object has a condition.
    pub async fn wait_for_condition(&self, object: &str, condition: &str, within: Duration) {
        let (condition, timeout) = (
            format!("--for=condition={condition}"),
            format!("--timeout={}s", within.as_secs().min(55)),
        );
        let rounds = within.as_secs().div_ceil(55).max(1);
        let mut last = String::new();
        // One call of kubectl may take a minute at most.
        for _ in 0..rounds {
            match self.kubectl(&["wait", object, &condition, &timeout]).await {
                Ok(_) => return,
                Err(error) => last = error,
            }
        }
        let seen = self.kubectl(&["get", object, "-o", "yaml"]).await;
        panic!("{last}\n{seen:?}\n{}", self.logs().await);
    }

    /// One field of an object, by a JSON path such as `.status.phase`.
    pub async fn field(&self, object: &str, path: &str) -> String {
        let path = format!("-o=jsonpath={{{path}}}");
        self.kubectl(&["get", object, &path]).await.unwrap()
    }
}

fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}
