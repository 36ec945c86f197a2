//! A cluster with nodes on which no agent runs: Windows, virtual nodes, nodes outside the agents' selector.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_for};
use serde_json::json;

/// As the chart tells the controller, with `agent.nodeSelector: {pool: big}`.
fn agent_nodes() -> String {
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
        {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]},
    ]}]});
    let definition = json!([{
        "nodeSelector": {"kubernetes.io/os": "linux", "pool": "big"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"operator": "Exists"}],
    }]);
    format!("--agent-nodes={definition}")
}

#[tokio::test]
async fn a_job_without_selector_completes_in_a_mixed_cluster() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(90, 1, 16 * 1024);
    registry.push(&recipe.build(), "mixed", "v1").await.unwrap();
    let image = format!("{}/mixed:v1", registry.host());
    let setup = Setup {
        controller: vec![agent_nodes(), "--leader-elect=false".to_owned()],
        ..Setup::default()
    };
    let mut cluster = Cluster::start_with(setup).await;
    for (name, labels) in [
        ("linux", json!({"pool": "big"})),
        ("windows", json!({"pool": "big", "kubernetes.io/os": "windows"})),
        ("virtual", json!({"pool": "big", "type": "virtual-kubelet"})),
        (
            "fargate",
            json!({"pool": "big", "eks.amazonaws.com/compute-type": "fargate"}),
        ),
        ("small", json!({"pool": "small"})),
    ] {
        cluster.create_labelled_node(name, &labels).await;
    }
    cluster.add_node("linux").await;

    cluster.submit("everywhere", &image, &json!({})).await;
    let status = cluster.finished("everywhere").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (1, 1, 0));
    let complete = status
        .progress
        .conditions
        .iter()
        .find(|one| one.type_ == "Complete")
        .unwrap();
    assert_eq!(
        complete.message,
        "1 of 1 nodes have the image; 4 nodes are left out because no agent runs there: 2 virtual, 1 not running Linux, 1 \
         outside the agents' nodeSelector or affinity (fargate, small, virtual, …)"
    );
    for name in ["windows", "virtual", "fargate", "small"] {
        assert!(cluster.find_node_image(name).await.is_none(), "{name} has a NodeImage");
    }

    // Whoever names such a node learns at once why nothing happens there.
    cluster
        .submit("by-name", &image, &json!({"selector": {"names": ["linux", "windows"]}}))
        .await;
    let status = cluster.finished("by-name").await;
    let complete = status
        .progress
        .conditions
        .iter()
        .find(|one| one.type_ == "Complete")
        .unwrap();
    assert_eq!(
        complete.message,
        "1 of 1 nodes have the image; 1 node is left out because no agent runs there: 1 not running Linux (windows)"
    );

    // A node that gets the label gets the image, without a new job.
    cluster
        .submit("for-good", &image, &json!({"completionPolicy": {"type": "Never"}}))
        .await;
    cluster
        .kubectl(&["label", "node", "small", "pool=big", "--overwrite"])
        .await
        .unwrap();
    cluster.add_node("small").await;
    wait_for(
        SOON,
        "the node that joined the selector to have the image",
        async || {
            let status = cluster.status("for-good").await;
            if status.succeeded == 2 {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        },
    )
    .await
    .unwrap();
}
