//! A cluster in which OpenKruise served jobs, with what it leaves behind: docs/migrate-from-openkruise.md.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use larder_cluster::{Cluster, NAMESPACE, SOON};
use larder_testkit::image::Layer;
use larder_testkit::{Auth, NodeOptions, PAUSE_IMAGE, Registry, runnable_image, wait_until};
use serde_json::{Value, json};

const FINALIZER: &str = "apps.kruise.io/deletion-protection";
const SENTENCE: &str = "its DaemonSet kruise-system/kruise-daemon runs on 1 nodes";
const READY: &str = "-o=jsonpath={.status.readyReplicas}";

/// A field that Larder's CRD has and the older one lacks.
const PULL_JOBS: &str = "crd/imagepulljobs.apps.kruise.io";
const JOB_CONDITIONS: &str = ".spec.versions[0].schema.openAPIV3Schema.properties.status.properties.conditions.type";

#[tokio::test]
async fn larder_is_refused_until_openkruise_lets_go_and_takes_over_its_jobs() {
    let mut cluster = Cluster::start([NodeOptions::default()]).await;
    let registry = Registry::start(Auth::Open).await.unwrap();
    cluster.nodes[0].reach(registry.address()).unwrap();
    let image = runnable_image([Layer::random(1, 1000)]).unwrap();
    let running = registry.push(&image, "running", "v1").await.unwrap();
    let by_hand = registry.push(&image, "by-hand", "v1").await.unwrap();

    // What is there: older CRDs, a job that runs, one that has ended, one that cannot go, a NodeImage, and the daemon.
    for crd in larder_api::crds() {
        cluster.apply(&older(&serde_json::to_value(crd).unwrap())).await;
    }
    for crd in ["imagepulljobs", "nodeimages"] {
        let name = format!("crd/{crd}.apps.kruise.io");
        cluster.wait_for_condition(&name, "Established", SOON).await;
    }
    for name in ["running", "ended", "going"] {
        cluster.apply(&job(name, &running.reference)).await;
    }
    let ended = json!({ "status": {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z",
        "desired": 5, "succeeded": 5, "active": 0, "failed": 0, "message": "job has completed",
    } });
    cluster
        .kubectl(&[
            "patch",
            "imagepulljob",
            "ended",
            "--subresource=status",
            "--type=merge",
            "-p",
            &ended.to_string(),
        ])
        .await
        .unwrap();
    cluster
        .kubectl(&["delete", "imagepulljob", "going", "--wait=false"])
        .await
        .unwrap();
    let uid = cluster.field("imagepulljob/running", ".metadata.uid").await;
    cluster.apply(&node_image(&registry.host(), &uid)).await;
    let before = cluster.field("nodeimage/node-0", ".metadata.uid").await;
    cluster
        .kubectl(&["create", "namespace", "kruise-system"])
        .await
        .unwrap();
    cluster.apply(&daemon()).await;
    wait_until(SOON, "OpenKruise's daemon to be wanted on the node", async || {
        let wanted = "-o=jsonpath={.status.desiredNumberScheduled}";
        let arguments = ["get", "daemonset", "kruise-daemon", "-n", "kruise-system", wanted];
        cluster.kubectl(&arguments).await.unwrap() == "1"
    })
    .await
    .unwrap();

    // Larder is refused by a sentence that Helm itself shows. Who renders without a cluster is refused by the hook's job, whose
    // first try is its last.
    let refusal = cluster.try_install(&["controller.replicas=1"]).await.unwrap_err();
    assert!(
        refusal.contains(SENTENCE) && refusal.contains("Nothing was changed"),
        "{refusal}"
    );
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await.unwrap();
    cluster.apply_hook_that_brings_crds().await;
    let job = [
        "wait",
        "job/larder-install-crds",
        "-n",
        NAMESPACE,
        "--for=condition=Failed",
        "--timeout=55s",
    ];
    cluster.kubectl(&job).await.unwrap();
    let message = "-o=jsonpath={.items[*].status.containerStatuses[*].state.terminated.message}";
    let installer = "app.kubernetes.io/component=installer";
    let said = cluster
        .kubectl(&["get", "pods", "-n", NAMESPACE, "-l", installer, message])
        .await;
    let said = said.unwrap();
    assert_eq!(said.matches(SENTENCE).count(), 1, "{said}");
    cluster
        .kubectl(&["delete", "namespace", NAMESPACE, "--timeout=55s"])
        .await
        .unwrap();
    assert_eq!(finalizers(&cluster, "running").await, format!("[\"{FINALIZER}\"]"));
    assert_eq!(cluster.field("nodeimage/node-0", ".metadata.uid").await, before);
    assert_eq!(
        cluster.field(PULL_JOBS, JOB_CONDITIONS).await,
        "",
        "its CRDs are as they were"
    );

    // The daemon goes, and all is taken over.
    let uproot = ["delete", "daemonset", "kruise-daemon", "-n", "kruise-system"];
    cluster.kubectl(&uproot).await.unwrap();
    cluster.install(&["controller.replicas=1"]).await;
    assert!(cluster.field(PULL_JOBS, JOB_CONDITIONS).await.contains("array"));
    cluster.complete("imagepulljob/running").await;
    assert_eq!(finalizers(&cluster, "running").await, "");
    wait_until(SOON, "the job that could not go to be gone", async || {
        let listed = cluster.kubectl(&["get", "imagepulljobs", "-o", "name"]).await.unwrap();
        !listed.contains("going")
    })
    .await
    .unwrap();
    assert_eq!(cluster.field("imagepulljob/ended", ".status.succeeded").await, "5");
    wait_until(
        SOON,
        "the entry that was written by hand to be carried out",
        async || {
            let images = cluster.nodes[0].images().await.unwrap();
            images.contains(&by_hand.reference) && images.contains(&running.reference)
        },
    )
    .await
    .unwrap();
    // The object is the same one, not a new one of that name.
    assert_eq!(cluster.field("nodeimage/node-0", ".metadata.uid").await, before);

    // The daemon comes back beside an installed Larder, which says so and hands out nothing. An upgrade is not held up.
    cluster.apply(&daemon()).await;
    let arguments = ["get", "deployment", "larder-controller", "-n", NAMESPACE, READY];
    let stopped = wait_until(SOON, "the controller to say what is in the way", async || {
        cluster.nodes[0].container_logs().contains(SENTENCE) && cluster.kubectl(&arguments).await.unwrap().is_empty()
    });
    if let Err(error) = stopped.await {
        panic!("{error}\n{}", cluster.logs().await);
    }
    cluster
        .begin_upgrade(&["controller.replicas=1", "controller.pause=true"])
        .await;
    cluster.kubectl(&uproot).await.unwrap();
    wait_until(SOON, "the controller to be ready again", async || {
        cluster.kubectl(&arguments).await.unwrap() == "1"
    })
    .await
    .unwrap();
}

