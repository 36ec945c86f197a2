//! Agents that know nothing but KubeEdge's MetaServer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use http::Method;
use larder_access::{KubeEdge, Settings, manifests};
use larder_e2e::kubeedge::{phases, text};
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Identity, Link, MetaServer, Pushed, Registry, Throttle, Uplink, wait_until};
use serde_json::json;

const MIB: usize = 1 << 20;

/// What `kubeEdge.identity: Node` of the chart adds: edge nodes write in their own names, and may do what agents may.
async fn bind_edge_nodes(cluster: &Cluster) {
    cluster
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "larder-agent-edge-nodes" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "larder-agent" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes" }],
        }))
        .await;
}

/// A cluster with one edge node behind its MetaServer, ready.
async fn behind_metaserver() -> (Cluster, MetaServer) {
    let mut cluster = Cluster::start(0).await;
    bind_edge_nodes(&cluster).await;
    cluster.create_edge_node("edge-0", &json!({})).await;
    let meta_server = cluster.join_behind_metaserver("edge-0", Identity::Node).await;
    cluster.wait_until_ready().await;
    (cluster, meta_server)
}

/// An image behind a slow line: enough for some seconds.
async fn slow_image(registry: &Registry, seed: u64) -> (Throttle, Pushed, String) {
    let recipe = Recipe::random(seed, 2, 2 * MIB).build();
    let image = registry.push(&recipe, "edge/app", "v1").await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(1_000_000));
    let reference = format!("{}/edge/app:v1", line.host());
    (line, image, reference)
}

#[tokio::test]
async fn a_private_image_comes_by_way_of_metaserver() {
    let auth = Auth::basic("tiger", "pass1234");
    let registry = Registry::start(auth.clone()).await.unwrap();
    let recipe = Recipe::random(71, 1, MIB).build();
    let image = registry.push(&recipe, "edge/app", "v1").await.unwrap();
    let (cluster, meta_server) = behind_metaserver().await;
    cluster
        .create_registry_secret("my-secret", &registry.host(), &auth)
        .await;
    let template = json!({ "images": [image.reference], "nodeNames": ["edge-0"], "imageSecrets": "default/my-secret" });
    cluster.prepull("private", template).await;
    let status = cluster.prepull_finished("private").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
    assert!(cluster.nodes[0].has_image(&image.reference, &image.digest).await);
    let requests = meta_server.requests();
    assert!(
        requests.iter().all(|request| !request.path.contains("secrets")),
        "an agent asks for no Secret: {requests:?}"
    );
}

#[tokio::test]
async fn the_cloud_is_away_during_a_pull_and_a_job_waits_meanwhile() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (_line, image, reference) = slow_image(&registry, 72).await;
    let (cluster, meta_server) = behind_metaserver().await;
    let template = json!({ "images": [reference], "nodeNames": ["edge-0"] });
    cluster.prepull("away", template).await;
    let node = &cluster.nodes[0];
    wait_until(SOON, "the pull", async || node.containerd.pulls(&reference) == 1)
        .await
        .unwrap();
    meta_server.set(Uplink::Down);
    wait_until(SOON, "the image", async || {
        node.has_image(&reference, &image.digest).await
    })
    .await
    .unwrap();
    let failed_writes = || {
        let requests = meta_server.requests();
        let failed = |request: &&larder_testkit::EdgeRequest| {
            request.method == Method::PATCH && request.status.is_server_error()
        };
        requests.iter().filter(failed).count()
    };
    wait_until(SOON, "a report that fails", async || failed_writes() > 0)
        .await
        .unwrap();
    assert_eq!(text(cluster.prepull_status("away").await.phase.as_ref()), "InProgress");

    meta_server.set(Uplink::Up);
    let status = cluster.prepull_finished("away").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
    assert_eq!(node.containerd.pulls(&reference), 1, "nothing is pulled twice");

    // A job that is made while the node is away arrives when it is back.
    let second = registry
        .push(&Recipe::random(73, 1, MIB).build(), "edge/second", "v1")
        .await
        .unwrap();
    meta_server.set(Uplink::Silent);
    cluster
        .prepull(
            "later",
            json!({ "images": [second.reference], "nodeNames": ["edge-0"] }),
        )
        .await;
    wait_until(SOON, "the order", async || {
        let name = second.reference.trim_end_matches(":v1");
        cluster.node_image("edge-0").await.entry(name, "v1").is_some()
    })
    .await
    .unwrap();
    assert!(!node.has_image(&second.reference, &second.digest).await);
    meta_server.set(Uplink::Up);
    let status = cluster.prepull_finished("later").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
}

