//! What happens on the edge: nodes that are offline or never answer, machines that reboot, a controller that is down when
//! a job is made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_api::ImagePrePullJobStatus;
use larder_e2e::kubeedge::{phases, task, text};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Pushed, Registry, Throttle, wait_until};
use serde_json::json;

const MIB: usize = 1 << 20;

async fn image(registry: &Registry, seed: u64, name: &str) -> Pushed {
    let recipe = Recipe::random(seed, 2, MIB).build();
    registry.push(&recipe, name, "v1").await.unwrap()
}

fn phase(status: &ImagePrePullJobStatus) -> &str {
    text(status.phase.as_ref())
}

#[tokio::test]
async fn offline_nodes_are_waited_for_until_the_deadline() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 121, "faults/offline").await;
    let cluster = Cluster::start_edge(&[json!({}), json!({}), json!({})]).await;
    for node in ["edge-1", "edge-2"] {
        cluster.set_ready(node, false).await;
    }
    let template = json!({
        "images": [image.reference], "labelSelector": {}, "activeDeadlineSeconds": 25, "failureTolerate": "0.5",
    });
    cluster.prepull("patient", template).await;
    let waits = |status: &ImagePrePullJobStatus| status.succeeded == 1;
    let status = cluster.prepull_until("patient", "the node that is there", waits).await;
    assert_eq!(
        phases(&status),
        [("edge-0", "Successful"), ("edge-1", "Pending"), ("edge-2", "Pending")]
    );
    assert_eq!(text(task(&status, "edge-1").reason.as_ref()), "the node is not ready");
    cluster.set_ready("edge-1", true).await;
    let status = cluster.prepull_finished("patient").await;
    assert_eq!(phase(&status), "Completed", "{status:?}");
    assert_eq!(
        phases(&status),
        [
            ("edge-0", "Successful"),
            ("edge-1", "Successful"),
            ("edge-2", "Failure")
        ]
    );
    assert_eq!(text(task(&status, "edge-2").reason.as_ref()), "the node is not ready");
    assert!(cluster.nodes[1].has_image(&image.reference, &image.digest).await);
    assert!(!cluster.nodes[2].has_image(&image.reference, &image.digest).await);
}

#[tokio::test]
async fn a_node_reboots_in_the_middle_of_a_job() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 122, "faults/reboot").await;
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(300_000));
    let reference = format!("{}/faults/reboot:v1", line.host());
    let mut cluster = Cluster::start_edge(&[json!({}), json!({})]).await;
    let template = json!({ "images": [reference], "nodeNames": ["edge-0", "edge-1"], "concurrency": 2 });
    cluster.prepull("reboot", template).await;
    wait_until(SOON, "the pull", async || {
        cluster.nodes[0].containerd.pulls(&reference) == 1
    })
    .await
    .unwrap();
    // The machine goes down with everything on it, and its lease runs out.
    cluster.nodes[0].agent.kill().unwrap();
    cluster.nodes[0].containerd.kill().unwrap();
    cluster.set_ready("edge-0", false).await;
    line.set(Link::Open);
    let other = |status: &ImagePrePullJobStatus| status.succeeded == 1;
    let status = cluster.prepull_until("reboot", "the other node", other).await;
    assert_eq!(phase(&status), "InProgress", "{status:?}");

    cluster.nodes[0].containerd.restart().await.unwrap();
    cluster.nodes[0].agent.restart().unwrap();
    cluster.set_ready("edge-0", true).await;
    let status = cluster.prepull_finished("reboot").await;
    assert_eq!(
        phases(&status),
        [("edge-0", "Successful"), ("edge-1", "Successful")],
        "{status:?}"
    );
    for node in &cluster.nodes {
        assert!(node.has_image(&reference, &image.digest).await, "{}", node.name);
    }
}

