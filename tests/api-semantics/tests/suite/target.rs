//! The servers that the suite runs on. Every test runs on all of them, unchanged.

use kube::Client;
use larder_testkit::{ControlPlane, unique_name};
use serde_json::json;

use crate::server::Server;

/// A server to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// etcd and kube-apiserver, shared by all tests.
    KubeApiserver,
}

impl Target {
    /// The server, with a namespace that no other test uses.
    pub(crate) async fn server(self) -> Server {
        let server = match self {
            Target::KubeApiserver => {
                let access = ControlPlane::shared(&larder_api::crds())
                    .await
                    .expect("a control plane that takes the CRDs");
                let client: Client = access.client().expect("a client");
                Server::new(client, access.kubeconfig().to_owned(), unique_name("semantics"))
            }
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace()}});
        server.post("/api/v1/namespaces", &namespace).await.accepted();
        server
    }
}
