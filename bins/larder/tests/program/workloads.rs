//! `larder run --images-of`: manifests in a pipe, objects of a cluster, a namespace.

use std::fs::File;

use larder_testkit::{ControlPlane, Options};
use serde_json::{Value, json};

use crate::larder::{Ended, Larder, ended};
use crate::up::{Source, Up};

const PASSWORD: &str = "a-password-of-workloads";

/// As `helm template` prints it. The pods get their pull secret from the ServiceAccount.
const CHART: &str = "---\n# Source: shop/templates/secret.yaml\n\n---\n# Source: shop/templates/account.yaml\n\
    apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\nimagePullSecrets: [{name: login}]\n---\n\
    # Source: shop/templates/service.yaml\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n\
    # Source: shop/templates/deployment.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n\
    spec:\n  template:\n    spec:\n      serviceAccountName: robot\n      nodeSelector: {pool: big}\n      \
    initContainers: [{name: setup, image: 'SECOND'}]\n      containers: [{name: web, image: 'FIRST'}, {name: again, image: 'FIRST'}]\n";

/// Runs the program with a file as its standard input.
async fn piped(up: &Up, file: &str, arguments: &[&str]) -> Ended {
    let mut command = up.larder.larder(arguments);
    command.args(["--kubeconfig", "data/kubeconfig"]);
    command.stdin(File::open(up.larder.home.path().join(file)).unwrap());
    ended(command).await
}

fn on_node(up: &Up, node: &str) -> String {
    let index = up
        .larder
        .home
        .path()
        .join(format!("data/nodes/{node}/images/index.json"));
    std::fs::read_to_string(index).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_in_a_pipe() {
    let (up, source) = tokio::join!(Up::start(), Source::private("tiger", PASSWORD));
    let [first, second] = source.offer_two_that_share_a_layer().await;
    let registry = first.split('/').next().unwrap().to_owned();
    up.write_secret("login", &registry, PASSWORD);
    up.kubectl(&["apply", "-f", "login.yaml"]).await;
    up.label("node-2", &["pool=big"]).await;
    let chart = CHART.replace("FIRST", &first).replace("SECOND", &second);
    up.larder.write("chart.yaml", &chart);

    let run = piped(&up, "chart.yaml", &["run", "--images-of", "-"]).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        run.stderr,
        "note: objects without pods are skipped: Service 1, ServiceAccount 1\n"
    );
    let begin = format!("Images of Deployment web:\n  {second}\n  {first}\nimagelistpulljob/images-of-manifests-");
    assert!(run.stdout.starts_with(&begin), "{}", run.stdout);
    assert!(run.stdout.contains(": Complete, 2/2 done, 0 failed"), "{}", run.stdout);
    let there = on_node(&up, "node-2");
    assert!(there.contains(&first) && there.contains(&second), "{there}");
    assert!(!on_node(&up, "node-1").contains(&first), "it is not in the pool");
    let jobs: Value = serde_json::from_str(&up.kubectl(&["get", "imagelistpulljobs", "-o", "json"]).await).unwrap();
    let spec = &jobs["items"][0]["spec"];
    assert_eq!(spec["selector"], json!({"matchLabels": {"pool": "big"}}));
    assert_eq!(spec["pullSecrets"], json!(["login"]));

    up.larder
        .write("typo.yaml", &chart.replace(&first, &format!("{first}.typo")));
    let typo = piped(&up, "typo.yaml", &["run", "--images-of", "-", "-o", "json"]).await;
    let jobs: Value = serde_json::from_str(&typo.stdout).unwrap();
    assert_eq!(
        (&jobs["jobs"][0]["phase"], typo.code),
        (&json!("Failed"), Some(1)),
        "{jobs}"
    );

    up.larder
        .write("broken.yaml", &format!("{chart}---\nkind: Pod\n  spec: 1\n"));
    let broken = piped(&up, "broken.yaml", &["run", "--images-of", "-"]).await.badly(2);
    assert!(
        broken.starts_with("standard input, document 4, is not YAML: "),
        "{broken}"
    );
    let line = chart.lines().count() + 3;
    assert!(broken.contains(&format!("line {line}")), "line {line}: {broken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_and_namespaces_of_larder_up() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let [first, second] = source.offer_two_that_share_a_layer().await;
    up.label("node-2", &["pool=big"]).await;
    up.kubectl(&["create", "namespace", "shop"]).await;
    for (name, image) in [("web", &first), ("api", &second)] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"nodeSelector": {"pool": "big"}, "containers": [{"name": "c", "image": image}]},
        });
        up.larder.write("pod.json", &pod.to_string());
        up.kubectl(&["apply", "-f", "pod.json"]).await;
    }
    let said = up.run(&["run", "--images-of", "pod/web", "-n", "shop"]).await.well();
    assert!(said.contains("Complete, 1/1 done, 0 failed"), "{said}");
    let there = on_node(&up, "node-2");
    assert!(there.contains(&first) && !there.contains(&second), "{there}");
    let said = up.run(&["run", "--images-of", "namespace/shop"]).await.well();
    assert!(said.starts_with("Images of Pod api, Pod web:\n"), "{said}");
    assert!(said.contains("Complete, 2/2 done, 0 failed"), "{said}");
    assert!(on_node(&up, "node-2").contains(&second));

    for (source, says) in [
        (
            "po/gone",
            "there is no pod gone in the namespace default; give --namespace for another one",
        ),
        (
            "deployment/web",
            "there is no deployment web in the namespace default; give --namespace for another one",
        ),
        ("ns/gone", "there is no namespace gone"),
        (
            "ns/default",
            "namespace/default: no workload was found; it must have at least one Deployment, Pod or other object with pods",
        ),
    ] {
        assert_eq!(up.run(&["run", "--images-of", source]).await.badly(2), says);
    }
}

