//! The kubelet's credential plugins through the chart, as OpenKruise's guide sets them up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use larder_cluster::{Cluster, NAMESPACE, SOON, root};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, NodeOptions, Registry, runnable_image};
use serde_json::json;
use tokio::process::Command;

/// Where the plugins are on the nodes.
const FOLDER: &str = "/run/credential-plugins";
const NAME: &str = "pantry-credentials";

#[tokio::test]
async fn a_plugin_on_the_nodes_opens_a_private_registry() {
    let mut cluster = Cluster::start([NodeOptions::default()]).await;
    let known = Registry::start(Auth::basic("reader", "secret-word")).await.unwrap();
    let unknown = Registry::start(Auth::basic("reader", "secret-word")).await.unwrap();
    for registry in [&known, &unknown] {
        cluster.nodes[0].reach(registry.address()).unwrap();
    }
    compile(&cluster.nodes[0].path(FOLDER)).await;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await.unwrap();
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": NAME,
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": [known.host()],
            "defaultCacheDuration": "1h",
            "args": [format!("--registry={}", known.host()), "--user=reader"],
            "env": [{ "name": "PASSWORD", "value": "secret-word" }],
        }],
    });
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "credential-provider-config", "namespace": NAMESPACE },
            "data": { "CredentialProviderPlugin.yaml": configuration.to_string() },
        }))
        .await;
    cluster
        .install(&[
            "controller.replicas=1",
            "daemon.credentialProvider.enable=true",
            &format!("daemon.credentialProvider.hostPath={FOLDER}"),
            "daemon.credentialProvider.configmap=credential-provider-config",
        ])
        .await;

    let image = runnable_image([Layer::random(1, 1000)]).unwrap();
    let opened = known.push(&image, "app", "v1").await.unwrap().reference;
    let closed = unknown.push(&image, "app", "v1").await.unwrap().reference;
    cluster.pull("opened", &opened, json!({})).await;
    cluster.complete("imagepulljob/opened").await;
    cluster.run_pod("opened", "node-0", &opened, "Never", json!({})).await;
    assert_eq!(cluster.pod_verdict("opened").await, "Running");
    // It was the plugin: where it is not asked, the same password does not help.
    cluster.pull("closed", &closed, json!({})).await;
    cluster.wait_for_condition("imagepulljob/closed", "Failed", SOON).await;
    let reasons = cluster.field("imagepulljob/closed", ".status.reasons").await;
    assert_eq!(reasons, r#"{"AuthDenied":1}"#);
    let shown = cluster.kubectl(&["get", "nodeimages,imagepulljobs,events", "-A", "-o", "json"]);
    assert!(!shown.await.unwrap().contains("secret-word"));
}

/// Static, because the agent's image has no libraries.
async fn compile(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc
        .args([
            "--edition=2024",
            "-Copt-level=s",
            "-Cstrip=symbols",
            "-Ctarget-feature=+crt-static",
        ])
        .arg("-o")
        .arg(folder.join(NAME))
        .arg(root().join("tests/cluster/programs/credential-plugin.rs"))
        .current_dir(folder)
        .kill_on_drop(true);
    let output = tokio::time::timeout(SOON, rustc.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
