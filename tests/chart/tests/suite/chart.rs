//! The chart and how it is rendered.

use std::path::{Path, PathBuf};

use larder_testkit::helm;
use serde_json::Value;

pub(crate) const NAMESPACE: &str = "larder-system";
pub(crate) const RELEASE: &str = "larder";

/// The sets of values that the chart ships, and none.
pub(crate) const SETS: [&str; 7] = ["", "crio", "k0s", "k3s", "kubeedge", "microk8s", "rke2"];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests")
}

/// The arguments that choose a set of values.
pub(crate) fn set(name: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "--values={}",
        folder().join(format!("values/{name}.yaml")).display()
    )]
}

/// `helm template` with more arguments: what it prints, or what it complains about.
pub(crate) async fn template(arguments: &[String]) -> Result<String, String> {
    run(&["template", RELEASE], arguments).await
}

/// `helm VERB [RELEASE] CHART --namespace … ARGUMENTS`, without a cluster.
pub(crate) async fn run(verb: &[&str], arguments: &[String]) -> Result<String, String> {
    let chart = folder();
    let mut all: Vec<String> = verb.iter().map(|&word| word.to_owned()).collect();
    all.push(chart.display().to_string());
    all.push(format!("--namespace={NAMESPACE}"));
    all.extend_from_slice(arguments);
    let output = helm(Path::new("/dev/null"), &all).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The objects, rendered for this version of Kubernetes.
pub(crate) async fn objects(kubernetes: &str, arguments: &[String]) -> Vec<Value> {
    let mut all = vec![format!("--kube-version={kubernetes}")];
    all.extend_from_slice(arguments);
    let text = template(&all).await.unwrap();
    let documents = text
        .split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"));
    documents
        .filter(|document| document.lines().any(|line| !line.is_empty() && !line.starts_with('#')))
        .map(|document| serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}")))
        .collect()
}

/// The one object of this kind and name.
pub(crate) fn the<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "two of {kind} {name}");
    one
}

pub(crate) fn has(objects: &[Value], kind: &str) -> bool {
    objects.iter().any(|object| object["kind"] == kind)
}

/// The arguments of an object's first container.
pub(crate) fn arguments_of(object: &Value) -> Vec<&str> {
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect()
}
