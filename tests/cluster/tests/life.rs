//! From `helm install` to `helm uninstall`, with everything that users do in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use base64::Engine as _;
use larder_cluster::{Cluster, NAMESPACE, RELEASE, SOON};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, Link, NodeOptions, Pushed, Registry, Throttle, runnable_image, wait_for, wait_until};
use serde_json::json;

const KRUISE_FINALIZER: &str = "apps.kruise.io/deletion-protection";

/// Puts an image that pods can run into the registry; each number makes another one.
async fn push(registry: &Registry, number: u64, size: usize) -> Pushed {
    let image = runnable_image([Layer::random(number, size)]).unwrap();
    registry.push(&image, &format!("app-{number}"), "v1").await.unwrap()
}

#[tokio::test]
async fn jobs_of_both_dialects_bring_images_that_pods_start_from() {
    let mut cluster = Cluster::start([NodeOptions::default(), NodeOptions::default()]).await;
    let open = Registry::start(Auth::Open).await.unwrap();
    let private = Registry::start(Auth::basic("reader", "secret-word")).await.unwrap();
    for node in &mut cluster.nodes {
        node.reach(open.address()).unwrap();
        node.reach(private.address()).unwrap();
    }
    let line = Throttle::start(open.address()).await.unwrap();
    for node in &mut cluster.nodes {
        node.reach(line.address()).unwrap();
    }
    let metrics_token = cluster.metrics_token().await;
    cluster.install(&[&metrics_token, "agent.fetch=auto"]).await;
    cluster
        .helm(&["test", RELEASE, "--namespace", NAMESPACE])
        .await
        .unwrap();

    // OpenKruise's dialect: before the job the image is not there, after it a pod starts without a pull.
    let app = push(&open, 1, 100_000).await;
    cluster
        .run_pod("early", "node-0", &app.reference, "Never", json!({}))
        .await;
    assert_eq!(cluster.pod_verdict("early").await, "ErrImageNeverPull");
    cluster.pull("app", &app.reference, json!({})).await;
    cluster.complete("imagepulljob/app").await;
    for node in ["node-0", "node-1"] {
        let pod = format!("late-{node}");
        cluster.run_pod(&pod, node, &app.reference, "Never", json!({})).await;
        assert_eq!(cluster.pod_verdict(&pod).await, "Running");
    }
    wait_until(SOON, "the early pod to find the image, too", async || {
        cluster.pod_verdict("early").await == "Running"
    })
    .await
    .unwrap();

    // An image that is large for its line, so that the agents fetch the layers: a pod starts from it without a pull, too.
    line.set(Link::bytes_per_second(8 << 20));
    push(&open, 4, 12 << 20).await;
    let large = format!("{}/app-4:v1", line.host());
    cluster.pull("large", &large, json!({})).await;
    cluster.complete("imagepulljob/large").await;
    let statuses = cluster.field("nodeimage/node-0", ".status.imageStatuses").await;
    let by_agent = format!("came from {}", line.host());
    assert!(statuses.contains(&by_agent), "{statuses}");
    cluster.run_pod("large", "node-0", &large, "Never", json!({})).await;
    assert_eq!(cluster.pod_verdict("large").await, "Running");

    // KubeEdge's dialect, which is for edge nodes.
    cluster
        .kubectl(&["label", "node", "node-1", "node-role.kubernetes.io/edge="])
        .await
        .unwrap();
    let edge = push(&open, 2, 100_000).await;
    cluster.prepull("edge", &[&edge.reference], json!({})).await;
    cluster.complete("imageprepulljob/edge").await;
    assert_eq!(
        cluster.field("imageprepulljob/edge", ".status.phase").await,
        "Completed"
    );
    cluster
        .run_pod("edge", "node-1", &edge.reference, "Never", json!({}))
        .await;
    assert_eq!(cluster.pod_verdict("edge").await, "Running");
    assert!(!cluster.nodes[0].images().await.unwrap().contains(&edge.reference));

    // A private image: the job's secret opens it, and nothing else does.
    let hidden = push(&private, 3, 100_000).await;
    cluster.pull("refused", &hidden.reference, json!({})).await;
    cluster.wait_for_condition("imagepulljob/refused", "Failed", SOON).await;
    let reasons = cluster.field("imagepulljob/refused", ".status.reasons").await;
    assert_eq!(reasons, r#"{"AuthDenied":2}"#);
    cluster.apply(&pull_secret("private", &private.host())).await;
    cluster
        .pull("hidden", &hidden.reference, json!({ "pullSecrets": ["private"] }))
        .await;
    cluster.complete("imagepulljob/hidden").await;
    cluster
        .run_pod("hidden", "node-0", &hidden.reference, "Never", json!({}))
        .await;
    assert_eq!(cluster.pod_verdict("hidden").await, "Running");
    // The word is nowhere in the cluster but in the Secret.
    let seen = cluster
        .kubectl(&["get", "nodeimages,imagepulljobs,events", "-A", "-o", "json"])
        .await
        .unwrap();
    let encoded = base64::engine::general_purpose::STANDARD.encode("reader:secret-word");
    assert!(!seen.contains("secret-word") && !seen.contains(&encoded));

    assert_every_series_is_shown(&cluster).await;
}

/// What the dashboard and the alerts ask for is what the pods show, now that they have pulled, failed and written.
async fn assert_every_series_is_shown(cluster: &Cluster) {
    let mut shown = cluster.metrics("controller", 8080).await;
    shown.extend(cluster.metrics("agent", 10331).await);
    let named = regex::Regex::new(r"\blarder_(?:agent|controller)_[a-z0-9_]+\b").unwrap();
    for file in ["dashboard.json", "alerts.yaml"] {
        let text = std::fs::read_to_string(larder_cluster::root().join("deploy/monitoring").join(file)).unwrap();
        let missing: Vec<_> = named
            .find_iter(&text)
            .map(|found| found.as_str())
            .filter(|name| !shown.contains(*name))
            .collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}, pods show {shown:?}");
    }
}

