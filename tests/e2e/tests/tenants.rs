//! Tenants of one cluster: what one of them does with its jobs keeps no other one from its images.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use kube::api::Api;
use larder_api::{ImagePullJob, ImagePullJobStatus};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_for};
use serde_json::{Map, Value, json};

const KIB: usize = 1024;

/// Five jobs of one namespace with 60 KB of annotations each: three fit, two wait and say why. A job of another namespace
/// is done as if they were not there.
#[tokio::test]
async fn large_annotations_of_one_tenant_do_not_fill_the_nodes() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(41, 1, 64 * KIB).build();
    let cluster = Cluster::start(2).await;
    for namespace in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", namespace]).await.unwrap();
    }
    let text = "x".repeat(4 * KIB);
    let annotations: Map<String, Value> = (0..15).map(|number| (format!("a-{number}"), json!(text))).collect();
    let submit = async |namespace: &str, name: &str, sandbox: Value| {
        let pushed = registry
            .push(&image, &format!("{namespace}/{name}"), "v1")
            .await
            .unwrap();
        let spec = json!({ "image": pushed.reference, "parallelism": 10, "sandboxConfig": sandbox,
                           "completionPolicy": { "type": "Always" } });
        let object = json!({ "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                             "metadata": { "name": name, "namespace": namespace }, "spec": spec });
        cluster.apply(&object).await;
    };
    for number in 0..5 {
        submit(
            "team-a",
            &format!("big-{number}"),
            json!({ "annotations": annotations }),
        )
        .await;
    }

    let waited = wait_for(SOON, "three jobs of team-a to end and two to wait", async || {
        let statuses = statuses(&cluster, "team-a").await;
        let full = |status: &&ImagePullJobStatus| status.progress.reasons.get("NodeFull") == Some(&2);
        let done = statuses.iter().filter(|status| status.succeeded == 2).count();
        let waiting: Vec<String> = statuses
            .iter()
            .filter(full)
            .filter_map(|status| status.message.clone())
            .collect();
        if (done, waiting.len()) == (3, 2) {
            Ok(waiting)
        } else {
            Err(format!("{statuses:?}"))
        }
    });
    let waiting = waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    for message in waiting {
        assert!(message.contains("most by the jobs of namespace team-a"), "{message}");
    }

    submit("team-b", "app", Value::Null).await;
    let waited = wait_for(SOON, "the job of team-b to end", async || {
        let statuses = statuses(&cluster, "team-b").await;
        let ended = statuses.iter().any(|status| status.completion_time.is_some());
        if ended {
            Ok(statuses)
        } else {
            Err(format!("{statuses:?}"))
        }
    });
    let statuses = waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let [status] = &*statuses else {
        panic!("{statuses:?}");
    };
    assert_eq!((status.desired, status.succeeded, status.failed), (2, 2, 0));
    for node in &cluster.nodes {
        let size = serde_json::to_string(&cluster.node_image(&node.name).await)
            .unwrap()
            .len();
        assert!(size < 256 * KIB, "{size} bytes on {}", node.name);
    }
}

async fn statuses(cluster: &Cluster, namespace: &str) -> Vec<ImagePullJobStatus> {
    let jobs = Api::<ImagePullJob>::namespaced(cluster.client(), namespace);
    let jobs = jobs.list(&kube::api::ListParams::default()).await.unwrap();
    jobs.into_iter().map(|job| job.status.unwrap_or_default()).collect()
}