async fn finalizers(cluster: &Cluster, job: &str) -> String {
    cluster
        .field(&format!("imagepulljob/{job}"), ".metadata.finalizers")
        .await
}

/// As before Larder's own fields.
fn older(crd: &Value) -> Value {
    let mut crd = crd.clone();
    for version in crd["spec"]["versions"].as_array_mut().unwrap() {
        let root = version["schema"]["openAPIV3Schema"]["properties"]
            .as_object_mut()
            .unwrap();
        for part in ["spec", "status"] {
            let fields = root.get_mut(part).and_then(|part| part["properties"].as_object_mut());
            if let Some(fields) = fields {
                for ours in ["pin", "conditions", "sealedCredentials", "agent", "imageFs", "reasons"] {
                    fields.remove(ours);
                }
            }
        }
        // A rule about a field that is not there would be refused.
        version["schema"]["openAPIV3Schema"] = without_rules(&version["schema"]["openAPIV3Schema"]);
    }
    crd
}

fn without_rules(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "x-kubernetes-validations");
            kept.map(|(name, value)| (name.clone(), without_rules(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_rules).collect(),
        other => other.clone(),
    }
}

fn job(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "ImagePullJob",
        "metadata": { "name": name, "namespace": "default", "finalizers": [FINALIZER] },
        "spec": { "image": image, "parallelism": 1, "completionPolicy": { "type": "Always" } },
    })
}

/// Two entries: one that OpenKruise's manager wrote for the job, one that somebody wrote.
fn node_image(host: &str, uid: &str) -> Value {
    let entry = |more: Value| {
        let mut entry = json!({
            "tag": "v1", "version": 3, "createdAt": "2026-01-01T00:00:00Z",
            "pullPolicy": { "timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 86400 },
        });
        if let (Value::Object(entry), Value::Object(more)) = (&mut entry, more) {
            entry.extend(more);
        }
        entry
    };
    let owner = json!([{
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ImagePullJob", "name": "running", "namespace": "default", "uid": uid,
    }]);
    let images = json!({
        format!("{host}/running"): { "tags": [entry(json!({ "ownerReferences": owner }))] },
        format!("{host}/by-hand"): { "tags": [entry(json!({}))] },
    });
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "NodeImage",
        "metadata": { "name": "node-0" },
        "spec": { "images": images },
    })
}

/// Whatever its pods do: that they are wanted is what counts.
fn daemon() -> Value {
    let labels = json!({ "control-plane": "daemon" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "kruise-daemon", "namespace": "kruise-system" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "daemon", "image": PAUSE_IMAGE }] },
            },
        },
    })
}