#[tokio::test]
async fn a_watch_that_the_cloud_has_forgotten_delays_an_order_and_loses_none() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(74, 1, MIB).build();
    let image = registry.push(&recipe, "edge/app", "v1").await.unwrap();
    let (cluster, meta_server) = behind_metaserver().await;
    wait_until(SOON, "a watch", async || meta_server.watches() > 0)
        .await
        .unwrap();
    meta_server.forget_watches();
    let watches = meta_server.watches();
    cluster
        .prepull(
            "forgotten",
            json!({ "images": [image.reference], "nodeNames": ["edge-0"] }),
        )
        .await;
    let status = cluster.prepull_finished("forgotten").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
    assert!(meta_server.watches() > watches, "the agent gave the silent watch up");
    assert_eq!(cluster.nodes[0].containerd.pulls(&image.reference), 1);
}

#[tokio::test]
async fn an_agent_without_the_cloud_restarts_and_goes_on_from_what_the_node_knows() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (line, image, reference) = slow_image(&registry, 75).await;
    let (mut cluster, meta_server) = behind_metaserver().await;
    cluster
        .prepull("restart", json!({ "images": [reference], "nodeNames": ["edge-0"] }))
        .await;
    wait_until(SOON, "the pull", async || {
        cluster.nodes[0].containerd.pulls(&reference) == 1
    })
    .await
    .unwrap();
    meta_server.set(Uplink::Down);
    cluster.nodes[0].agent.restart().unwrap();
    line.set(Link::Open);
    let node = &cluster.nodes[0];
    wait_until(SOON, "the image", async || {
        node.has_image(&reference, &image.digest).await
    })
    .await
    .unwrap();
    meta_server.set(Uplink::Up);
    let status = cluster.prepull_finished("restart").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
}

#[tokio::test]
async fn cloudcores_own_identity_is_refused_with_a_sentence_that_says_what_to_do() {
    let mut cluster = Cluster::start(0).await;
    // Even if somebody gave it the permissions of an agent.
    cluster
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "cloudcore-nodeimages" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "larder-agent" },
            "subjects": [{ "kind": "ServiceAccount", "name": "cloudcore", "namespace": "kubeedge" }],
        }))
        .await;
    cluster.create_edge_node("edge-0", &json!({})).await;
    let meta_server = cluster.join_behind_metaserver("edge-0", Identity::CloudCore).await;
    let node = &cluster.nodes[0];
    wait_until(SOON, "the refusal in the agent's log", async || {
        node.agent.log_tail().contains("turn on the authorization of CloudHub")
    })
    .await
    .unwrap();
    let agent = cluster
        .node_image("edge-0")
        .await
        .status
        .and_then(|status| status.agent);
    assert_eq!(agent, None, "{:?}", meta_server.requests());
}

/// What `kubeEdge.identity: CloudCore` of the chart installs, and a CloudCore that has the role it makes.
async fn accept_cloudcore(cluster: &Cluster) {
    let settings = Settings {
        kube_edge: KubeEdge::CloudCore,
        ..Settings::default()
    };
    for object in manifests(&settings).into_iter().flat_map(|manifest| manifest.objects) {
        cluster.apply(&object).await;
    }
    cluster
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "cloudcore-nodeimages" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "larder-agent-cloudcore" },
            "subjects": [{ "kind": "ServiceAccount", "name": "cloudcore", "namespace": "kubeedge" }],
        }))
        .await;
}

#[tokio::test]
async fn where_cloudcore_is_accepted_public_images_come_and_passwords_do_not() {
    let open = Registry::start(Auth::Open).await.unwrap();
    let auth = Auth::basic("tiger", "pass1234");
    let closed = Registry::start(auth.clone()).await.unwrap();
    let public = open
        .push(&Recipe::random(76, 1, MIB).build(), "edge/public", "v1")
        .await
        .unwrap();
    let private = closed
        .push(&Recipe::random(77, 1, MIB).build(), "edge/private", "v1")
        .await
        .unwrap();
    let setup = Setup {
        controller: vec!["--accept-cloudcore=true".to_owned()],
        ..Setup::default()
    };
    let mut cluster = Cluster::start_with(setup).await;
    accept_cloudcore(&cluster).await;
    cluster.create_edge_node("edge-0", &json!({})).await;
    let _meta_server = cluster.join_behind_metaserver("edge-0", Identity::CloudCore).await;
    cluster.wait_until_ready().await;

    cluster.create_registry_secret("my-secret", &closed.host(), &auth).await;
    let template =
        json!({ "images": [private.reference], "nodeNames": ["edge-0"], "imageSecrets": "default/my-secret" });
    cluster.prepull("private", template).await;
    let template = json!({ "images": [public.reference], "nodeNames": ["edge-0"] });
    cluster.prepull("public", template).await;
    let status = cluster.prepull_finished("public").await;
    assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
    assert!(cluster.nodes[0].has_image(&public.reference, &public.digest).await);

    let status = cluster
        .prepull_until("private", "to say why it waits", |status| {
            status.progress.reasons.contains_key("CredentialsUnreadable")
        })
        .await;
    assert_eq!(phases(&status), [("edge-0", "Pending")], "{status:?}");
    let order = cluster.node_image("edge-0").await;
    assert!(order.spec.sealed_credentials.is_empty(), "{:?}", order.spec);
    assert!(!cluster.nodes[0].has_image(&private.reference, &private.digest).await);
}
