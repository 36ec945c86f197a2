//! Who may do what, and how passwords reach the nodes: rotated Secrets, new keys, plugins, tokens bound to a node.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::PermissionsExt as _;

use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use larder_api::NodeImage;
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, Scratch, wait_for, wait_until};
use serde_json::json;

async fn registry() -> Registry {
    Registry::start(Auth::basic("cook", "salt")).await.unwrap()
}

async fn image(registry: &Registry, seed: u64, name: &str) -> (String, String) {
    let recipe = Recipe::random(seed, 1, 50 * 1024);
    let pushed = registry.push(&recipe.build(), name, "v1").await.unwrap();
    let name = pushed.reference.trim_end_matches(":v1").to_owned();
    (name, pushed.reference)
}

async fn secret(cluster: &Cluster, registry: &Registry, name: &str, password: &str) {
    let config = json!({ "auths": { registry.host(): { "username": "cook", "password": password } } });
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "name": name, "namespace": "default" },
            "stringData": { ".dockerconfigjson": config.to_string() },
        }))
        .await;
}

/// A credential plugin of the kubelet that knows the password of one registry, and the flags that tell an agent of it.
fn plugin(scratch: &Scratch, registry: &Registry) -> Vec<String> {
    let answer = json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "cacheDuration": "0s",
        "auth": { registry.host(): { "username": "cook", "password": "salt" } },
    });
    let script = format!("#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{answer}\nEND\n");
    let program = scratch.path().join("pantry-credentials");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "pantry-credentials",
            "matchImages": [registry.host()],
            "defaultCacheDuration": "12h",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }],
    });
    let file = scratch.path().join("plugins.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    vec![
        format!("--image-credential-provider-config={}", file.display()),
        format!("--image-credential-provider-bin-dir={}", scratch.path().display()),
    ]
}

/// A login that the node has of its own, and the flag that tells an agent of it.
fn own_login(scratch: &Scratch, registry: &Registry) -> String {
    let config = json!({ "auths": { registry.host(): { "username": "cook", "password": "salt" } } });
    let file = scratch.path().join("config.json");
    std::fs::write(&file, config.to_string()).unwrap();
    format!("--registry-config={}", file.display())
}

#[tokio::test]
async fn passwords_reach_the_nodes_and_nobody_else() {
    let (first, second, third) = (registry().await, registry().await, registry().await);
    let scratch = Scratch::create("plugin").unwrap();
    let mut flags = plugin(&scratch, &second);
    flags.push(own_login(&scratch, &third));
    let setup = Setup {
        agent: flags,
        ..Setup::nodes(2)
    };
    let mut cluster = Cluster::start_with(setup).await;
    an_agent_may_report_and_nothing_else(&cluster).await;
    a_plugin_of_the_node_knows_the_password(&cluster, &second).await;
    the_node_has_a_login_of_its_own(&cluster, &third).await;
    a_rotated_secret_is_picked_up_after_a_refusal(&cluster, &first).await;
    a_new_key_is_sealed_for_again(&mut cluster, &first).await;
}

async fn an_agent_may_report_and_nothing_else(cluster: &Cluster) {
    let agent = &cluster.nodes[0].kubeconfig;
    let config = Kubeconfig::read_from(agent).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let node_images = Api::<NodeImage>::all(Client::try_from(config).unwrap());
    let patch = Patch::Merge(json!({ "status": { "agent": { "version": "forged" } } }));
    let params = PatchParams::default();
    let own = node_images.patch_status("node-0", &params, &patch).await.unwrap();
    assert_eq!(own.status.unwrap().agent.unwrap().version.as_deref(), Some("forged"));
    let other = node_images.patch_status("node-1", &params, &patch).await.unwrap_err();
    assert!(other.to_string().contains("larder-agent-own-node"), "{other}");
    let spec = node_images.patch("node-0", &params, &patch).await.unwrap_err();
    assert!(spec.to_string().contains("forbidden"), "{spec}");
    let forbidden: [&[&str]; 6] = [
        &["get", "secrets", "-A"],
        &["get", "secret", "any"],
        &["get", "nodes"],
        &["get", "imagepulljobs", "-A"],
        &["create", "configmap", "a"],
        &["delete", "nodeimage", "node-0"],
    ];
    for arguments in forbidden {
        let refusal = cluster.kubectl_as(agent, arguments).await.unwrap_err();
        assert!(refusal.contains("orbidden"), "{arguments:?}: {refusal}");
    }
    let may = async |verb: &str, what: &str| {
        let answer = cluster.kubectl_as(agent, &["auth", "can-i", verb, what]).await;
        answer.is_ok_and(|answer| answer.trim() == "yes")
    };
    assert!(!may("create", "imagepulljobs.apps.kruise.io").await);
    assert!(!may("create", "events").await);
    assert!(may("watch", "nodeimages.apps.kruise.io").await);
}