fn pull_secret(name: &str, host: &str) -> serde_json::Value {
    let config = json!({ "auths": { host: { "username": "reader", "password": "secret-word" } } });
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": "default" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config.to_string() },
    })
}

#[tokio::test]
async fn work_goes_on_through_drain_restart_and_upgrade_and_uninstall_leaves_nothing() {
    let mut cluster = Cluster::start([NodeOptions::default(), NodeOptions::default()]).await;
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    for node in &mut cluster.nodes {
        node.reach(registry.address()).unwrap();
        node.reach(line.address()).unwrap();
    }
    cluster.install(&[]).await;

    // A drained node loses its controller, not its agent: what is told to the node is done.
    cluster
        .kubectl(&[
            "drain",
            "node-0",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=50s",
        ])
        .await
        .unwrap();
    let drained = push(&registry, 10, 100_000).await;
    cluster.pull("drained", &drained.reference, json!({})).await;
    cluster.complete("imagepulljob/drained").await;
    assert_eq!(cluster.field("imagepulljob/drained", ".status.succeeded").await, "2");
    let controllers = cluster.parts("controller").await;
    assert!(controllers.iter().all(|(_, node)| node != "node-0"), "{controllers:?}");
    cluster.kubectl(&["uncordon", "node-0"]).await.unwrap();

    // The agents go in the middle of a pull; their successors carry it to the end.
    let slow = push(&registry, 11, 4_000_000).await;
    let slow = slow.reference.replace(&registry.host(), &line.address().to_string());
    line.set(Link::bytes_per_second(400_000));
    cluster.pull("slow", &slow, json!({})).await;
    wait_for_pulling(&cluster, "slow").await;
    for (agent, _) in cluster.parts("agent").await {
        cluster
            .kubectl(&["delete", "pod", &agent, "-n", NAMESPACE, "--timeout=50s"])
            .await
            .unwrap();
    }
    line.set(Link::Open);
    cluster.complete("imagepulljob/slow").await;

    // The chart is upgraded in the middle of a pull: every pod is replaced, CRDs are applied again.
    let during = push(&registry, 12, 4_000_000).await;
    let during = during.reference.replace(&registry.host(), &line.address().to_string());
    line.set(Link::bytes_per_second(400_000));
    cluster.pull("during", &during, json!({ "pin": true })).await;
    wait_for_pulling(&cluster, "during").await;
    let before = cluster.parts("agent").await;
    cluster
        .upgrade(&["controller.podAnnotations.round=two", "agent.podAnnotations.round=two"])
        .await;
    line.set(Link::Open);
    cluster.complete("imagepulljob/during").await;
    let after = cluster.parts("agent").await;
    assert!(before.iter().all(|pod| !after.contains(pod)), "{before:?} {after:?}");

    // Uninstall, with a pin in place, a pull under way and a finalizer of OpenKruise on a job.
    for node in &cluster.nodes {
        let pinned = wait_until(SOON, format!("the pin on {}", node.name()), async || {
            pins(&cluster, node).await.len() == 1
        });
        if let Err(error) = pinned.await {
            let seen = cluster.kubectl(&["get", "nodeimage", node.name(), "-o", "yaml"]).await;
            panic!("{error}\n{}\n{}", seen.unwrap(), node.container_logs());
        }
    }
    let never = push(&registry, 13, 4_000_000).await;
    let never = never.reference.replace(&registry.host(), &line.address().to_string());
    line.set(Link::Stalled);
    cluster.pull("never", &never, json!({})).await;
    wait_for_pulling(&cluster, "never").await;
    cluster
        .kubectl(&["patch", "imagepulljob", "during", "--type=merge", "-p", &finalizer()])
        .await
        .unwrap();
    cluster.uninstall().await;
    line.set(Link::Open);
    assert_nothing_is_left(&cluster).await;
}

