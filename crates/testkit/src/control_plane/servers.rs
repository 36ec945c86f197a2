//! The four programs: their arguments, and how to see that each is ready.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use tokio::net::TcpStream;

use super::{Access, Options, READY, kube_apiserver, kubernetes};
use crate::environment::{ETCD_DEBIAN, cached};
use crate::{Lifetime, Port, Process, Program, Result};

/// Addresses of Services; the first one is that of the API server itself, see [`SERVICE`](super::SERVICE).
const SERVICES: &str = "10.111.0.0/16";

/// The controllers that tests without nodes need: namespaces are emptied, owned objects collected, service accounts made.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,serviceaccount-controller,\
                           root-ca-certificate-publisher-controller";

pub(super) fn etcd(folder: &Path, lifetime: Lifetime, client: &Port, peer: &Port) -> Result<Program> {
    let client = format!("http://{}", client.address());
    let peer = format!("http://{}", peer.address());
    Ok(Program {
        name: "etcd",
        path: cached(ETCD_DEBIAN, "etcd")?,
        args: vec![
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--logger=zap".into(),
            "--log-level=warn".into(),
        ],
        env: vec![],
        log: folder.join("etcd.log"),
        lifetime,
    })
}

/// A member of a cluster of one serves clients as soon as it listens.
pub(super) async fn wait_for_etcd(process: &mut Process, client: &Port) -> Result<()> {
    let address = client.address();
    process
        .wait_ready(READY, async || {
            TcpStream::connect(address).await.map(drop).map_err(|e| e.to_string())
        })
        .await
}

pub(super) fn api_server(
    folder: &Path,
    lifetime: Lifetime,
    etcd: &Port,
    secure: &Port,
    options: &Options,
) -> Result<Program> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut args = vec![
        format!("--etcd-servers=http://{}", etcd.address()),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={}", secure.number()),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("token.pub")),
        format!("--service-account-signing-key-file={}", file("token.key")),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--endpoint-reconciler-type=none".into(),
        "--allow-privileged=true".into(),
    ];
    if !options.controller_manager && options.nodes.is_empty() {
        // Nobody makes the service accounts that this plugin asks for, and no Pod could be created.
        args.push("--disable-admission-plugins=ServiceAccount".into());
    }
    if !options.nodes.is_empty() {
        args.push("--enable-admission-plugins=NodeRestriction".into());
    }
    args.extend(options.api_server_args.iter().cloned());
    Ok(Program {
        name: "kube-apiserver",
        path: kube_apiserver()?,
        args,
        env: vec![],
        log: folder.join("kube-apiserver.log"),
        lifetime,
    })
}

pub(super) fn controller_manager(
    folder: &Path,
    lifetime: Lifetime,
    access: &Access,
    all_controllers: bool,
) -> Result<Program> {
    let controllers = if all_controllers { "*" } else { CONTROLLERS };
    Ok(Program {
        name: "kube-controller-manager",
        path: kubernetes("kube-controller-manager")?,
        args: vec![
            format!("--kubeconfig={}", access.kubeconfig().display()),
            format!("--controllers={controllers}"),
            format!("--root-ca-file={}", folder.join("ca.crt").display()),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ],
        env: vec![],
        log: folder.join("kube-controller-manager.log"),
        lifetime,
    })
}

pub(super) fn scheduler(folder: &Path, lifetime: Lifetime, access: &Access) -> Result<Program> {
    Ok(Program {
        name: "kube-scheduler",
        path: kubernetes("kube-scheduler")?,
        args: vec![
            format!("--kubeconfig={}", access.kubeconfig().display()),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ],
        env: vec![],
        log: folder.join("kube-scheduler.log"),
        lifetime,
    })
}

/// It serves nothing that could be asked; what it does first is to make the service account of `default`.
pub(super) async fn wait_for_controller_manager(process: &mut Process, client: &kube::Client) -> Result<()> {
    const READY: Duration = Duration::from_mins(1);
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    process
        .wait_ready(READY, async || {
            accounts.get("default").await.map(drop).map_err(|e| e.to_string())
        })
        .await
}