async fn a_plugin_of_the_node_knows_the_password(cluster: &Cluster, registry: &Registry) {
    let (_, reference) = image(registry, 81, "plugin/app").await;
    cluster.submit("plugin", &reference, &json!({})).await;
    let status = cluster.finished("plugin").await;
    assert_eq!(
        (status.desired, status.succeeded),
        (2, 2),
        "{status:?}\n{}",
        cluster.logs()
    );
}

async fn the_node_has_a_login_of_its_own(cluster: &Cluster, registry: &Registry) {
    let (_, reference) = image(registry, 85, "own/app").await;
    cluster.submit("own", &reference, &json!({})).await;
    let status = cluster.finished("own").await;
    assert_eq!(
        (status.desired, status.succeeded),
        (2, 2),
        "{status:?}\n{}",
        cluster.logs()
    );
}

/// The node is stopped in its tracks while its order, with the wrong password, is written and the right one comes.
async fn a_rotated_secret_is_picked_up_after_a_refusal(cluster: &Cluster, registry: &Registry) {
    let (name, reference) = image(registry, 82, "rotated/app").await;
    secret(cluster, registry, "rotated", "pepper").await;
    cluster.nodes[0].agent.freeze().unwrap();
    let fields = json!({ "selector": { "names": ["node-0"] }, "pullSecrets": ["rotated"] });
    cluster.submit("rotated", &reference, &fields).await;
    sealed_for(cluster, "node-0", &name).await;
    secret(cluster, registry, "rotated", "salt").await;
    cluster.nodes[0].agent.thaw().unwrap();
    let status = cluster.finished("rotated").await;
    assert_eq!(
        (status.desired, status.succeeded),
        (1, 1),
        "{status:?}\n{}",
        cluster.logs()
    );
    assert_eq!(
        cluster.nodes[0].containerd.pulls(&reference),
        2,
        "one with the old password and one with the new"
    );

    // With nothing new to try, a refusal is the end.
    let (_, reference) = image(registry, 83, "wrong/app").await;
    secret(cluster, registry, "wrong", "pepper").await;
    let fields = json!({ "selector": { "names": ["node-0"] }, "pullSecrets": ["wrong"] });
    cluster.submit("wrong", &reference, &fields).await;
    let status = cluster.finished("wrong").await;
    assert_eq!(
        status.progress.reasons,
        [("AuthDenied".to_owned(), 1)].into(),
        "{status:?}"
    );
}

/// The order is sealed for an agent that is then installed anew, with another key.
async fn a_new_key_is_sealed_for_again(cluster: &mut Cluster, registry: &Registry) {
    let (name, reference) = image(registry, 84, "again/app").await;
    secret(cluster, registry, "again", "salt").await;
    cluster.nodes[1].agent.kill().unwrap();
    let fields = json!({ "selector": { "names": ["node-1"] }, "pullSecrets": ["again"] });
    cluster.submit("again", &reference, &fields).await;
    let old = sealed_for(cluster, "node-1", &name).await;
    cluster.nodes[1].reinstall_agent().await;
    let status = cluster.finished("again").await;
    assert_eq!(
        (status.desired, status.succeeded),
        (1, 1),
        "{status:?}\n{}",
        cluster.logs()
    );
    assert_ne!(
        sealed_for(cluster, "node-1", &name).await,
        old,
        "still sealed for the old key"
    );
    // What is no longer needed by any entry does not stay.
    cluster.kubectl(&["delete", "imagepulljob", "again"]).await.unwrap();
    wait_until(SOON, "the credentials to go with the entry", async || {
        cluster.node_image("node-1").await.spec.sealed_credentials.is_empty()
    })
    .await
    .unwrap();
}

/// Waits until an entry has its credentials; the key that they are sealed for.
async fn sealed_for(cluster: &Cluster, node: &str, name: &str) -> String {
    wait_for(SOON, format!("credentials for {name}"), async || {
        let object = cluster.node_image(node).await;
        let entry = object.entry(name, "v1").ok_or("no entry yet")?;
        let id = entry.credentials.first().ok_or("no credentials yet")?;
        let sealed = object.spec.sealed_credentials.iter().find(|sealed| sealed.id == *id);
        sealed.map(|sealed| sealed.key.clone()).ok_or("an id of nothing")
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()))
}
