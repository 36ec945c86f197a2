//! Jobs with priorities: the higher one goes first where pulls are limited, and the lower one ends too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use jiff::Timestamp;
use larder_api::ImagePullJobStatus;
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_for, wait_until};
use serde_json::{Value, json};

/// Of one image; at [`FAST`] a pull takes at least two seconds, so that the order of pulls shows in times of whole seconds.
const BYTES: usize = 2 * 1024 * 1024;
const FAST: u64 = 1024 * 1024;

/// Slow enough for whatever has to be done while one pull runs.
const SLOW: u64 = 4 * 1024;

/// Images behind a slow line.
async fn offer(registry: &Registry, line: &Throttle, names: [&str; 3]) -> [String; 3] {
    line.set(Link::bytes_per_second(SLOW));
    for (seed, name) in (140..).zip(names) {
        let image = Recipe::random(seed, 1, BYTES).build();
        registry
            .push(&image, &format!("priorities/{name}"), "v1")
            .await
            .unwrap();
    }
    names.map(|name| format!("{}/priorities/{name}:v1", line.host()))
}

/// Waits until a job's status is as wanted.
async fn says(cluster: &Cluster, job: &str, what: &str, is_so: impl Fn(&ImagePullJobStatus) -> bool) {
    let waited = wait_for(SOON, format!("{job} to be {what}"), async || {
        let status = cluster.status(job).await;
        if is_so(&status) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

fn is_capped(status: &ImagePullJobStatus) -> bool {
    let message = status.message.as_deref().unwrap_or_default();
    message.contains("--max-active-pulls")
}

fn ended(status: &ImagePullJobStatus) -> Timestamp {
    status.completion_time.as_ref().unwrap().0
}

#[tokio::test]
async fn a_higher_priority_that_comes_later_ends_first_under_the_fleet_limit() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let [low, high, listed] = offer(&registry, &line, ["low", "high", "listed"]).await;
    let setup = Setup {
        controller: vec!["--max-active-pulls=1".into()],
        ..Setup::nodes(3)
    };
    let cluster = Cluster::start_with(setup).await;

    cluster.submit("low", &low, &json!({ "parallelism": 3 })).await;
    says(&cluster, "low", "at work", |status| {
        status.active == 1 && is_capped(status)
    })
    .await;
    let fields = json!({ "parallelism": 3, "priority": 100 });
    cluster.submit("high", &high, &fields).await;
    says(&cluster, "high", "waiting", is_capped).await;
    assert_eq!(cluster.status("low").await.active, 1, "what runs is not stopped");
    let spec = json!({"images": [listed], "priority": -5, "completionPolicy": {"type": "Always"}});
    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
            "metadata": {"name": "list", "namespace": "default"}, "spec": spec,
        }))
        .await;
    wait_until(SOON, "the list to pass on its priority", async || {
        let output = "jsonpath={.items[*].spec.priority}";
        let priorities = cluster.kubectl(&["get", "imagepulljobs", "-o", output]).await.unwrap();
        priorities.split(' ').any(|priority| priority == "-5")
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let wide = cluster
        .kubectl(&["get", "imagepulljob/high", "-o", "wide"])
        .await
        .unwrap();
    assert!(wide.contains("PRIORITY") && wide.contains("100"), "{wide}");

    line.set(Link::bytes_per_second(FAST));
    let (high, low) = (cluster.finished("high").await, cluster.finished("low").await);
    assert_eq!((high.succeeded, low.succeeded), (3, 3));
    // Two nodes were left to the lower one when the higher one had ended.
    assert!(ended(&high) < ended(&low), "{high:?}\n{low:?}");
    let waited = wait_for(SOON, "the list to end", async || {
        let output = "jsonpath={.status.succeeded}";
        let done = cluster
            .kubectl(&["get", "imagelistpulljob/list", "-o", output])
            .await
            .unwrap();
        if done == "1" { Ok(()) } else { Err(done) }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

#[tokio::test]
async fn a_node_pulls_the_image_with_the_higher_priority_first() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let [first, low, high] = offer(&registry, &line, ["first", "low", "high"]).await;
    let setup = Setup {
        agent: vec!["--max-concurrent-pulls=1".into()],
        ..Setup::nodes(1)
    };
    let cluster = Cluster::start_with(setup).await;
    cluster
        .kubectl(&["label", "node", "node-0", "node-role.kubernetes.io/edge="])
        .await
        .unwrap();

    cluster.submit("first", &first, &json!({})).await;
    wait_until(SOON, "bytes on the line", async || 0 < line.bytes())
        .await
        .unwrap();
    cluster.submit("low", &low, &json!({})).await;
    says(&cluster, "low", "ordered", |status| status.active == 1).await;
    let template = json!({"images": [high], "nodeNames": ["node-0"], "checkItems": [], "priority": 7});
    cluster.prepull("high", template).await;
    let waiting = |object: &Value| object["status"]["waiting"] == 2;
    wait_until(SOON, "both to wait on the node", async || {
        waiting(&serde_json::to_value(cluster.node_image("node-0").await).unwrap())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let object = cluster.node_image("node-0").await;
    let priorities: Vec<i32> = object
        .spec
        .images
        .values()
        .map(|image| image.tags[0].priority)
        .collect();
    assert_eq!(priorities, [0, 7, 0], "by name: first, high, low");

    line.set(Link::bytes_per_second(FAST));
    cluster.finished("low").await;
    let status = cluster.node_image("node-0").await.status.unwrap();
    let done = |image: &str| {
        let (name, _) = image.rsplit_once(':').unwrap();
        let result = &status.image_statuses[name].tags[0];
        result.completion_time.as_ref().unwrap().0
    };
    assert!(done(&first) < done(&high) && done(&high) < done(&low), "{status:?}");
    assert_eq!(cluster.finished("first").await.succeeded, 1);
}
