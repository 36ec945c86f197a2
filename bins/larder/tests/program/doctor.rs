//! `larder doctor`: on `larder up`, and on a real kube-apiserver that is made ill in one way after another.

use std::time::Duration;

use larder_testkit::{ControlPlane, Options, wait_until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::larder::{Ended, Larder, ended, examples};
use crate::up::Up;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_wrong_with_larder_up() {
    let up = Up::start().await;
    let said = up.run(&["doctor"]).await.well();
    insta::with_settings!({filters => [(r"v1\.\d+\.0\+larder-[0-9.]+", "[version].")]}, { insta::assert_snapshot!(said) });
    let report = up.json(&["doctor"]).await;
    assert_eq!(report["healthy"], true, "{report}");
}

/// A cluster, and kubectl with all permissions in it.
pub(crate) struct Cluster {
    larder: Larder,
    plane: ControlPlane,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self {
            larder: Larder::new(),
            plane: ControlPlane::start(Options::default()).await.unwrap(),
        }
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut kubectl = self.larder.command("kubectl");
        kubectl.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(arguments);
        ended(kubectl).await.well()
    }

    async fn apply(&self, object: &Value) {
        self.larder.write("object.json", &object.to_string());
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "object.json"])
            .await;
    }

    async fn patch_status(&self, kind: &str, name: &str, patch: &Value, more: &[&str]) {
        let patch = patch.to_string();
        let arguments = [
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        self.kubectl(&[&arguments[..], more].concat()).await;
    }

    async fn doctor(&self, more: &[&str]) -> Ended {
        let mut doctor = self.larder.larder(&["doctor"]);
        doctor.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(more);
        ended(doctor).await
    }

    /// What it finds, as `level area: sentence`.
    pub(crate) async fn findings(&self) -> Vec<String> {
        let report = self.doctor(&["-o", "json"]).await;
        let report: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|_| panic!("{report:?}"));
        let areas = report["areas"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        areas
            .flat_map(|area| {
                let findings = area["findings"].as_array().unwrap().iter();
                findings.map(|found| {
                    format!(
                        "{} {}: {}",
                        text(&found["level"]),
                        text(&area["area"]),
                        text(&found["says"])
                    )
                })
            })
            .collect()
    }

    /// One finding, which begins like this.
    async fn assert_finds(&self, begin: &str) {
        self.assert_finds_all(&[begin]).await;
    }

    /// As many findings, each of which begins like this.
    async fn assert_finds_all(&self, begins: &[&str]) {
        let findings = self.findings().await;
        assert_eq!(findings.len(), begins.len(), "{findings:#?}");
        let mut pairs = findings.iter().zip(begins);
        assert!(pairs.all(|(found, begin)| found.starts_with(begin)), "{findings:#?}");
    }

    /// The Lease, renewed all the time, as by a controller that lives.
    fn lead(&self) -> JoinHandle<()> {
        let lease = "printf '{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"larder-controller\",\
                     \"namespace\":\"larder-system\"},\"spec\":{\"holderIdentity\":\"somebody\",\"leaseDurationSeconds\":15,\
                     \"renewTime\":\"%s\"}}' $(date -u +%Y-%m-%dT%H:%M:%S.%6NZ) | kubectl --kubeconfig \"$0\" apply --server-side -f -";
        let mut command = self.larder.command("bash");
        command.args(["-c", &format!("while {lease}; do sleep 1; done")]);
        command.arg(self.plane.kubeconfig());
        let mut child = command.spawn().unwrap();
        tokio::spawn(async move { drop(child.wait().await) })
    }
}

fn rbac(file: &str) -> String {
    examples().join("../rbac").join(file).display().to_string()
}

async fn install_crds_and_rights(cluster: &Cluster) {
    let crds = cluster.larder.run(&["crds"]).await.well();
    cluster.larder.write("crds.yaml", &crds);
    cluster.kubectl(&["apply", "--server-side", "-f", "crds.yaml"]).await;
    cluster
        .kubectl(&["wait", "--for=condition=Established", "crd", "--all"])
        .await;
    cluster.kubectl(&["apply", "-f", &rbac("")]).await;
}

