//! What the chart's hooks run, with no more than the rights of their own ServiceAccounts.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use larder_access::Settings;
use larder_api::names::{KRUISE_FINALIZER, KUBEEDGE_FINALIZER};
use larder_api::{ImagePrePullJob, ImagePullJob, NodeImage};
use larder_controller::crd_check::shortcoming;
use larder_testkit::{ControlPlane, Kubectl, Options, Scratch, kubectl};
use serde_json::{Value, json};

use crate::cluster::NAMESPACE;

const CRD: &str = "imagepulljobs.apps.kruise.io";

struct Stage {
    plane: ControlPlane,
    scratch: Scratch,
}

impl Stage {
    async fn with(crds: Vec<CustomResourceDefinition>, objects: Vec<Value>) -> Self {
        let options = Options {
            crds,
            ..Options::default()
        };
        let stage = Self {
            plane: ControlPlane::start(options).await.unwrap(),
            scratch: Scratch::create("errand").unwrap(),
        };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        stage.apply(vec![namespace]).await;
        stage.apply(objects).await;
        stage
    }

    async fn apply(&self, objects: Vec<Value>) {
        let file = self.scratch.path().join("objects.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        std::fs::write(&file, list.to_string()).unwrap();
        let arguments = ["apply".as_ref(), "-f".as_ref(), file.as_os_str()];
        let output = kubectl(Kubectl::Current, self.plane.kubeconfig(), arguments)
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let access = self.plane.access();
        let token = access.service_account_token(NAMESPACE, account, None).await.unwrap();
        access.write_kubeconfig(self.scratch.path(), account, &token).unwrap()
    }

    async fn run(&self, account: &str, arguments: &[&str]) -> Output {
        let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_larder-controller"));
        program
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.kubeconfig_of(account).await)
            .kill_on_drop(true);
        tokio::time::timeout(Duration::from_mins(3), program.output())
            .await
            .unwrap()
            .unwrap()
    }

    fn client(&self) -> Client {
        self.plane.client().unwrap()
    }
}

/// A CRD of our name as another chart left it: one version, a schema that drops our fields, a conversion webhook.
fn somebody_elses() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": CRD, "annotations": { "meta.helm.sh/release-name": "kruise" } },
        "spec": {
            "group": "apps.kruise.io",
            "names": { "kind": "ImagePullJob", "listKind": "ImagePullJobList", "plural": "imagepulljobs", "singular": "imagepulljob" },
            "scope": "Namespaced",
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": { "service": { "name": "kruise-webhook-service", "namespace": "kruise-system", "path": "/convert" } },
                    "conversionReviewVersions": ["v1"],
                },
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object", "properties": { "image": { "type": "string" } } } } } },
            }],
        },
    })
}

