//! A real kubelet joins the control plane and runs pods with an address of their own, which reach the API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use larder_testkit::{ControlPlane, Node, NodeOptions, Options, PAUSE_IMAGE, is_running, wait_for, wait_until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SOON: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_node_runs_pods_and_leaves_nothing() {
    let plane = ControlPlane::start(Options {
        nodes: vec!["node-0".into()],
        ..Options::default()
    })
    .await
    .unwrap();
    let node = Node::start(plane.access(), "node-0", NodeOptions::default())
        .await
        .unwrap();
    let pods = Api::<Pod>::namespaced(plane.client().unwrap(), "default");
    let pod = json!({
        "metadata": { "name": "app" },
        "spec": {
            "containers": [{ "name": "app", "image": PAUSE_IMAGE, "imagePullPolicy": "Never" }],
            "terminationGracePeriodSeconds": 1,
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    let address = wait_for(SOON, "the pod to run", async || {
        let status = pods.get("app").await.unwrap().status.unwrap_or_default();
        if status.phase.as_deref() == Some("Running") {
            return Ok(status.pod_ip.unwrap());
        }
        Err(format!("{status:?}"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail()));
    assert!(address.starts_with("10.244."), "{address}");

    // From where the pod stands, the API server answers at the address of its Service: here, that it speaks HTTPS.
    let mut connection = node.connect("10.111.0.1:443".parse().unwrap()).unwrap();
    connection.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("HTTP request to an HTTPS server"), "{answer}");

    let processes = node.pids();
    let folder = node.path("/run").parent().unwrap().parent().unwrap().to_owned();
    let groups = node.cgroups();
    assert!(folder.exists() && !groups.is_empty() && processes.len() == 3);
    drop(node);
    assert!(!processes.iter().any(|pid| is_running(*pid)));
    wait_until(SOON, "folder and cgroups to be gone", async || {
        !folder.exists() && !groups.iter().any(|group| group.exists())
    })
    .await
    .unwrap();
}
