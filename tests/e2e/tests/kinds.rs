//! One job of each kind, on the version of Kubernetes that the tests run against.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kube::api::Api;
use larder_api::ImageListPullJob;
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_for};
use serde_json::json;

#[tokio::test]
async fn a_job_of_each_kind_completes() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let mut images = Vec::new();
    for number in 0..4 {
        let recipe = Recipe::random(110 + number, 1, 16 * 1024);
        let repository = format!("kinds/{number}");
        registry.push(&recipe.build(), &repository, "v1").await.unwrap();
        images.push(format!("{}/{repository}:v1", registry.host()));
    }
    let cluster = Cluster::start(2).await;
    cluster
        .kubectl(&["label", "node", "node-1", "node-role.kubernetes.io/edge="])
        .await
        .unwrap();

    cluster.submit("pull", &images[0], &json!({})).await;
    let status = cluster.finished("pull").await;
    assert_eq!((status.desired, status.succeeded), (2, 2), "{status:?}");

    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "ImageListPullJob",
            "metadata": { "name": "list", "namespace": "default" },
            "spec": { "images": images[1..3], "completionPolicy": { "type": "Always" } },
        }))
        .await;
    let lists = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    wait_for(SOON, "the list to be done", async || {
        let status = lists.get("list").await.unwrap().status.unwrap_or_default();
        if status.succeeded == 2 {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));

    let template = json!({"images": [images[3]], "nodeNames": ["node-1"], "checkItems": []});
    cluster
        .prepull_spec("prepull", json!({"imagePrePullTemplate": template}))
        .await;
    let status = cluster.prepull_finished("prepull").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"), "{status:?}");
}