#[tokio::test]
async fn crds_of_another_chart_are_replaced_and_a_second_time_changes_nothing() {
    let mut objects = larder_access::installer(&Settings::default());
    objects.push(somebody_elses());
    let stage = Stage::with(vec![], objects).await;
    let definitions = Api::<CustomResourceDefinition>::all(stage.client());
    for _ in 0..2 {
        let output = stage.run("larder-installer", &["install-crds"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for ours in larder_api::crds() {
            let theirs = definitions.get(&ours.name_any()).await.unwrap();
            assert_eq!(shortcoming(&ours, Some(&theirs)), None);
        }
    }
    let replaced = definitions.get(CRD).await.unwrap();
    assert_eq!(replaced.spec.versions.len(), 2);
    assert_eq!(replaced.spec.conversion.unwrap().strategy, "None");
    assert_eq!(
        replaced.metadata.annotations.unwrap()["meta.helm.sh/release-name"],
        "kruise"
    );
}

/// OpenKruise's daemon on two nodes, and a webhook that is asked about jobs.
async fn serve_by_kruise(stage: &Stage) {
    let labels = json!({ "control-plane": "daemon" });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kruise-system" } });
    let daemon = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "kruise-daemon", "namespace": "kruise-system" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "daemon", "image": "kruise.invalid/daemon:1" }] },
            },
        },
    });
    let webhooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "kruise-validating-webhook-configuration" },
        "webhooks": [{
            "name": "vimagepulljob.kb.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["imagepulljobs"] }],
        }],
    });
    stage.apply(vec![namespace, daemon, webhooks]).await;
    let daemons = Api::<DaemonSet>::namespaced(stage.client(), "kruise-system");
    let status = json!({ "status": {
        "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
    } });
    daemons
        .patch_status("kruise-daemon", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn while_openkruise_serves_an_install_is_refused_and_an_uninstall_leaves_its_objects() {
    let mut objects = larder_access::installer(&Settings::default());
    objects.extend(larder_access::uninstaller(&Settings::default()));
    objects.push(somebody_elses());
    let stage = Stage::with(vec![], objects).await;
    serve_by_kruise(&stage).await;
    let definitions = Api::<CustomResourceDefinition>::all(stage.client());
    let before = definitions.get(CRD).await.unwrap().resource_version();

    let refused = stage.run("larder-installer", &["install-crds"]).await;
    assert_eq!(refused.status.code(), Some(3));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    for sentence in [
        "its DaemonSet kruise-system/kruise-daemon runs on 2 nodes. Turn it off with",
        "its kruise-validating-webhook-configuration is asked about them. Take these entries out of it",
        "Nothing was changed",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
    assert_eq!(definitions.get(CRD).await.unwrap().resource_version(), before);

    let forced = ["install-crds", "--even-beside-openkruise"];
    let forced = stage.run("larder-installer", &forced).await;
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));

    let nodes = Api::<NodeImage>::all(stage.client());
    let node = json!({ "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": { "name": "n1" }, "spec": {} });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
    let pull = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": { "name": "theirs", "finalizers": [KRUISE_FINALIZER] }, "spec": { "image": "nginx:1" },
    });
    let pulls = Api::<ImagePullJob>::namespaced(stage.client(), "default");
    pulls
        .create(&PostParams::default(), &serde_json::from_value(pull).unwrap())
        .await
        .unwrap();
    let pre_pull = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": { "name": "ours", "finalizers": [KUBEEDGE_FINALIZER] },
        "spec": { "imagePrePullTemplate": { "images": ["nginx:1"], "nodeNames": ["n1"] } },
    });
    let pre_pulls = Api::<ImagePrePullJob>::all(stage.client());
    pre_pulls
        .create(&PostParams::default(), &serde_json::from_value(pre_pull).unwrap())
        .await
        .unwrap();
    let uninstalled = stage.run("larder-uninstaller", &["uninstall"]).await;
    assert!(
        uninstalled.status.success(),
        "{}",
        String::from_utf8_lossy(&uninstalled.stderr)
    );
    nodes.get("n1").await.unwrap();
    assert_eq!(pulls.get("theirs").await.unwrap().finalizers(), [KRUISE_FINALIZER]);
    // OpenKruise does not know this kind: nobody else would ever take its finalizer off.
    assert!(pre_pulls.get("ours").await.unwrap().finalizers().is_empty());
}

#[tokio::test]
async fn without_its_rights_the_installer_says_what_it_cannot_do() {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "larder-installer", "namespace": NAMESPACE } });
    let stage = Stage::with(vec![], vec![account]).await;
    let output = stage.run("larder-installer", &["install-crds"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot read the CRD imagepulljobs.apps.kruise.io: "),
        "{said}"
    );
    assert!(said.contains("forbidden"), "{said}");
}

