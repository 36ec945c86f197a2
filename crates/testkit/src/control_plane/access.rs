//! How to reach a control plane, as plain data: clients are made from it anew, because a client lives in the async
//! runtime that made it and every test has its own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod, PodSpec, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::certificates::Certificates;
use crate::{Error, KubernetesVersion, Port, Result, Scratch, unique_name};

/// A question whether the server is ready may not take longer; the next one follows.
const PROBE: Duration = Duration::from_secs(5);

/// Address, certificate authority and tokens of a control plane.
#[derive(Clone, Serialize, Deserialize)]
pub struct Access {
    address: SocketAddr,
    server: String,
    ca_pem: String,
    ca_der: Vec<u8>,
    admin_token: String,
    node_tokens: BTreeMap<String, String>,
    kubeconfig: PathBuf,
}

impl Access {
    pub(super) fn create(
        scratch: &Scratch,
        port: &Port,
        certificates: &Certificates,
        nodes: &[String],
    ) -> Result<Self> {
        let new_token = || format!("{:032x}", rand::random::<u128>());
        let admin_token = new_token();
        let node_tokens: BTreeMap<_, _> = nodes.iter().map(|node| (node.clone(), new_token())).collect();
        let of_nodes = node_tokens
            .iter()
            .map(|(node, token)| format!("{token},system:node:{node},{node},system:nodes\n"));
        let tokens: String = [format!("{admin_token},admin,admin,system:masters\n")]
            .into_iter()
            .chain(of_nodes)
            .collect();
        scratch.write("tokens.csv", tokens)?;
        let mut access = Self {
            address: port.address(),
            server: format!("https://{}", port.address()),
            ca_pem: certificates.ca.pem(),
            ca_der: certificates.ca.der().to_vec(),
            admin_token,
            node_tokens,
            kubeconfig: PathBuf::new(),
        };
        access.kubeconfig = access.write_kubeconfig(scratch.path(), "admin", &access.admin_token)?;
        Ok(access)
    }

    /// The same control plane by way of another address, for example a [`Throttle`](crate::Throttle) in front of it.
    pub fn through(&self, address: SocketAddr) -> Result<Self> {
        let mut access = Self {
            address,
            server: format!("https://{address}"),
            ..self.clone()
        };
        let folder = self.kubeconfig.parent().unwrap_or(Path::new("."));
        access.kubeconfig = access.write_kubeconfig(folder, &format!("admin-{}", address.port()), &self.admin_token)?;
        Ok(access)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's address, for example `https://127.0.0.1:20123`.
    pub fn base_url(&self) -> &str {
        &self.server
    }

    /// The certificate authority that signed the server's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The token that has all permissions.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// A kubeconfig file with all permissions, for kubectl and for programs under test.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client with all permissions.
    pub fn client(&self) -> Result<Client> {
        self.client_with_token(&self.admin_token)
    }

    /// A client that presents this token.
    pub fn client_with_token(&self, token: &str) -> Result<Client> {
        self.connect(self.config(token)?)
    }

    /// A client that acts as this user, without the permissions of the admin.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let mut config = self.config(&self.admin_token)?;
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(groups.iter().map(|&group| group.to_owned()).collect());
        self.connect(config)
    }

    /// The configuration of a client with this token, to be changed by the caller.
    pub fn config(&self, token: &str) -> Result<Config> {
        let url = self.server.parse().map_err(|error| Error::Io {
            doing: format!("reading the address {}", self.server),
            source: std::io::Error::other(error),
        })?;
        let mut config = Config::new(url);
        config.root_cert = Some(vec![self.ca_der.clone()]);
        config.auth_info.token = Some(token.to_owned().into());
        Ok(config)
    }

    /// A kubeconfig file in `folder` for this token.
    pub fn write_kubeconfig(&self, folder: &Path, name: &str, token: &str) -> Result<PathBuf> {
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.server, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        });
        let path = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, content.to_string()).map_err(Error::io(format!("writing {}", path.display())))?;
        Ok(path)
    }

    /// The token of a node that was named when the control plane started.
    pub(crate) fn node_token(&self, node: &str) -> Result<&str> {
        self.node_tokens.get(node).map(String::as_str).ok_or_else(|| Error::Io {
            doing: format!("looking for the token of {node}: name it in Options::nodes"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// A token of a service account, made by the API server. If a Node is named, the token carries the node claim where
    /// this version of Kubernetes knows it: bound to the Node, or to a pod on it.
    pub async fn service_account_token(&self, namespace: &str, name: &str, node: Option<&str>) -> Result<String> {
        let doing = || Error::kube(format!("asking for a token of service account {namespace}/{name}"));
        let client = self.client()?;
        let bound_object_ref = match node {
            None => None,
            Some(node) => bound_to(client.clone(), namespace, name, node).await.map_err(doing())?,
        };
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref,
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(client, namespace);
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(doing())?;
        Ok(answer.status.map(|status| status.token).unwrap_or_default())
    }

    /// A client whose failed requests are not repeated, for questions that are asked again anyway.
    pub(super) fn client_without_retry(&self) -> Result<Client> {
        let mut config = self.config(&self.admin_token)?;
        config.default_retry = false;
        config.connect_timeout = Some(PROBE);
        config.read_timeout = Some(PROBE);
        self.connect(config)
    }

    fn connect(&self, config: Config) -> Result<Client> {
        static PROVIDER: Once = Once::new();
        // Fails only if the test has installed one before.
        PROVIDER.call_once(|| drop(rustls::crypto::aws_lc_rs::default_provider().install_default()));
        Client::try_from(config).map_err(Error::kube(format!("making a client for {}", self.server)))
    }
}

/// What a token is bound to so that it names this node; nothing where tokens name no node.
async fn bound_to(
    client: Client,
    namespace: &str,
    account: &str,
    node: &str,
) -> kube::Result<Option<BoundObjectReference>> {
    let version = KubernetesVersion::tested();
    let reference = |kind: &str, metadata: ObjectMeta| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name,
        uid: metadata.uid,
    };
    if version.binds_tokens_to_nodes() {
        let found = Api::<Node>::all(client).get(node).await?;
        return Ok(Some(reference("Node", found.metadata)));
    }
    if !version.enforces_node_policy() {
        return Ok(None);
    }
    let mut pod = Pod {
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            service_account_name: Some(account.to_owned()),
            containers: vec![Container {
                name: "agent".to_owned(),
                image: Some("agent".to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    };
    pod.metadata.name = Some(unique_name(account));
    let created = Api::<Pod>::namespaced(client, namespace)
        .create(&PostParams::default(), &pod)
        .await?;
    Ok(Some(reference("Pod", created.metadata)))
}

/// Leaves out the token.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// All start-up work of the server is done and the namespace `default`, which it makes last, is there.
pub(super) async fn is_ready(client: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    client
        .request_text(request)
        .await
        .map_err(|error| format!("/readyz: {error}"))?;
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .get("default")
        .await
        .map_err(|error| format!("namespace default: {error}"))?;
    Ok(())
}
