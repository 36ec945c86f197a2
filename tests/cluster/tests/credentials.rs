//! What the kubelet's own check of credentials (KEP-2535, `imagePullCredentialsVerificationPolicy`) means for a private image
//! that was there before the pod: docs/kubelet.md says the same in words.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_cluster::Cluster;
use larder_testkit::image::Layer;
use larder_testkit::{Auth, NodeOptions, Registry, runnable_image};
use serde_json::{Value, json};

/// A policy of the kubelet, and what becomes of pods of a private image that a job brought.
struct Case {
    name: &'static str,
    kubelet: fn(&Registry) -> Value,
    /// By the pod's `imagePullPolicy` and whether it has the pull secret.
    verdicts: [(&'static str, bool, &'static str); 4],
}

const CASES: [Case; 4] = [
    // What a kubelet does that was told nothing.
    Case {
        name: "default",
        kubelet: |_| json!({}),
        verdicts: [
            ("Never", false, "Running"),
            ("Never", true, "Running"),
            ("IfNotPresent", false, "Running"),
            ("IfNotPresent", true, "Running"),
        ],
    },
    Case {
        name: "never-verify",
        kubelet: |_| json!({ "imagePullCredentialsVerificationPolicy": "NeverVerify" }),
        verdicts: [
            ("Never", false, "Running"),
            ("Never", true, "Running"),
            ("IfNotPresent", false, "Running"),
            ("IfNotPresent", true, "Running"),
        ],
    },
    Case {
        name: "always-verify",
        kubelet: |_| json!({ "imagePullCredentialsVerificationPolicy": "AlwaysVerify" }),
        verdicts: [
            ("Never", false, "ErrImageNeverPull"),
            ("Never", true, "ErrImageNeverPull"),
            ("IfNotPresent", false, "ErrImagePull"),
            ("IfNotPresent", true, "Running"),
        ],
    },
    Case {
        name: "allow-list",
        kubelet: |registry| {
            json!({
                "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
                "preloadedImagesVerificationAllowlist": [format!("{}/allow-list", registry.host())],
            })
        },
        verdicts: [
            ("Never", false, "Running"),
            ("Never", true, "Running"),
            ("IfNotPresent", false, "Running"),
            ("IfNotPresent", true, "Running"),
        ],
    },
];

#[tokio::test]
async fn a_private_image_that_a_job_brought_under_each_policy_of_the_kubelet() {
    let mut cluster = Cluster::start([NodeOptions::default()]).await;
    let registry = Registry::start(Auth::basic("reader", "secret-word")).await.unwrap();
    cluster.nodes[0].reach(registry.address()).unwrap();
    cluster.install(&["controller.replicas=1"]).await;
    let config = json!({ "auths": { registry.host(): { "username": "reader", "password": "secret-word" } } });
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "private", "namespace": "default" },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": config.to_string() },
        }))
        .await;

    let mut seen = Vec::new();
    let mut wanted = Vec::new();
    for (number, case) in (0..).zip(&CASES) {
        let settings = (case.kubelet)(&registry);
        cluster.nodes[0].reconfigure_kubelet(settings).await.unwrap();
        // An image of its own for each case: a pull by the kubelet changes what it thinks of an image from then on.
        let image = runnable_image([Layer::random(number, 1000)]).unwrap();
        let image = registry.push(&image, case.name, "v1").await.unwrap().reference;
        cluster
            .pull(case.name, &image, json!({ "pullSecrets": ["private"] }))
            .await;
        cluster.complete(&format!("imagepulljob/{}", case.name)).await;
        for (policy, with_secret, verdict) in case.verdicts {
            let name = format!("{}-{}-{with_secret}", case.name, policy.to_lowercase());
            let fields = if with_secret {
                json!({ "imagePullSecrets": [{ "name": "private" }] })
            } else {
                json!({})
            };
            cluster.run_pod(&name, "node-0", &image, policy, fields).await;
            seen.push(format!("{name}: {}", cluster.pod_verdict(&name).await));
            wanted.push(format!("{name}: {verdict}"));
        }
    }
    assert_eq!(seen, wanted);

    // What the kubelet itself pulled with a secret it does not take for preloaded, also after a job has pulled it again.
    cluster.nodes[0].reconfigure_kubelet(json!({})).await.unwrap();
    let image = runnable_image([Layer::random(9, 1000)]).unwrap();
    let image = registry.push(&image, "kubelet-first", "v1").await.unwrap().reference;
    let with_secret = json!({ "imagePullSecrets": [{ "name": "private" }] });
    cluster
        .run_pod("first", "node-0", &image, "IfNotPresent", with_secret)
        .await;
    assert_eq!(cluster.pod_verdict("first").await, "Running");
    let again = json!({ "pullSecrets": ["private"], "imagePullPolicy": "Always" });
    cluster.pull("kubelet-first", &image, again).await;
    cluster.complete("imagepulljob/kubelet-first").await;
    cluster
        .run_pod("second", "node-0", &image, "IfNotPresent", json!({}))
        .await;
    assert_eq!(cluster.pod_verdict("second").await, "ErrImagePull");
}
