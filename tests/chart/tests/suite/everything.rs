//! Every value at once: each has an effect, and a real API server accepts the result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use larder_testkit::{ControlPlane, KubernetesVersion, Options, Scratch, helm};
use serde_json::{Value, json};

use crate::apply::must;
use crate::chart::{NAMESPACE, RELEASE, folder, template};

/// Where `everything.yaml` says that objects go.
const NAMESPACES: [&str; 3] = ["elsewhere", "monitoring", "grafana"];

/// Values that cannot go back to their default, or that `everything.yaml` leaves there because another value excludes them
/// or has an effect only with them; with what to set instead.
fn alternatives() -> Vec<(&'static str, Value)> {
    vec![
        ("daemon.credentialProvider.configmap", json!("providers")),
        ("daemon.credentialProvider.configFile", json!("/etc/other.yaml")),
        ("daemon.credentialProvider.hostPath", json!("/opt/other")),
        ("extraCA.configMap", json!("authorities")),
        ("agent.runtime.configDir", json!("/etc")),
        ("agent.runtime.hostsDir", json!("")),
        ("kubeEdge.runtime.configDir", json!("/etc")),
        ("kubeEdge.runtime.hostsDir", json!("")),
        ("agent.image.registry", json!("two.example.com")),
        ("agent.image.tag", json!("3.2.1")),
        ("controller.updateStrategy.type", json!("Recreate")),
        ("agent.updateStrategy.type", json!("OnDelete")),
        ("controller.serviceAccount.create", json!(false)),
        ("agent.serviceAccount.create", json!(false)),
        ("controller.podDisruptionBudget.enabled", json!(false)),
        ("crds.install", json!(false)),
        ("uninstall.cleanUp", json!(false)),
        ("rbac.aggregate", json!(false)),
        ("flowControl.enabled", json!(false)),
        ("priorityClass.create", json!(false)),
    ]
}

/// Accepted for OpenKruise's sake; only the notes speak of it.
const WITHOUT_EFFECT: &str = "installation.roleListGroups";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("values/everything.yaml")
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// All values, as the generated README lists them.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// Takes a value out, so that its default applies. An empty object in its place would be merged with the default.
fn remove(values: &mut Value, path: &str) {
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().unwrap();
    let parent = keys.into_iter().fold(values, |value, key| &mut value[key]);
    parent.as_object_mut().unwrap().remove(last).unwrap();
}