/// A plan seals logins to nodes only where the controller would: an agent could otherwise publish a key for another node.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_sends_no_login_while_the_policy_is_not_enforced() {
    let cluster = Cluster::start().await;
    install_crds_and_rights(&cluster).await;
    cluster
        .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
        .await;
    cluster
        .apply(&json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "n1"}, "spec": {}}))
        .await;
    cluster
        .larder
        .write_job("web", "registry.example/app:1", "  pullSecrets: [login]\n");
    let asks_without_login = async || {
        let mut plan = cluster.larder.larder(&["plan", "-f", "web.yaml", "--timeout", "1s"]);
        plan.arg("--kubeconfig").arg(cluster.plane.kubeconfig());
        let said = ended(plan).await.stdout;
        assert!(said.contains("n1"), "{said}");
        said.contains(
            "1 node was asked without the job's login: the policy larder-agent-own-node was not seen to be enforced; \
             larder doctor says more.",
        )
    };
    // The API server takes a moment to act by a policy that is new, or gone.
    let limit = Duration::from_mins(2);
    wait_until(limit, "the policy is enforced", async || !asks_without_login().await)
        .await
        .unwrap();
    cluster
        .kubectl(&["delete", "validatingadmissionpolicybinding", "larder-agent-own-node"])
        .await;
    wait_until(limit, "no login is sent", asks_without_login).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_illness_of_a_cluster_is_named() {
    let cluster = Cluster::start().await;
    let bare = cluster.doctor(&[]).await;
    insta::with_settings!({filters => [(r"v1\.\d+\.\d+\S*", "[version].")]}, {
        insta::assert_snapshot!("a_cluster_without_larder", bare.stdout);
    });
    assert_eq!(bare.badly(1), "6 problems were found");

    install_crds_and_rights(&cluster).await;
    let leader = cluster.lead();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    cluster.apply(&node).await;
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}});
    cluster.patch_status("node", "n1", &ready, &[]).await;
    cluster
        .assert_finds("problem agents: 1 node has no NodeImage: n1.")
        .await;

    let image =
        json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "n1"}, "spec": {}});
    cluster.apply(&image).await;
    cluster
        .assert_finds("problem agents: No agent has ever answered and there is no pod for one on 1 node: n1.")
        .await;

    let agent = json!({"status": {"agent": {"version": "0.1.0", "runtime": "containerd 2.1.9", "publicKey": "k"}}});
    let as_node = ["--as=system:node:n1", "--as-group=system:masters"];
    cluster.patch_status("nodeimage", "n1", &agent, &as_node).await;
    // The policy may take a moment to be enforced; from then on nothing is wrong.
    larder_testkit::wait_until(Duration::from_mins(1), "the policy is enforced", async || {
        cluster.findings().await.is_empty()
    })
    .await
    .unwrap();
    let said = cluster.doctor(&[]).await.well();
    insta::with_settings!({filters => [(r"v1\.\d+\.\d+\S*", "[version].")]}, {
        insta::assert_snapshot!("a_healthy_cluster", said);
    });

    let mute = json!({"status": {"agent": {"runtime": null}}});
    cluster.patch_status("nodeimage", "n1", &mute, &as_node).await;
    cluster
        .assert_finds("problem agents: The agent finds no container runtime on 1 node: n1.")
        .await;
    cluster.patch_status("nodeimage", "n1", &agent, &as_node).await;

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "larder-agent-x", "namespace": "larder-system"},
        "spec": {"nodeName": "n1", "serviceAccountName": "larder-agent", "containers": [{"name": "agent", "image": "larder-agent:0.1.0"}]},
    });
    cluster.apply(&pod).await;
    let waiting = json!({"status": {"containerStatuses": [{
        "name": "agent", "image": "larder-agent:0.1.0", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
    }]}});
    cluster
        .patch_status("pod", "larder-agent-x", &waiting, &["-n", "larder-system"])
        .await;
    cluster
        .assert_finds("problem agents: The agent's pod is not ready (ImagePullBackOff: not found) on 1 node: n1.")
        .await;
    let pod = "/api/v1/namespaces/larder-system/pods/larder-agent-x?gracePeriodSeconds=0";
    cluster.kubectl(&["delete", "--raw", pod]).await;

    // A pod of `helm test` that failed stays; it is no controller, and nothing is said of it from here on.
    let test = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "larder-test", "namespace": "larder-system", "labels": {"app.kubernetes.io/component": "test"},
        },
        "spec": {
            "serviceAccountName": "larder-controller", "restartPolicy": "Never",
            "containers": [{"name": "check", "image": "larder-controller:0.0.9"}],
        },
    });
    cluster.apply(&test).await;
    cluster
        .patch_status(
            "pod",
            "larder-test",
            &json!({"status": {"phase": "Failed"}}),
            &["-n", "larder-system"],
        )
        .await;

    cluster
        .kubectl(&[
            "annotate",
            "crd",
            "nodeimages.apps.kruise.io",
            "meta.helm.sh/release-name=kruise",
        ])
        .await;
    cluster
        .assert_finds("note crds: The CRD nodeimages.apps.kruise.io belongs to the Helm release kruise")
        .await;
    cluster
        .kubectl(&[
            "annotate",
            "crd",
            "nodeimages.apps.kruise.io",
            "meta.helm.sh/release-name-",
        ])
        .await;

    let webhooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "kruise-validating-webhook-configuration"},
        "webhooks": [{
            "name": "vimagepulljob.kb.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["imagepulljobs"]}],
        }],
    });
    cluster.apply(&webhooks).await;
    cluster
        .assert_finds("problem others: The webhooks of kruise-validating-webhook-configuration judge imagepulljobs")
        .await;
    cluster
        .kubectl(&["delete", "validatingwebhookconfiguration", "--all"])
        .await;

    cluster.kubectl(&["delete", "clusterrolebinding", "larder-agent"]).await;
    cluster
        .assert_finds(
            "problem rights: The ServiceAccount larder-system/larder-agent may not get nodeimages.apps.kruise.io",
        )
        .await;
    cluster.kubectl(&["apply", "-f", &rbac("20-agent.yaml")]).await;

    // The chart may give the accounts other names. The controller has to act as the agents' account, to try the policy.
    let labels = json!({"app.kubernetes.io/part-of": "larder", "app.kubernetes.io/component": "agent"});
    let agents = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "hands", "namespace": "larder-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": "hand", "containers": [{"name": "agent", "image": "larder-agent:0.1.0"}]},
            },
        },
    });
    cluster.apply(&agents).await;
    cluster
        .assert_finds_all(&[
            "problem rights: The ServiceAccount larder-system/larder-controller may not impersonate serviceaccounts.",
            "problem rights: The ServiceAccount larder-system/hand may not get nodeimages.apps.kruise.io",
        ])
        .await;
    cluster
        .kubectl(&["delete", "daemonset", "hands", "-n", "larder-system"])
        .await;

    cluster
        .kubectl(&["delete", "validatingadmissionpolicybinding", "larder-agent-own-node"])
        .await;
    cluster
        .assert_finds("problem policy: The policy larder-agent-own-node has no binding, and is not enforced")
        .await;

    leader.abort();
    let old = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}).to_string();
    let dead = "problem controller: No controller leads: somebody does not renew the Lease larder-controller any more.";
    // What the leader had begun to write may come after our own.
    larder_testkit::wait_until(Duration::from_mins(2), "the leader is missed", async || {
        let lease = [
            "patch",
            "lease",
            "larder-controller",
            "-n",
            "larder-system",
            "--type=merge",
            "-p",
            &old,
        ];
        cluster.kubectl(&lease).await;
        cluster.findings().await.iter().any(|finding| finding == dead)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_it_says_what_could_not_be_seen() {
    let cluster = Cluster::start().await;
    let token = cluster.plane.access().admin_token().to_owned();
    let config = cluster
        .plane
        .access()
        .write_kubeconfig(cluster.larder.home.path(), "admin", &token)
        .unwrap();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(config).unwrap()).unwrap();
    config["users"][0]["user"]["as"] = "nobody".into();
    cluster.larder.write("nobody.json", &config.to_string());
    let report = cluster
        .larder
        .run(&["doctor", "--kubeconfig", "nobody.json", "-o", "json"])
        .await;
    let report: Value = serde_json::from_str(&report.well()).unwrap();
    assert_eq!(report["healthy"], true, "what cannot be seen is not wrong: {report}");
    let said = report.to_string();
    assert!(
        said.contains("cannot be looked at") && said.contains("forbidden"),
        "{said}"
    );
    assert!(said.contains("so that larder run will not work for you"), "{said}");
}
