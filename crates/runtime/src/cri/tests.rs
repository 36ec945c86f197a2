use larder_model::Reason;
use rstest::rstest;

use super::*;
use crate::{
    Credential, MARKER_ANNOTATION, Sandbox,
    test_server::{Behaviour, TestServer},
};

struct Cri {
    runtime: CriRuntime,
    server: TestServer,
    _folder: tempfile::TempDir,
}

impl Cri {
    fn start(behaviour: Behaviour) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start(&folder.path().join("cri.sock"), behaviour);
        Self {
            runtime: CriRuntime::new(&server.endpoint(), "/").unwrap(),
            server,
            _folder: folder,
        }
    }
}

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

fn held(id: u32, tags: &[&str], digests: &[&str]) -> proto::Image {
    proto::Image {
        id: format!("sha256:{id:064x}"),
        repo_tags: tags.iter().map(ToString::to_string).collect(),
        repo_digests: digests.iter().map(ToString::to_string).collect(),
        size: 7,
        ..proto::Image::default()
    }
}

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

#[rstest]
#[case::in_pieces(true)]
#[case::old_runtime_in_one_piece(false)]
#[tokio::test]
async fn lists_every_image(#[case] streams: bool) {
    let images: Vec<_> = (0..5)
        .map(|id| held(id, &[&format!("docker.io/library/app:{id}")], &[]))
        .collect();
    let cri = Cri::start(Behaviour {
        images,
        streams,
        ..Behaviour::default()
    });
    let listed = cri.runtime.list().await.unwrap();
    assert_eq!(listed.len(), 5);
    assert!(listed.iter().any(|held| held.answers_to(&image("app:4"))));
}

/// 60,000 images are more than gRPC's usual limit of 4 MiB allows.
#[tokio::test]
async fn a_long_list_in_one_piece_is_taken() {
    let images: Vec<_> = (0..60_000)
        .map(|id| held(id, &[&format!("docker.io/library/app:{id}")], &[]))
        .collect();
    let cri = Cri::start(Behaviour {
        images,
        ..Behaviour::default()
    });
    assert_eq!(cri.runtime.list().await.unwrap().len(), 60_000);
}

#[tokio::test]
async fn a_digest_counts_only_if_the_runtime_names_it() {
    let cri = Cri::start(Behaviour {
        images: vec![held(
            1,
            &["docker.io/library/app:1"],
            &[&format!("docker.io/library/app@{DIGEST}")],
        )],
        ..Behaviour::default()
    });
    let runtime = &cri.runtime;
    assert!(runtime.status(&image("app:1")).await.unwrap().is_some());
    assert!(
        runtime
            .status(&image(&format!("app@{DIGEST}")))
            .await
            .unwrap()
            .is_some()
    );
    assert!(runtime.status(&image(&format!("app@{OTHER}"))).await.unwrap().is_none());
    assert!(runtime.status(&image("app:2")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_pull_carries_name_login_labels_and_the_marker() {
    let behaviour = Behaviour {
        images: vec![held(1, &[], &[&format!("docker.io/library/app@{DIGEST}")])],
        ..Behaviour::default()
    };
    let cri = Cri::start(behaviour.clone());
    let pulled = cri
        .runtime
        .pull(&PullRequest {
            auth: Some(Credential::basic("robot", "secret")),
            sandbox: Sandbox {
                labels: [("team".to_owned(), "a".to_owned())].into(),
                annotations: [("note".to_owned(), "b".to_owned())].into(),
            },
            ..PullRequest::new(image(&format!("app@{DIGEST}")))
        })
        .await
        .unwrap();
    assert_eq!(pulled.digest.unwrap().to_string(), DIGEST);

    let calls = behaviour.pulls.lock().unwrap();
    let call = &calls[0];
    // A digest goes out as name@digest, never in the place of a tag.
    assert_eq!(call.image.as_ref().unwrap().image, format!("app@{DIGEST}"));
    let auth = call.auth.as_ref().unwrap();
    assert_eq!((auth.username.as_str(), auth.password.as_str()), ("robot", "secret"));
    assert_eq!(auth.server_address, "https://registry-1.docker.io");
    let sandbox = call.sandbox_config.as_ref().unwrap();
    assert_eq!(sandbox.labels["team"], "a");
    assert_eq!(sandbox.annotations["note"], "b");
    assert_eq!(sandbox.annotations[MARKER_ANNOTATION.0], MARKER_ANNOTATION.1);
}

/// A runtime that says "pulled" and then has no such image would make us report a success that is none.
#[tokio::test]
async fn a_pull_that_leaves_nothing_behind_is_no_success() {
    let cri = Cri::start(Behaviour::default());
    let error = cri.runtime.pull(&PullRequest::new(image("app:1"))).await.unwrap_err();
    assert!(matches!(error, RuntimeError::NotShown { .. }), "{error:?}");
}

#[tokio::test]
async fn a_runtime_that_hangs_is_down_after_the_limit() {
    let cri = Cri::start(Behaviour {
        hangs: true,
        ..Behaviour::default()
    });
    let runtime = CriRuntime::with_limit(&cri.server.endpoint(), "/", Duration::from_millis(50)).unwrap();
    let error = runtime.version().await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unanswered { .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::RuntimeDown);
}

#[tokio::test]
async fn a_runtime_that_comes_later_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let runtime = CriRuntime::new(&RuntimeEndpoint::at(&socket), "/").unwrap();
    let error = runtime.version().await.unwrap_err();
    assert_eq!(error.reason(), Reason::RuntimeDown);
    assert!(error.text().contains("No such file"), "{}", error.text());

    let _server = TestServer::start(&socket, Behaviour::default());
    assert_eq!(runtime.version().await.unwrap().to_string(), "cri-o 1.36.0");
}
