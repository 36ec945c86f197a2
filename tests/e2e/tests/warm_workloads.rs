//! The label `larder.dev/warm: "true"`: the images of a workload or namespace are kept on the nodes where its pods may run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use kube::api::Api;
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_until};
use serde_json::{Value, json};

/// A sample image, as nodes name it, and its digest.
async fn offer(registry: &Registry, repository: &str, seed: u64) -> (String, String) {
    let image = Recipe::random(seed, 1, 16 * 1024).build();
    let pushed = registry.push(&image, repository, "v1").await.unwrap();
    (pushed.reference, pushed.digest)
}

/// A labelled Deployment whose pods run on node-0 alone.
fn deployment(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"larder.dev/warm": "true"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": {"e2e/number": "0"}, "containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

async fn node_gets(cluster: &Cluster, node: usize, (image, digest): &(String, String)) {
    let node = &cluster.nodes[node];
    let waited = wait_until(SOON, format!("{} to get {image}", node.name), async || {
        node.has_image(image, digest).await
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

async fn job_leaves(cluster: &Cluster, namespace: &str, name: &str) {
    let jobs = Api::<ImageListPullJob>::namespaced(cluster.client(), namespace);
    let waited = wait_until(SOON, format!("{name} to leave"), async || {
        jobs.get_opt(name).await.unwrap().is_none()
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

const ON: &str = "--warm-workloads";

#[tokio::test]
async fn labelled_workloads_and_namespaces_have_their_images_on_their_nodes() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let first = offer(&registry, "warm/first", 120).await;
    let second = offer(&registry, "warm/second", 121).await;
    let third = offer(&registry, "warm/third", 122).await;
    let report = offer(&registry, "warm/report", 123).await;
    let mut cluster = Cluster::start_with(Setup {
        objects: larder_access::warm_workloads(&larder_access::Settings::default()),
        controller: vec![ON.to_owned()],
        ..Setup::nodes(2)
    })
    .await;
    let jobs = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");

    cluster.apply(&deployment("web", &first.0)).await;
    node_gets(&cluster, 0, &first).await;
    let job = jobs.get("warm-deployment-web").await.unwrap();
    let owner = &job.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Deployment", "web"));
    assert!(
        !cluster.nodes[1].has_image(&first.0, &first.1).await,
        "pods do not run there"
    );

    // A new template, and one that appears while no controller runs.
    cluster.apply(&deployment("web", &second.0)).await;
    node_gets(&cluster, 0, &second).await;
    cluster.controller.kill().unwrap();
    cluster.apply(&deployment("web", &third.0)).await;
    cluster.restart_controller(&[ON]).await;
    node_gets(&cluster, 0, &third).await;
    let same = jobs.get("warm-deployment-web").await.unwrap();
    assert_eq!(same.metadata.uid, job.metadata.uid, "it follows, and is not made anew");
    assert_eq!(same.spec.images, std::slice::from_ref(&third.0));

    // etcd is restored from a copy. Without a new list the watches would go on at a version that is yet to come.
    let copy = cluster.plane.back_up().await.unwrap();
    cluster.apply(&deployment("web", &first.0)).await;
    cluster.apply(&deployment("lost", &second.0)).await;
    let waited = wait_until(SOON, "the job of the other Deployment", async || {
        jobs.get_opt("warm-deployment-lost").await.unwrap().is_some()
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    cluster.plane.restore(&copy).await.unwrap();
    let after = offer(&registry, "warm/after", 124).await;
    cluster.apply(&deployment("after", &after.0)).await;
    node_gets(&cluster, 0, &after).await;
    cluster.kubectl(&["delete", "deployment", "after"]).await.unwrap();

    // The job goes with the label, comes with it, and goes with the Deployment.
    let label = |change: &'static str| ["label", "deployment", "web", change];
    cluster.kubectl(&label("larder.dev/warm-")).await.unwrap();
    job_leaves(&cluster, "default", "warm-deployment-web").await;
    cluster.kubectl(&label("larder.dev/warm=true")).await.unwrap();
    let waited = wait_until(SOON, "the job to be there again", async || {
        jobs.get_opt("warm-deployment-web").await.unwrap().is_some()
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    cluster.kubectl(&["delete", "deployment", "web"]).await.unwrap();
    job_leaves(&cluster, "default", "warm-deployment-web").await;
    let children = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    let waited = wait_until(SOON, "its children to leave", async || {
        children
            .list(&kube::api::ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));

    // A namespace, with a workload that has no label.
    cluster.kubectl(&["create", "namespace", "shop"]).await.unwrap();
    cluster
        .kubectl(&["label", "namespace", "shop", "larder.dev/warm=true"])
        .await
        .unwrap();
    cluster
        .apply(&json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report", "namespace": "shop"},
            "spec": {
                "schedule": "0 3 29 2 *",
                "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "nodeSelector": {"e2e/number": "1"},
                    "containers": [{"name": "c", "image": report.0}],
                }}}},
            },
        }))
        .await;
    node_gets(&cluster, 1, &report).await;
    cluster
        .kubectl(&["get", "imagelistpulljob", "-n", "shop", "warm-namespace-shop"])
        .await
        .unwrap();
    cluster
        .kubectl(&["label", "namespace", "shop", "larder.dev/warm-"])
        .await
        .unwrap();
    job_leaves(&cluster, "shop", "warm-namespace-shop").await;

    // Without the flag the label means nothing. A job that ends shows that the controller works.
    cluster.restart_controller(&[]).await;
    cluster.apply(&deployment("off", &first.0)).await;
    cluster.submit("fence", &first.0, &json!({})).await;
    cluster.finished("fence").await;
    assert!(jobs.get_opt("warm-deployment-off").await.unwrap().is_none());
}