/// Objects of a real API server, where no controller runs: what matters is the job that is created.
struct Cluster {
    larder: Larder,
    plane: ControlPlane,
}

impl Cluster {
    async fn apply(&self, object: &Value) {
        self.larder.write("object.json", &object.to_string());
        self.kubectl(&["apply", "--server-side", "-f", "object.json"]).await;
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut kubectl = self.larder.command("kubectl");
        kubectl.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(arguments);
        ended(kubectl).await.well()
    }

    /// Creates the job, does not wait for it, and returns it with what was noted.
    async fn job(&self, source: &str, kubeconfig: &str) -> (Value, String) {
        let arguments = [
            "run",
            "-n",
            "shop",
            "--images-of",
            source,
            "--timeout",
            "0s",
            "--kubeconfig",
            kubeconfig,
        ];
        let run = self.larder.run(&arguments).await;
        assert_eq!(run.code, Some(4), "{run:?}");
        let jobs = self
            .kubectl(&["get", "imagelistpulljobs", "-n", "shop", "-o", "json"])
            .await;
        let jobs: Value = serde_json::from_str(&jobs).unwrap();
        assert_eq!(jobs["items"].as_array().unwrap().len(), 1, "{jobs}");
        self.kubectl(&["delete", "imagelistpulljobs", "-n", "shop", "--all"])
            .await;
        let notes = run.stderr.lines().filter(|line| line.starts_with("note: "));
        (jobs["items"][0].clone(), notes.collect::<Vec<_>>().join("\n"))
    }

    /// A kubeconfig that acts as another user.
    fn acting_as(&self, user: &str) -> String {
        let token = self.plane.access().admin_token().to_owned();
        let access = self.plane.access();
        let config = access
            .write_kubeconfig(self.larder.home.path(), "admin", &token)
            .unwrap();
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(config).unwrap()).unwrap();
        config["users"][0]["user"]["as"] = user.into();
        let file = format!("{user}.json");
        self.larder.write(&file, &config.to_string());
        file
    }
}

fn deployment(name: &str, image: &str, mut pods: Value) -> Value {
    pods["containers"] = json!([{"name": "c", "image": image}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pods},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_real_api_server() {
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let cluster = Cluster {
        larder: Larder::new(),
        plane: ControlPlane::start(options).await.unwrap(),
    };
    let admin = cluster.plane.kubeconfig().display().to_string();
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}, "imagePullSecrets": [{"name": "login"}]}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"zone": "a"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": {"gpu": "yes"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c", "labels": {"zone": "c"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "d", "labels": {"zone": "a"}},
               "spec": {"taints": [{"key": "reserved", "effect": "NoSchedule"}]}}),
        deployment("web", "web:1", json!({"nodeSelector": {"zone": "a"}})),
        deployment(
            "either",
            "either:1",
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
            ]}}}}),
        ),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report", "namespace": "shop"}, "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "nodeSelector": {"zone": "a"}, "containers": [{"name": "c", "image": "report:1"}]}}}},
        }}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some", "namespace": "shop"}, "rules": [
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
            {"apiGroups": ["apps.kruise.io"], "resources": ["imagelistpulljobs"], "verbs": ["create", "get", "list", "watch"]},
        ]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "some", "namespace": "shop"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "some"}]}),
    ] {
        cluster.apply(&object).await;
    }

    let (web, notes) = cluster.job("deployment.apps/web", &admin).await;
    assert_eq!(notes, "");
    assert_eq!(web["spec"]["images"], json!(["web:1"]));
    assert_eq!(web["spec"]["selector"], json!({"matchLabels": {"zone": "a"}}));
    assert_eq!(web["spec"]["pullSecrets"], json!(["login"]));
    let name = web["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("images-of-deployment-web-"), "{name}");

    // No selector can say it: the nodes are named, without the one whose taint is not tolerated.
    let (either, _) = cluster.job("deploy/either", &admin).await;
    assert_eq!(either["spec"]["selector"], json!({"names": ["a", "b"]}));

    let (all, notes) = cluster.job("namespace/shop", &admin).await;
    assert_eq!(all["spec"]["images"], json!(["either:1", "web:1", "report:1"]));
    assert_eq!(all["spec"]["selector"], json!({"names": ["a", "b"]}));
    assert!(
        notes.starts_with("note: the workloads run on different nodes, "),
        "{notes}"
    );

    let some = cluster.acting_as("some");
    let (either, notes) = cluster.job("deploy/either", &some).await;
    assert_eq!(either["spec"]["selector"], Value::Null, "nodes cannot be listed");
    assert!(
        notes.contains("the pull secrets of the ServiceAccount shop/default are not used: "),
        "{notes}"
    );
    assert!(notes.contains("the nodes cannot be listed, "), "{notes}");
    let run = ["run", "-n", "shop", "--kubeconfig", &some, "--images-of"];
    let refused = cluster.larder.run(&[&run[..], &["ds/web"]].concat()).await.badly(3);
    assert!(refused.starts_with("reading daemonset web: not allowed: "), "{refused}");
    let refused = cluster
        .larder
        .run(&[&run[..], &["namespace/shop"]].concat())
        .await
        .badly(3);
    assert!(
        refused.starts_with("listing the deployments of the namespace shop: not allowed: "),
        "{refused}"
    );
}
