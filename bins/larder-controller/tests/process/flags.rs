//! Wrong flags and configuration: one sentence, exit code 2.

use std::net::TcpListener;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

const PROGRAM: &str = env!("CARGO_BIN_EXE_larder-controller");

/// Exit code and standard error of a start that must fail.
async fn fails(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .kill_on_drop(true);
    let output = timeout(Duration::from_secs(20), command.output())
        .await
        .unwrap()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn is_one_sentence(text: &str) -> bool {
    text.starts_with("larder-controller: ") && text.lines().count() == 1
}

#[tokio::test]
async fn an_unreadable_feature_gate() {
    let (code, said) = fails(&["--feature-gates", "ImagePullJobGate=maybe"], &[]).await;
    assert_eq!(code, Some(2));
    assert!(
        is_one_sentence(&said) && said.contains("`ImagePullJobGate=maybe` in --feature-gates"),
        "{said}"
    );
}

#[tokio::test]
async fn the_same_by_environment() {
    let (code, said) = fails(&[], &[("LARDER_FEATURE_GATES", "ImagePullJobGate")]).await;
    assert_eq!(code, Some(2));
    assert!(
        is_one_sentence(&said) && said.contains("`ImagePullJobGate` in --feature-gates"),
        "{said}"
    );
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there() {
    let (code, said) = fails(&["--kubeconfig", "/nowhere/config"], &[]).await;
    assert_eq!(code, Some(2));
    assert!(
        is_one_sentence(&said) && said.contains("cannot use the kubeconfig /nowhere/config"),
        "{said}"
    );
}

#[tokio::test]
async fn no_cluster_at_all() {
    let (code, said) = fails(&[], &[("HOME", "/nowhere")]).await;
    assert_eq!(code, Some(2));
    assert!(
        is_one_sentence(&said) && said.contains("no cluster to talk to"),
        "{said}"
    );
}

#[tokio::test]
async fn an_unreadable_log_filter() {
    let (code, said) = fails(&["--log", "larder=loud"], &[]).await;
    assert_eq!(code, Some(2));
    assert!(is_one_sentence(&said) && said.contains("is no log filter"), "{said}");
}

#[tokio::test]
async fn an_address_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let content = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], \
                   clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}";
    std::fs::write(&kubeconfig, content).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--listen",
        &address,
        "--log",
        "off",
    ];
    let (code, said) = fails(&arguments, &[]).await;
    assert_eq!(code, Some(2));
    assert!(
        is_one_sentence(&said) && said.contains(&format!("cannot listen on {address}")),
        "{said}"
    );
}