#[tokio::test]
async fn a_job_is_made_while_the_controller_is_down() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 123, "faults/down").await;
    let mut cluster = Cluster::start_edge(&[json!({})]).await;
    let history = cluster.watch_prepulls().await;
    cluster.controller.kill().unwrap();
    cluster
        .prepull("early", json!({ "images": [image.reference], "nodeNames": ["edge-0"] }))
        .await;
    assert_eq!(cluster.prepull_status("early").await.phase, None);
    cluster.controller.restart().unwrap();
    let status = cluster.prepull_finished("early").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");

    // And one that runs when it is killed goes on.
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(500_000));
    let reference = format!("{}/faults/down:v1", line.host());
    cluster
        .prepull("running", json!({ "images": [reference], "nodeNames": ["edge-0"] }))
        .await;
    wait_until(SOON, "the pull", async || {
        cluster.nodes[0].containerd.pulls(&reference) == 1
    })
    .await
    .unwrap();
    cluster.controller.kill().unwrap();
    line.set(Link::Open);
    let node = &cluster.nodes[0];
    wait_until(SOON, "the image", async || {
        node.has_image(&reference, &image.digest).await
    })
    .await
    .unwrap();
    cluster.controller.restart().unwrap();
    let status = cluster.prepull_finished("running").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
    assert_eq!(cluster.nodes[0].containerd.pulls(&reference), 1);
    for job in ["early", "running"] {
        for said in history.until_over(job, SOON).await {
            let (phase, state) = (said.status.phase.as_deref(), said.status.state.as_deref());
            assert!(
                phase != Some("Init") && state != Some("Init"),
                "CloudCore acts on {said:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_node_that_never_answers_holds_up_nobody_and_is_told_apart() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 125, "faults/silent").await;
    let mut cluster = Cluster::start_edge(&[json!({}), json!({}), json!({})]).await;
    // Its Node looks ready, but nobody is there.
    cluster.nodes[0].agent.kill().unwrap();
    let names = ["edge-0", "edge-1", "edge-2"];
    let template = json!({
        "images": [image.reference], "nodeNames": names, "timeoutSeconds": 10, "failureTolerate": "0.4",
    });
    cluster.prepull("silent", template).await;
    let status = cluster.prepull_finished("silent").await;
    assert_eq!(phase(&status), "Completed", "one of three is tolerated: {status:?}");
    assert_eq!(
        phases(&status),
        [
            ("edge-0", "Unknown"),
            ("edge-1", "Successful"),
            ("edge-2", "Successful")
        ]
    );
    let silent = task(&status, "edge-0");
    assert_eq!(text(silent.reason.as_ref()), "The node task has timed out");
    let legacy = status.status[0].node_status.as_ref().unwrap();
    assert_eq!(
        (text(legacy.event.as_ref()), text(legacy.state.as_ref())),
        ("TimeOut", "Failed")
    );
}

#[tokio::test]
async fn two_controllers_at_once_do_nothing_twice() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = image(&registry, 126, "faults/two").await;
    let mut cluster = Cluster::start_edge(&[json!({}), json!({}), json!({})]).await;
    let mut second = cluster.replica("second", cluster.plane.access()).await;
    let orders = cluster.watch_orders(image.reference.trim_end_matches(":v1"), "v1");
    cluster
        .prepull("two", json!({ "images": [image.reference], "labelSelector": {} }))
        .await;
    let begun = |status: &ImagePrePullJobStatus| status.succeeded > 0;
    cluster.prepull_until("two", "the first node", begun).await;
    cluster.controller.kill().unwrap();
    let status = cluster.prepull_finished("two").await;
    assert_eq!((phase(&status), status.succeeded), ("Completed", 3), "{status:?}");
    assert_eq!(orders.end(3).await.most, 1, "concurrency over a change of leaders");
    for node in &cluster.nodes {
        assert_eq!(node.containerd.pulls(&image.reference), 1, "{}", node.name);
    }
    second.kill().unwrap();
}
