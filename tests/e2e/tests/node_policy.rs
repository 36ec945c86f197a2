//! Where the node policy is not enforced, any agent can publish a key in another node's name. No login is sent to a node then;
//! it is as soon as the policy is back, without a restart of anything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::path::Path;

use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use larder_api::NodeImage;
use larder_e2e::{Cluster, SOON, TestNode};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_for, wait_until};
use serde_json::{Value, json};

const BINDING: &str = "validatingadmissionpolicybinding/larder-agent-own-node";

/// An image that only a login can pull, and its name.
async fn private_image(registry: &Registry, seed: u64, name: &str) -> String {
    let recipe = Recipe::random(seed, 1, 20 * 1024);
    registry.push(&recipe.build(), name, "v1").await.unwrap().reference
}

fn on(node: &str) -> Value {
    json!({ "selector": { "names": [node] }, "pullSecrets": ["cook"] })
}

async fn assert_succeeds(cluster: &Cluster, job: &str) {
    let status = cluster.finished(job).await;
    assert_eq!(
        (status.desired, status.succeeded),
        (1, 1),
        "{status:?}\n{}",
        cluster.logs()
    );
}

/// A client with the permissions of a node's agent.
async fn client_of(node: &TestNode) -> Client {
    let config = Kubeconfig::read_from(&node.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

async fn restore(cluster: &Cluster) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac/30-agent-own-node.yaml");
    cluster.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.unwrap();
}

#[tokio::test]
async fn no_login_is_sent_while_the_node_policy_is_not_enforced() {
    let registry = Registry::start(Auth::basic("cook", "salt")).await.unwrap();
    let mut cluster = Cluster::start(2).await;
    cluster
        .create_registry_secret("cook", &registry.host(), &Auth::basic("cook", "salt"))
        .await;
    let image = private_image(&registry, 91, "policy/enforced").await;
    cluster.submit("enforced", &image, &on("node-0")).await;
    assert_succeeds(&cluster, "enforced").await;

    // The binding is deleted, and node-0 publishes its own key in the name of node-1.
    cluster.kubectl(&["delete", BINDING]).await.unwrap();
    wait_until(SOON, "the controller to notice", async || {
        let metrics = cluster.controller_metrics().await;
        metrics.contains("larder_controller_credentials_withheld 1\n")
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    cluster.nodes[1].agent.freeze().unwrap();
    let own = cluster.node_image("node-0").await.status.unwrap().agent.unwrap();
    let forged = Patch::Merge(json!({ "status": { "agent": { "publicKey": own.public_key } } }));
    let as_node_0 = Api::<NodeImage>::all(client_of(&cluster.nodes[0]).await);
    wait_for(
        SOON,
        "the API server to let another node's status be written",
        async || as_node_0.patch_status("node-1", &PatchParams::default(), &forged).await,
    )
    .await
    .unwrap();

    // Nothing is sealed, for the forged key or for any other, and the jobs say why they wait.
    let stolen = private_image(&registry, 92, "policy/stolen").await;
    let waiting = private_image(&registry, 93, "policy/waiting").await;
    cluster.submit("stolen", &stolen, &on("node-1")).await;
    cluster.submit("waiting", &waiting, &on("node-0")).await;
    for job in ["stolen", "waiting"] {
        wait_for(SOON, format!("{job} to say why it waits"), async || {
            let status = cluster.status(job).await;
            let waits = status.progress.reasons.get("NodePolicyNotEnforced") == Some(&1);
            if waits { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    }
    for node in ["node-0", "node-1"] {
        let spec = cluster.node_image(node).await.spec;
        let asked = |name: &&String| name.contains("policy/stolen") || name.contains("policy/waiting");
        assert_eq!(spec.images.keys().find(asked), None, "{node} has the order");
    }
    // Jobs without a login are served all the same.
    let open = Registry::start(Auth::Open).await.unwrap();
    let image = private_image(&open, 94, "policy/open").await;
    cluster
        .submit("open", &image, &json!({ "selector": { "names": ["node-0"] } }))
        .await;
    assert_succeeds(&cluster, "open").await;

    // The policy comes back, and with it the logins.
    cluster.kubectl(&["delete", "imagepulljob", "stolen"]).await.unwrap();
    restore(&cluster).await;
    assert_succeeds(&cluster, "waiting").await;
    let metrics = cluster.controller_metrics().await;
    assert!(
        metrics.contains("larder_controller_credentials_withheld 0\n"),
        "{metrics}"
    );

    // An administrator who accepts it gets what others wait for.
    cluster.kubectl(&["delete", BINDING]).await.unwrap();
    cluster.nodes[1].agent.thaw().unwrap();
    cluster.restart_controller(&["--accept-unenforced-node-policy"]).await;
    let image = private_image(&registry, 95, "policy/accepted").await;
    cluster.submit("accepted", &image, &on("node-0")).await;
    assert_succeeds(&cluster, "accepted").await;
}