/// What the chart renders with these values, for a version in which `policy: auto` and `policy: always` differ.
async fn rendered(scratch: &Scratch, name: &str, values: &Value) -> String {
    let file = scratch.path().join(format!("{name}.json"));
    std::fs::write(&file, values.to_string()).unwrap();
    let arguments = [
        "--kube-version=1.29.0".to_owned(),
        format!("--values={}", file.display()),
    ];
    template(&arguments)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A value that no template reads would be accepted and do nothing.
#[tokio::test]
async fn every_value_has_an_effect() {
    let everything = yaml(&file());
    let defaults = yaml(&folder().join("values.yaml"));
    let alternatives = alternatives();
    let scratch = Scratch::create("everything").unwrap();
    let usual = rendered(&scratch, "usual", &everything).await;
    let changed = |path: &String| {
        let mut values = everything.clone();
        let value = values.pointer(&pointer(path));
        let value = value.unwrap_or_else(|| panic!("everything.yaml lacks {path}"));
        if let Some((_, alternative)) = alternatives.iter().find(|(other, _)| other == path) {
            *values.pointer_mut(&pointer(path)).unwrap() = alternative.clone();
        } else {
            let default = defaults.pointer(&pointer(path)).unwrap();
            assert_ne!(value, default, "everything.yaml leaves {path} at its default");
            remove(&mut values, path);
        }
        if path == "extraCA.configMap" {
            values["extraCA"]["pem"] = json!("");
        }
        values
    };
    let documented: Vec<String> = documented().into_iter().filter(|path| path != WITHOUT_EFFECT).collect();
    assert!(documented.len() > 140, "{}", documented.len());
    let without_effect: Vec<String> = stream::iter(&documented)
        .map(|path| {
            let (values, scratch, usual) = (changed(path), &scratch, &usual);
            async move { (path.clone(), rendered(scratch, path, &values).await == *usual) }
        })
        .buffer_unordered(4)
        .filter_map(|(path, same)| async move { same.then_some(path) })
        .collect()
        .await;
    assert_eq!(without_effect, Vec::<String>::new());
}

/// The Prometheus Operator's kinds, as far as the chart uses them.
fn monitoring_crds() -> Vec<CustomResourceDefinition> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring-crds.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

#[tokio::test]
async fn a_real_api_server_installs_upgrades_and_uninstalls_the_chart_with_every_value_set() {
    let options = Options {
        crds: larder_api::crds().into_iter().chain(monitoring_crds()).collect(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    for namespace in NAMESPACES {
        must(plane.kubeconfig(), &["create", "namespace", namespace, "--save-config"]).await;
    }
    let version = KubernetesVersion::tested();
    // `policy: always` is for clusters that have the kind.
    let policy = if version.enforces_node_policy() {
        "always"
    } else {
        "auto"
    };
    let values = [
        format!("--values={}", file().display()),
        format!("--set=policy={policy}"),
    ];

    // Hooks included; each field is checked strictly.
    let scratch = Scratch::create("everything").unwrap();
    let whole = scratch.path().join("rendered.yaml");
    let mut arguments = values.to_vec();
    arguments.push(format!("--kube-version={}", version.as_str()));
    std::fs::write(&whole, template(&arguments).await.unwrap()).unwrap();
    let whole = whole.to_str().unwrap();
    must(
        plane.kubeconfig(),
        &["apply", "--dry-run=server", "--validate=strict", "-f", whole],
    )
    .await;

    // Without the hooks: no kubelet runs their pods here.
    let chart = folder();
    let namespace = format!("--namespace={NAMESPACE}");
    let install = [
        chart.to_str().unwrap(),
        &namespace,
        &values[0],
        &values[1],
        "--no-hooks",
    ];
    for verb in [["install", "--create-namespace"], ["upgrade", "--force=false"]] {
        let arguments = [&verb[..1], &[RELEASE], &install, &verb[1..]].concat();
        let output = helm(plane.kubeconfig(), &arguments).await.unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        assert!(!complaint.contains("unknown field"), "{complaint}");
    }
    let found = must(
        plane.kubeconfig(),
        &[
            "get",
            "-n",
            "elsewhere",
            "deployments,daemonsets,serviceaccounts,configmaps",
            "-o",
            "name",
        ],
    )
    .await;
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            "deployment.apps/cellar-controller",
            "daemonset.apps/cellar-agent",
            "daemonset.apps/cellar-agent-edge",
            "serviceaccount/pantry-hand",
            "serviceaccount/pantry-keeper",
            "configmap/cellar-extra-ca",
            "configmap/extra-object",
            "configmap/extra-text",
        ]
    );
    let monitors = must(
        plane.kubeconfig(),
        &[
            "get",
            "-n",
            "monitoring",
            "podmonitors,servicemonitors,prometheusrules",
            "-o",
            "name",
        ],
    )
    .await;
    assert_eq!(monitors.lines().count(), 7, "{monitors}");
    let uninstall = ["uninstall", RELEASE, &namespace, "--no-hooks"];
    let output = helm(plane.kubeconfig(), uninstall).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut kinds = "clusterroles,clusterrolebindings,flowschemas,priorityclasses".to_owned();
    if version.enforces_node_policy() {
        kinds.push_str(",validatingadmissionpolicies");
    }
    let left = must(plane.kubeconfig(), &["get", &kinds, "-o", "name"]).await;
    assert!(!left.contains("cellar") && !left.contains("larder"), "{left}");
}
