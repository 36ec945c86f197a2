//! What an operator does to the controller: the feature gate, the pause, the limit of the whole fleet by its flags; and
//! the CRDs of somebody else's chart under its feet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_for, wait_until};
use serde_json::{Value, json};
use tokio::time::Instant;

const OFF: &str = "feature gate ImagePullJobGate is off";

/// Without other replicas it need not wait for a lease.
const ALONE: &str = "--leader-elect=false";

#[tokio::test]
async fn a_controller_with_its_gate_off_then_paused_then_limited() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    // Half a second for an image, so that pulls overlap if they may.
    line.set(Link::bytes_per_second(512 * 1024));
    let mut images = Vec::new();
    for number in 0..3 {
        let recipe = Recipe::random(70 + number, 1, 256 * 1024);
        let repository = format!("flags/{number}");
        registry.push(&recipe.build(), &repository, "v1").await.unwrap();
        images.push(format!("{}/{repository}:v1", line.host()));
    }
    let setup = Setup {
        controller: vec!["--feature-gates=ImagePullJobGate=false".into(), ALONE.into()],
        ..Setup::nodes(3)
    };
    let mut cluster = Cluster::start_with(setup).await;

    cluster.submit("job-0", &images[0], &json!({})).await;
    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImageListPullJob",
            "metadata": { "name": "list", "namespace": "default" },
            "spec": { "images": images, "parallelism": 10 },
        }))
        .await;
    told_once(&cluster).await;

    cluster.restart_controller(&["--pause", ALONE]).await;
    wait_for(SOON, "the job to say that the fleet is paused", async || {
        let message = cluster.status("job-0").await.message.unwrap_or_default();
        if message.contains("paused for the whole fleet") {
            Ok(())
        } else {
            Err(message)
        }
    })
    .await
    .unwrap();
    for node in &cluster.nodes {
        assert!(cluster.node_image(&node.name).await.spec.images.is_empty());
    }

    // The job and the children of the list: four times three orders, two of them at a time.
    let orders = cluster.watch_all_orders();
    cluster.restart_controller(&["--max-active-pulls=2", ALONE]).await;
    let status = cluster.finished("job-0").await;
    assert_eq!((status.desired, status.succeeded), (3, 3));
    let lists = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    wait_until(SOON, "the list to end", async || {
        let status = lists.get("list").await.unwrap().status.unwrap_or_default();
        status.completion_time.is_some() && status.succeeded == 3
    })
    .await
    .unwrap();
    let seen = orders.end(9).await;
    assert_eq!(seen.most, 2, "orders without a result at one moment, over all jobs");
}

/// The schema of other software would drop fields that a work order needs: the controller says so and hands out nothing
/// until it is put right.
#[tokio::test]
async fn a_schema_that_lacks_our_fields_stops_the_hand_out() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = registry
        .push(&Recipe::random(75, 1, 1024).build(), "flags/schema", "v1")
        .await
        .unwrap();
    let cluster = Cluster::start(1).await;
    let began = Instant::now();
    cluster.submit("before", &image.reference, &json!({})).await;
    cluster.finished("before").await;
    let took = began.elapsed();
    cluster.kubectl(&["delete", "imagepulljob", "before"]).await.unwrap();
    wait_until(SOON, "the first job's entry to leave", async || {
        cluster.node_image("node-0").await.spec.images.is_empty()
    })
    .await
    .unwrap();
    let crd = "customresourcedefinition/nodeimages.apps.kruise.io";
    let claims = "schema/openAPIV3Schema/properties/spec/properties/images/additionalProperties\
                  /properties/tags/items/properties/claims";
    let versions = [0, 1].map(|version| format!("/spec/versions/{version}/{claims}"));
    let patch = async |operations: Value| {
        let patch = operations.to_string();
        let done = cluster.kubectl(&["patch", crd, "--type=json", "-p", &patch]).await;
        done.unwrap();
    };
    let known = cluster.kubectl(&["get", crd, "-o", "json"]).await.unwrap();
    let known: Value = serde_json::from_str(&known).unwrap();
    patch(json!(
        versions.each_ref().map(|path| json!({ "op": "remove", "path": path }))
    ))
    .await;
    wait_for(
        SOON,
        "the controller to be unready and to say why",
        async || match cluster.controller_is_ready().await {
            Err(said) if said.contains("nodeimages.apps.kruise.io") && said.contains("claims") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .unwrap();
    cluster.submit("waits", &image.reference, &json!({})).await;

    let put = versions.each_ref().map(|path| {
        let value = known.pointer(path).unwrap();
        json!({ "op": "add", "path": path, "value": value })
    });
    // For as long as several such jobs take, nobody writes an order or a word about the job.
    let jobs = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    let until = Instant::now() + (took * 4).clamp(Duration::from_secs(5), Duration::from_secs(30));
    while Instant::now() < until {
        let node = cluster.node_image("node-0").await;
        assert!(
            node.spec.images.is_empty(),
            "an order under a schema that cannot hold it"
        );
        assert_eq!(jobs.get("waits").await.unwrap().status, None, "the job was taken up");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.controller_is_ready().await.unwrap_err();
    patch(json!(put)).await;
    let status = cluster.finished("waits").await;
    assert_eq!((status.desired, status.succeeded), (1, 1));
    cluster.controller_is_ready().await.unwrap();
}

/// Both jobs are told, each by a single write; nothing else happens to them, and NodeImages are kept all the same.
async fn told_once(cluster: &Cluster) {
    let jobs = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    let lists = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    let told = wait_for(SOON, "both jobs to be told", async || {
        let (job, list) = (jobs.get("job-0").await.unwrap(), lists.get("list").await.unwrap());
        let said = cluster
            .kubectl(&["get", "imagelistpulljob", "list", "-o", "yaml"])
            .await?;
        let message = job.status.as_ref().and_then(|status| status.message.clone());
        if message.as_deref() == Some(OFF) && said.contains(OFF) {
            Ok((job.resource_version(), list.resource_version()))
        } else {
            Err(format!("{message:?} {said}"))
        }
    })
    .await
    .unwrap();
    // Whatever the controller still had to write, it writes before it sees to a node that comes now.
    cluster.create_node("later").await;
    wait_until(SOON, "the NodeImage of a new Node", async || {
        cluster.kubectl(&["get", "nodeimage", "later"]).await.is_ok()
    })
    .await
    .unwrap();
    cluster.kubectl(&["delete", "node", "later"]).await.unwrap();
    wait_until(SOON, "the NodeImage to go", async || {
        cluster.kubectl(&["get", "nodeimage", "later"]).await.is_err()
    })
    .await
    .unwrap();
    let (job, list) = (jobs.get("job-0").await.unwrap(), lists.get("list").await.unwrap());
    assert_eq!((job.resource_version(), list.resource_version()), told, "written again");
    let writers = |fields: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry]| {
        let status = fields
            .iter()
            .filter(|entry| entry.subresource.as_deref() == Some("status"));
        status.count()
    };
    assert_eq!((writers(job.managed_fields()), writers(list.managed_fields())), (1, 1));
    let children = jobs.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(children.len(), 1, "a list got children while the gate was off");
}
