//! What the API server says to it.

use std::path::Path;

use larder_testkit::{ControlPlane, Kubectl, KubernetesVersion, Options, Scratch, kubectl};
use rstest::rstest;

use crate::chart::{NAMESPACE, SETS, manifests, set, template};

pub(crate) async fn must(kubeconfig: &Path, arguments: &[&str]) -> String {
    let output = kubectl(Kubectl::Current, kubeconfig, arguments).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "kubectl {}: {said}{complaint}",
        arguments.join(" ")
    );
    // Unknown fields, deprecated versions and policies that cannot be evaluated are warnings.
    assert!(!complaint.contains("Warning"), "{complaint}");
    said
}

/// Each field is checked strictly: what the API server would drop is an error.
#[tokio::test]
async fn the_api_server_accepts_every_set_of_values() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let scratch = Scratch::create("chart").unwrap();
    must(plane.kubeconfig(), &["create", "namespace", NAMESPACE]).await;
    for name in SETS {
        let mut arguments = set(name);
        arguments.push(format!("--kube-version={}", KubernetesVersion::tested().as_str()));
        let file = scratch.path().join("rendered.yaml");
        std::fs::write(&file, template(&arguments).await.unwrap()).unwrap();
        let file = file.to_str().unwrap();
        let said = must(
            plane.kubeconfig(),
            &["apply", "--dry-run=server", "--validate=strict", "-f", file],
        )
        .await;
        assert!(said.lines().count() > 25, "{name}: {said}");
    }
}

#[rstest]
#[case::file("-f", "larder.yaml")]
#[case::kustomize("-k", "")]
#[tokio::test]
async fn the_plain_manifests_are_applied_at_once_and_again(#[case] flag: &str, #[case] file: &str) {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let path = manifests().join(file);
    let path = path.to_str().unwrap();
    for _ in 0..2 {
        must(
            plane.kubeconfig(),
            &["apply", "--server-side", "--validate=strict", flag, path],
        )
        .await;
    }
    let found = must(
        plane.kubeconfig(),
        &["get", "-n", NAMESPACE, "deployments,daemonsets", "-o", "name"],
    )
    .await;
    assert_eq!(
        found,
        "deployment.apps/larder-controller\ndaemonset.apps/larder-agent\n"
    );
    must(
        plane.kubeconfig(),
        &["get", "imagepulljobs,imagelistpulljobs,imageprepulljobs,nodeimages"],
    )
    .await;
    let clean_up = manifests().join("uninstall.yaml");
    must(
        plane.kubeconfig(),
        &["apply", "--validate=strict", "-f", clean_up.to_str().unwrap()],
    )
    .await;
}