#[tokio::test]
async fn an_uninstall_withdraws_orders_and_frees_jobs() {
    let stage = Stage::with(larder_api::crds(), larder_access::uninstaller(&Settings::default())).await;
    let client = stage.client();
    let nodes = Api::<NodeImage>::all(client.clone());
    let jobs = Api::<ImagePullJob>::namespaced(client.clone(), "default");
    let orders = json!({ "images": { "nginx": { "tags": [{ "tag": "1", "pin": true, "pullPolicy": { "ttlSecondsAfterFinished": 1 } }] } } });
    for name in ["answers", "never-answered"] {
        let node = json!({ "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": { "name": name }, "spec": orders });
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
            .await
            .unwrap();
    }
    let result = json!({ "status": { "agent": { "version": "1" }, "imageStatuses": { "nginx": { "tags": [{ "tag": "1", "phase": "Succeeded" }] } } } });
    nodes
        .patch_status("answers", &PatchParams::default(), &Patch::Merge(&result))
        .await
        .unwrap();
    let job = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": { "name": "runs", "finalizers": [KRUISE_FINALIZER] },
        "spec": { "image": "nginx:1" },
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap())
        .await
        .unwrap();
    let status = json!({ "status": { "message": "job is running", "conditions": [
        { "type": "Progressing", "status": "True", "reason": "Pulling", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }
    ] } });
    jobs.patch_status("runs", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();

    let uninstall = async {
        let output = stage
            .run("larder-uninstaller", &["uninstall", "--timeout-seconds=60"])
            .await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    tokio::join!(uninstall, answer_like_an_agent(&nodes));

    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let job = jobs.get("runs").await.unwrap();
    assert_eq!(job.finalizers(), &[] as &[String]);
    let status = serde_json::to_value(job.status.unwrap()).unwrap();
    assert_eq!(status["conditions"][0]["reason"], "Uninstalled", "{status}");
    assert_eq!(status["conditions"][0]["status"], "False", "{status}");
    let leases = Api::<Lease>::namespaced(client, NAMESPACE);
    assert!(leases.get_opt("larder-controller").await.unwrap().is_none());
}

/// The chart's fullnameOverride gives the Deployment another name, in the role and in this argument.
#[tokio::test]
async fn an_uninstall_stops_the_deployment_that_it_is_told() {
    let objects = larder_access::uninstaller(&Settings::default());
    let objects = Value::from(objects).to_string().replace(
        r#""resourceNames":["larder-controller"],"resources":["deployments/scale"]"#,
        r#""resourceNames":["cellar-controller"],"resources":["deployments/scale"]"#,
    );
    assert!(objects.contains("cellar"), "{objects}");
    let stage = Stage::with(larder_api::crds(), serde_json::from_str(&objects).unwrap()).await;
    let labels = json!({ "app": "cellar" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "cellar-controller", "namespace": NAMESPACE },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "controller", "image": "larder-controller" }] },
            },
        },
    });
    stage.apply(vec![deployment]).await;
    let arguments = ["uninstall", "--timeout-seconds=1", "--deployment=cellar-controller"];
    let output = stage.run("larder-uninstaller", &arguments).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let deployments = Api::<Deployment>::namespaced(stage.client(), NAMESPACE);
    let stopped = deployments.get("cellar-controller").await.unwrap();
    assert_eq!(stopped.spec.unwrap().replicas, Some(0));
}

/// Waits until its orders are withdrawn, then shows no results any more.
async fn answer_like_an_agent(nodes: &Api<NodeImage>) {
    larder_testkit::wait_for(Duration::from_mins(1), "the orders are withdrawn", async || {
        let node = nodes.get("answers").await.map_err(|error| error.to_string())?;
        if node.spec.images.is_empty() {
            Ok(())
        } else {
            Err("it still has orders".to_owned())
        }
    })
    .await
    .unwrap();
    let nothing = json!({ "status": { "imageStatuses": null } });
    nodes
        .patch_status("answers", &PatchParams::default(), &Patch::Merge(&nothing))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_check_names_what_is_missing() {
    let objects = larder_access::manifests(&Settings::default());
    let objects = objects.into_iter().flat_map(|manifest| manifest.objects).collect();
    let stage = Stage::with(larder_api::crds(), objects).await;
    let arguments = ["check", "--timeout-seconds=1"];
    let no_leader = stage.run("larder-controller", &arguments).await;
    assert_eq!(no_leader.status.code(), Some(1));
    let said = String::from_utf8_lossy(&no_leader.stderr).into_owned();
    assert!(said.contains("no controller leads"), "{said}");

    let held = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "larder-controller", "namespace": NAMESPACE }, "spec": { "holderIdentity": "somebody" } });
    stage.apply(vec![held]).await;
    let no_nodes = stage.run("larder-controller", &arguments).await;
    assert!(
        no_nodes.status.success(),
        "{}",
        String::from_utf8_lossy(&no_nodes.stderr)
    );

    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    stage.apply(vec![node]).await;
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(stage.client());
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes
        .patch_status("n1", &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .unwrap();
    let no_agent = stage.run("larder-controller", &arguments).await;
    assert_eq!(no_agent.status.code(), Some(1));
    let said = String::from_utf8_lossy(&no_agent.stderr).into_owned();
    assert!(said.contains("no agent answers on 1 of 1 ready nodes (n1)"), "{said}");
}
