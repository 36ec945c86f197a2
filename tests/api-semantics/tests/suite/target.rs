//! The servers that the suite runs on. Every test runs on all of them, unchanged.

use kube::Client;
use larder_localplane::{Config, Localplane, Tokens};
use larder_testkit::{ControlPlane, KubernetesVersion};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::server::Server;

/// A server to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// etcd and kube-apiserver, shared by all tests.
    KubeApiserver,
    /// The embedded server, a new one for each test: requests reach it in process, kubectl over loopback.
    Localplane,
}

impl Target {
    /// The server, with a namespace that no other test uses.
    pub(crate) async fn server(self) -> Server {
        let server = match self {
            Target::KubeApiserver => kube_apiserver().await,
            Target::Localplane => localplane().await,
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace()}});
        server.post("/api/v1/namespaces", &namespace).await.accepted();
        server
    }
}

async fn kube_apiserver() -> Server {
    let access = ControlPlane::shared(&larder_api::crds())
        .await
        .expect("a control plane that takes the CRDs");
    let client = access.client().expect("a client");
    Server::new(client, access.kubeconfig().to_owned(), ())
}

async fn localplane() -> Server {
    let plane = Localplane::start(Config::new(larder_api::crds()))
        .await
        .expect("a server that takes the CRDs");
    let token = SecretString::from("token-of-the-suite");
    let listening = plane
        .listen("127.0.0.1:0".parse().unwrap(), Tokens::admin(token.clone()))
        .await
        .expect("a free port");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, listening.kubeconfig(&token).expose_secret()).unwrap();
    let client = Client::new(plane.service(), "default");
    Server::new(client, kubeconfig, (plane, listening, folder))
}

/// Otherwise the suite would run on another server than the one that its results are written down for.
#[tokio::test]
async fn the_api_server_says_the_version_that_was_asked_for() {
    let access = ControlPlane::shared(&larder_api::crds()).await.unwrap();
    let version = access.client().unwrap().apiserver_version().await.unwrap();
    assert_eq!(
        version.git_version,
        format!("v{}", KubernetesVersion::tested().as_str())
    );
}
