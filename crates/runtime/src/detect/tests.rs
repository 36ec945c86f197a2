use rstest::rstest;

use super::*;
use crate::test_server::{Behaviour, TestServer};

fn answering(root: &Path, socket: &str, name: &'static str) -> TestServer {
    let behaviour = Behaviour {
        name,
        ..Behaviour::default()
    };
    TestServer::start(&root.join(socket), behaviour)
}

#[rstest]
#[case::k3s("run/k3s/containerd/containerd.sock")]
#[case::k0s("run/k0s/containerd.sock")]
#[case::microk8s("var/snap/microk8s/common/run/containerd.sock")]
#[case::containerd("run/containerd/containerd.sock")]
#[case::crio("run/crio/crio.sock")]
#[case::cri_dockerd("run/cri-dockerd.sock")]
#[tokio::test]
async fn finds_the_socket_that_is_there(#[case] socket: &str) {
    let root = tempfile::tempdir().unwrap();
    let server = answering(root.path(), socket, "some-runtime");
    let detected = detect(root.path()).await.unwrap();
    assert_eq!(detected.endpoint, server.endpoint());
    assert_eq!(detected.version.name, "some-runtime");
}

#[rstest]
#[case::of_a_distribution("run/k3s/containerd/containerd.sock", "run/containerd/containerd.sock")]
#[case::containerd_before_crio("run/containerd/containerd.sock", "run/crio/crio.sock")]
#[case::crio_before_docker("run/crio/crio.sock", "run/cri-dockerd.sock")]
#[tokio::test]
async fn of_two_that_answer_the_first_wins(#[case] first: &str, #[case] second: &str) {
    let root = tempfile::tempdir().unwrap();
    let _second = answering(root.path(), second, "second");
    let _first = answering(root.path(), first, "first");
    assert_eq!(detect(root.path()).await.unwrap().version.name, "first");
}

#[tokio::test]
async fn one_that_does_not_answer_is_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run/containerd");
    std::fs::create_dir_all(&folder).unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder.join("containerd.sock")).unwrap());
    let _crio = answering(root.path(), "run/crio/crio.sock", "cri-o");
    assert_eq!(detect(root.path()).await.unwrap().version.name, "cri-o");
}

/// Docker brings a containerd whose CRI is off.
#[tokio::test]
async fn a_containerd_without_cri_is_passed_over_and_named() {
    let root = tempfile::tempdir().unwrap();
    let behaviour = Behaviour {
        without_cri: true,
        ..Behaviour::default()
    };
    let _dockers = TestServer::start(&root.path().join("run/containerd/containerd.sock"), behaviour);
    let nothing = detect(root.path()).await.unwrap_err();
    assert!(nothing.to_string().contains("disabled_plugins"), "{nothing}");
    let _docker = answering(root.path(), "run/cri-dockerd.sock", "docker");
    assert_eq!(detect(root.path()).await.unwrap().version.name, "docker");
}

#[tokio::test]
async fn says_what_it_tried_and_why_each_was_none() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run/containerd");
    std::fs::create_dir_all(&folder).unwrap();
    // A socket that nobody listens on any more, as a crash leaves it behind.
    drop(std::os::unix::net::UnixListener::bind(folder.join("containerd.sock")).unwrap());
    std::fs::write(root.path().join("run/crio.sock"), "").unwrap();

    let nothing = detect(root.path()).await.unwrap_err();
    assert_eq!(nothing.tried.len(), SOCKETS.len());
    let text = nothing.to_string();
    for expected in [
        "--runtime-endpoint",
        "run/k3s/containerd/containerd.sock is not there",
        "run/crio.sock is no socket",
        "Connection refused",
    ] {
        assert!(text.contains(expected), "`{expected}` is not in: {text}");
    }
}
