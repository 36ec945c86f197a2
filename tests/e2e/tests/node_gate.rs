//! New nodes that wait for the images of jobs with `nodeGate`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_for, wait_until};
use serde_json::{Value, json};

const TAINT: &str = "larder.dev/warming";
const ON: &str = "--node-gate";

async fn gated(flags: &[&str]) -> Cluster {
    Cluster::start_with(Setup {
        objects: larder_access::node_gate(&larder_access::Settings::default()),
        controller: flags.iter().map(ToString::to_string).collect(),
        ..Setup::default()
    })
    .await
}

fn taints() -> Value {
    json!([
        {"key": TAINT, "effect": "NoSchedule"},
        {"key": "example.com/other", "value": "stays", "effect": "NoSchedule"},
        {"key": TAINT, "effect": "NoExecute"},
    ])
}

async fn node(cluster: &Cluster, name: &str) -> Node {
    Api::<Node>::all(cluster.client()).get(name).await.unwrap()
}

fn taints_of(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
    taints.map(|taint| taint.key.clone()).collect()
}

fn condition_of(node: &Node) -> Option<NodeCondition> {
    let mut conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions
        .find(|condition| condition.type_ == "larder.dev/ImagesReady")
        .cloned()
}

/// Waits until the condition of a node has this status and reason, and gives it back.
async fn condition(cluster: &Cluster, name: &str, status: &str, reason: &str) -> NodeCondition {
    let waited = wait_for(SOON, format!("{name} to be {status}, {reason}"), async || {
        let found = condition_of(&node(cluster, name).await);
        match found {
            Some(found) if found.status == status && found.reason.as_deref() == Some(reason) => Ok(found),
            other => Err(format!("{other:?}")),
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()))
}

/// Waits until the start-up taint of a node is gone.
async fn opens(cluster: &Cluster, name: &str) {
    let waited = wait_for(SOON, format!("{name} to be released"), async || {
        let taints = taints_of(&node(cluster, name).await);
        if taints.iter().any(|key| key == TAINT) {
            Err(format!("{taints:?}"))
        } else {
            Ok(())
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

async fn gate_by_list(cluster: &Cluster, name: &str, images: &[&str]) {
    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"images": images, "parallelism": 10, "completionPolicy": {"type": "Never"}, "nodeGate": true},
        }))
        .await;
    // What a node waits for is written as soon as the node is there, and then once a minute.
    let children = async || cluster.kubectl(&["get", "imagepulljobs", "-o", "name"]).await.unwrap();
    let waited = wait_until(SOON, format!("the jobs of {name}"), async || {
        let prefix = format!("imagepulljob.apps.kruise.io/{name}-");
        children()
            .await
            .lines()
            .filter(|line| line.starts_with(&prefix))
            .count()
            == images.len()
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

#[tokio::test]
async fn a_new_node_waits_for_its_images_whatever_happens_to_the_controller() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(64 * 1024));
    let image = Recipe::random(140, 1, 8 * 1024 * 1024).build();
    let large = registry.push(&image, "gate/large", "v1").await.unwrap();
    let reference = format!("{}/gate/large:v1", line.host());
    let small = Recipe::random(141, 1, 16 * 1024).build();
    let small = registry.push(&small, "gate/small", "v1").await.unwrap();
    let missing = format!("{}/gate/missing:v1", registry.host());
    let mut cluster = gated(&[ON]).await;

    // A node that was there before has nothing to wait for.
    cluster.create_node("old").await;
    condition(&cluster, "old", "True", "NoGatingJobs").await;

    gate_by_list(&cluster, "base", &[&reference, &small.reference]).await;
    let never = json!({"completionPolicy": {"type": "Never"}, "nodeGate": true});
    cluster.submit("missing", &missing, &never).await;
    cluster.create_tainted_node("new", &taints()).await;
    cluster.add_node("new").await;
    let waited = wait_for(SOON, "the condition to name the image", async || {
        let said = condition_of(&node(&cluster, "new").await).and_then(|condition| condition.message);
        match said {
            Some(said) if said.contains("gate/large:v1") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let told = condition(&cluster, "new", "False", "WaitingForImages").await;
    wait_until(SOON, "bytes on the line", async || 128 * 1024 < line.bytes())
        .await
        .unwrap();
    assert_eq!(taints_of(&node(&cluster, "new").await).len(), 3, "it still waits");

    // While no controller runs, the agent pulls on.
    cluster.controller.kill().unwrap();
    line.set(Link::bytes_per_second(64 * 1024 * 1024));
    let waited = wait_until(SOON, "the image to be there", async || {
        cluster.nodes[0].has_image(&reference, &large.digest).await
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    assert_eq!(
        taints_of(&node(&cluster, "new").await).len(),
        3,
        "nobody has released it"
    );
    cluster.restart_controller(&[ON]).await;
    opens(&cluster, "new").await;
    assert_eq!(taints_of(&node(&cluster, "new").await), ["example.com/other"]);
    let released = condition(&cluster, "new", "True", "ImagesFailed").await;
    let message = released.message.clone().unwrap();
    assert!(
        message.starts_with("2 of 3 gating jobs are done; ")
            && message.contains("gate/missing:v1 (default/missing): failed, NotFound"),
        "{message}"
    );
    assert!(told.last_transition_time <= released.last_transition_time);
    assert!(cluster.nodes[0].has_image(&small.reference, &small.digest).await);

    // A released node is never gated again: not by another job, and a taint that comes back is taken off.
    line.set(Link::bytes_per_second(64 * 1024));
    let other = Recipe::random(142, 1, 8 * 1024 * 1024).build();
    registry.push(&other, "gate/other", "v1").await.unwrap();
    gate_by_list(&cluster, "other", &[&format!("{}/gate/other:v1", line.host())]).await;
    let before = line.bytes();
    wait_until(SOON, "the other image to be under way", async || {
        before + 64 * 1024 < line.bytes()
    })
    .await
    .unwrap();
    assert_eq!(condition_of(&node(&cluster, "new").await), Some(released));
    let taint = format!("{TAINT}=:NoSchedule");
    cluster.kubectl(&["taint", "node", "new", &taint]).await.unwrap();
    opens(&cluster, "new").await;
    condition(&cluster, "old", "True", "NoGatingJobs").await;

    let refused = cluster
        .try_apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": "refused", "namespace": "default"},
            "spec": {"image": missing, "nodeGate": true, "completionPolicy": {"type": "Always"}},
        }))
        .await
        .unwrap_err();
    assert!(
        refused.contains("nodeGate works only with completionPolicy.type Never"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_node_without_agent_is_released_after_the_longest_wait() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(143, 1, 16 * 1024).build();
    let image = registry.push(&image, "gate/small", "v1").await.unwrap();
    let cluster = gated(&[ON, "--node-gate-max-wait=3s"]).await;
    gate_by_list(&cluster, "base", &[&image.reference]).await;

    cluster.create_tainted_node("new", &taints()).await;
    opens(&cluster, "new").await;
    let released = condition(&cluster, "new", "True", "WaitLimitReached").await;
    let message = released.message.unwrap();
    assert!(message.contains("gate/small:v1"), "{message}");
    let events = [
        "get",
        "events",
        "-A",
        "--field-selector",
        "involvedObject.kind=Node,involvedObject.name=new",
        "-o",
        "jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}",
    ];
    let waited = wait_for(SOON, "the Event on the Node", async || {
        let said = cluster.kubectl(&events).await.unwrap();
        let found = said
            .lines()
            .any(|line| line.starts_with("Warning WaitLimitReached ") && line.contains("gate/small:v1"));
        if found { Ok(()) } else { Err(said) }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let metrics = cluster.controller_metrics().await;
    let counted = r#"released_nodes_total{reason="WaitLimitReached"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn without_the_flag_no_node_is_written_and_no_right_is_there() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(144, 1, 16 * 1024).build();
    let image = registry.push(&image, "gate/small", "v1").await.unwrap();
    let mut cluster = Cluster::start_with(Setup::default()).await;
    cluster.create_tainted_node("new", &taints()).await;
    cluster.add_node("new").await;
    gate_by_list(&cluster, "base", &[&image.reference]).await;
    let waited = wait_until(SOON, "the image", async || {
        cluster.nodes[0].has_image(&image.reference, &image.digest).await
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let seen = node(&cluster, "new").await;
    assert_eq!((taints_of(&seen).len(), condition_of(&seen)), (3, None));
    let metrics = cluster.controller_metrics().await;
    assert!(
        !metrics.contains("node_status") && !metrics.contains("node_patch"),
        "{metrics}"
    );
    let account = "--as=system:serviceaccount:larder-system:larder-controller";
    for resource in ["nodes", "nodes/status"] {
        let may = cluster.kubectl(&["auth", "can-i", "patch", resource, account]).await;
        assert!(may.is_err(), "the controller may patch {resource}: {may:?}");
    }
}
