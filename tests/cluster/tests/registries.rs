//! Registries that agents reach only with the chart's settings: through a proxy, with a certificate of a private authority.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_cluster::{Cluster, HIDDEN, NAMESPACE, Proxied, SOON, build_larder};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, NodeOptions, Registry, Scratch, runnable_image, wait_for};
use serde_json::{Value, json};

/// What the agent of the one node says of an image before it is pulled. It asks the registry itself, not by the runtime.
async fn plan(cluster: &Cluster, image: &str) -> Value {
    let scratch = Scratch::create("plan").unwrap();
    let job = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ImagePullJob",
        "metadata": { "name": "planned", "namespace": "default" },
        "spec": { "image": image },
    });
    let file = scratch.write("job.json", job.to_string()).unwrap();
    // Right after an install the node has no NodeImage yet, or its agent has not seen it.
    let asked = wait_for(SOON, "a plan", async || {
        let arguments = ["plan", "-f", file.to_str().unwrap(), "-o", "json"];
        let output = cluster.larder(&arguments).await;
        let plan = serde_json::from_slice::<Value>(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
        match &plan["nodes"][0] {
            silent if silent["reason"] == "Unresponsive" => Err(silent.to_string()),
            node => Ok(node.clone()),
        }
    });
    asked.await.unwrap()
}

#[tokio::test]
async fn agents_ask_a_registry_behind_a_proxy_and_a_private_authority() {
    build_larder().await;
    let mut cluster = Cluster::start([NodeOptions::default()]).await;
    let registry = Registry::start(Auth::Open).await.unwrap();
    let proxied = Proxied::start(&registry).await;
    cluster.nodes[0].reach(proxied.proxy).unwrap();
    let image = runnable_image([Layer::random(1, 50_000)]).unwrap();
    registry.push(&image, "app", "v1").await.unwrap();
    let image = format!("{HIDDEN}/app:v1");
    let proxy = format!("proxy.https=http://{}", proxied.proxy);

    // The proxy alone: the registry is reached, and not trusted.
    cluster.install(&["controller.replicas=1", &proxy]).await;
    let untrusted = plan(&cluster, &image).await;
    assert_eq!(untrusted["reason"], "Tls", "{untrusted}");
    assert!(proxied.was_asked());

    // The authority from a ConfigMap, then from the values.
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "authorities", "namespace": NAMESPACE },
            "data": { "pantry.crt": proxied.authority },
        }))
        .await;
    cluster
        .upgrade(&["controller.replicas=1", &proxy, "extraCA.configMap=authorities"])
        .await;
    let trusted = plan(&cluster, &image).await;
    assert!(trusted["bytesToPull"].as_u64() > Some(50_000), "{trusted}");
    let pem = format!("extraCA.pem={}", proxied.authority);
    cluster.upgrade(&["controller.replicas=1", &proxy, &pem]).await;
    let trusted = plan(&cluster, &image).await;
    assert!(trusted["bytesToPull"].as_u64() > Some(50_000), "{trusted}");
}
