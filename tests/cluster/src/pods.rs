//! Pods, and what the kubelet says of them.

use larder_testkit::wait_for;
use serde_json::{Value, json};

use crate::{Cluster, SOON};

impl Cluster {
    /// A pod in `default` of this image on this node, with these fields in its spec.
    pub async fn run_pod(&self, name: &str, node: &str, image: &str, pull_policy: &str, fields: Value) {
        let mut spec = json!({
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": image, "imagePullPolicy": pull_policy }],
        });
        if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
            spec.extend(fields);
        }
        self.apply(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": spec,
        }))
        .await;
    }

    /// Waits until the kubelet has decided about a pod: `Running`, or the reason why its container waits.
    pub async fn pod_verdict(&self, name: &str) -> String {
        let pod = format!("pod/{name}");
        let waited = wait_for(SOON, format!("the kubelet to decide about pod {name}"), async || {
            let phase = self.field(&pod, ".status.phase").await;
            if phase == "Running" {
                return Ok(phase);
            }
            let reason = self
                .field(&pod, ".status.containerStatuses[0].state.waiting.reason")
                .await;
            // A pull that failed shows as one or the other.
            match reason.as_str() {
                "ImagePullBackOff" => Ok("ErrImagePull".to_owned()),
                other if other.starts_with("Err") => Ok(reason),
                _ => Err(format!("{phase} {reason}")),
            }
        })
        .await;
        match waited {
            Ok(verdict) => verdict,
            Err(error) => panic!("{error}\n{}", self.logs().await),
        }
    }

    /// The pods of a part of Larder that are there: names, and the nodes they are on.
    pub async fn parts(&self, component: &str) -> Vec<(String, String)> {
        let selector = format!("app.kubernetes.io/component={component}");
        let columns = "-o=custom-columns=NAME:.metadata.name,NODE:.spec.nodeName";
        let arguments = [
            "get",
            "pods",
            "-n",
            crate::NAMESPACE,
            "-l",
            &selector,
            "--no-headers",
            columns,
        ];
        let listed = self.kubectl(&arguments).await.unwrap();
        let pairs = listed.lines().filter_map(|line| line.split_once(char::is_whitespace));
        pairs
            .map(|(name, node)| (name.to_owned(), node.trim().to_owned()))
            .collect()
    }
}