fn finalizer() -> String {
    json!({ "metadata": { "finalizers": [KRUISE_FINALIZER] } }).to_string()
}

async fn wait_for_pulling(cluster: &Cluster, job: &str) {
    let job = format!("imagepulljob/{job}");
    let waited = wait_for(SOON, format!("{job} to pull on both nodes"), async || {
        let active = cluster.field(&job, ".status.active").await;
        if active == "2" {
            Ok(())
        } else {
            Err(format!("{active:?} active"))
        }
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", cluster.logs().await);
    }
}

/// Without the image that every containerd pins by itself.
async fn pins(cluster: &Cluster, node: &larder_testkit::Node) -> Vec<String> {
    let mut pinned = cluster.pinned_images(node).await;
    pinned.retain(|name| !name.contains("pause") && !name.starts_with("sha256:"));
    pinned
}

async fn assert_nothing_is_left(cluster: &Cluster) {
    let kinds = "imagepulljobs,imagelistpulljobs,imageprepulljobs,nodeimages";
    let finalizers = "-o=jsonpath={.items[*].metadata.finalizers}";
    assert_eq!(cluster.kubectl(&["get", kinds, "-A", finalizers]).await.unwrap(), "");
    for node in &cluster.nodes {
        assert_eq!(pins(cluster, node).await, Vec::<String>::new(), "{}", node.name());
    }
    // Jobs are data of their owners and stay, but nothing holds them; the one under way says what has become of it.
    let message = cluster.field("imagepulljob/never", ".status.message").await;
    assert!(message.starts_with("Larder was uninstalled"), "{message}");
    cluster
        .kubectl(&["delete", "imagepulljobs", "--all", "--timeout=50s"])
        .await
        .unwrap();
    // Of the chart's own objects nothing is left but the namespace, once the last pods have ended.
    let in_the_namespace = "all,serviceaccounts,configmaps,secrets,leases,poddisruptionbudgets,roles,rolebindings";
    let cluster_wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                        flowschemas,prioritylevelconfigurations,priorityclasses";
    for arguments in [
        ["get", in_the_namespace, "-n", NAMESPACE, "-o", "name"].as_slice(),
        &["get", cluster_wide, "-o", "name"],
    ] {
        let gone = wait_for(SOON, "the chart's objects to be gone", async || {
            let listed = cluster.kubectl(arguments).await.unwrap();
            let ours: Vec<_> = listed.lines().filter(|line| line.contains("larder")).collect();
            if ours.is_empty() { Ok(()) } else { Err(ours.join(" ")) }
        });
        gone.await.unwrap();
    }
}
