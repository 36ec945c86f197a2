//! A private Kubernetes control plane: etcd and kube-apiserver, on request kube-controller-manager and kube-scheduler, on
//! loopback.
//!
//! It answers as any cluster does, with RBAC, admission and CRDs; nodes are started by [`Node`](crate::Node). Without the
//! controller manager a deleted namespace stays Terminating and owned objects are not collected.

mod access;
mod certificates;
mod crds;
mod servers;
mod shared;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use self::access::Access;
use self::certificates::Certificates;
use crate::environment::{self, KUBERNETES};
use crate::{Error, Lifetime, Port, Process, Result, Scratch};

/// etcd and kube-apiserver are there within six seconds on an idle machine of two cores; on one that compiles at the
/// same time it has taken forty.
const READY: Duration = Duration::from_mins(2);

/// Where pods look for the API server: the first address of the range for Services. Each node leads it to the server.
pub(crate) const SERVICE: (std::net::Ipv4Addr, u16) = (std::net::Ipv4Addr::new(10, 111, 0, 1), 443);

/// What a control plane is started with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Applied, and waited for, before `start` returns.
    pub crds: Vec<CustomResourceDefinition>,
    /// Also run kube-controller-manager: namespaces are emptied and deleted, owned objects collected, every namespace
    /// has its `default` service account.
    pub controller_manager: bool,
    /// The nodes that may join, see [`Node`](crate::Node). If there are any, all controllers of kube-controller-manager
    /// and kube-scheduler run: what is created in the cluster comes to life.
    pub nodes: Vec<String>,
    /// More arguments for kube-apiserver.
    pub api_server_args: Vec<String>,
}

/// A running control plane. Everything ends when it is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    access: Access,
    crds: Vec<CustomResourceDefinition>,
    // Dropped in this order: clients of a server before the server, the folder last.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Process,
    etcd: Process,
    ports: [Port; 3],
    scratch: Scratch,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready and serves the CRDs.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_in(Scratch::create("control-plane")?, Lifetime::Handle, options).await
    }

    /// The control plane that all tests with these CRDs share: those of one process, and under nextest, which gives
    /// every test a process of its own, those of the whole run. Use a namespace or prefix per test
    /// ([`unique_name`](crate::unique_name)); a test that stops servers starts its own.
    pub async fn shared(crds: &[CustomResourceDefinition]) -> Result<Access> {
        shared::access(crds).await
    }

    async fn start_in(scratch: Scratch, lifetime: Lifetime, options: Options) -> Result<Self> {
        let ports = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let [etcd_client, etcd_peer, secure] = &ports;
        let certificates = Certificates::make()?;
        certificates.write(&scratch)?;
        let access = Access::create(&scratch, secure, &certificates, &options.nodes)?;

        let folder = scratch.path();
        let mut etcd = Process::start(servers::etcd(folder, lifetime, etcd_client, etcd_peer)?)?;
        servers::wait_for_etcd(&mut etcd, etcd_client).await?;
        let mut api_server = Process::start(servers::api_server(folder, lifetime, etcd_client, secure, &options)?)?;
        wait_for_api_server(&mut api_server, &access).await?;
        crds::apply(&access.client()?, &options.crds).await?;

        let has_nodes = !options.nodes.is_empty();
        let scheduler = if has_nodes {
            Some(Process::start(servers::scheduler(folder, lifetime, &access)?)?)
        } else {
            None
        };
        let controller_manager = if options.controller_manager || has_nodes {
            let mut process = Process::start(servers::controller_manager(folder, lifetime, &access, has_nodes)?)?;
            servers::wait_for_controller_manager(&mut process, &access.client()?).await?;
            Some(process)
        } else {
            None
        };
        Ok(Self {
            access,
            crds: options.crds,
            scheduler,
            controller_manager,
            api_server,
            etcd,
            ports,
            scratch,
        })
    }

    /// Lets the servers run on until the end of their lifetime.
    fn release(self) -> Access {
        let servers = [
            self.scheduler,
            self.controller_manager,
            Some(self.api_server),
            Some(self.etcd),
        ];
        servers.into_iter().flatten().for_each(Process::release);
        self.access
    }

    /// How to reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// A client with all permissions.
    pub fn client(&self) -> Result<kube::Client> {
        self.access.client()
    }

    /// The kubeconfig file with all permissions.
    pub fn kubeconfig(&self) -> &Path {
        self.access.kubeconfig()
    }

    /// Kills kube-apiserver: connections break, new ones are refused.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts kube-apiserver again at the same address and waits until it serves the CRDs.
    pub async fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.restart()?;
        wait_for_api_server(&mut self.api_server, &self.access).await?;
        crds::wait_until_served(&self.access.client()?, &self.crds).await
    }

    /// Stops kube-apiserver in its tracks: connections stay open and nothing answers.
    pub fn freeze_api_server(&self) -> Result<()> {
        self.api_server.freeze()
    }

    /// Lets kube-apiserver go on.
    pub fn thaw_api_server(&self) -> Result<()> {
        self.api_server.thaw()
    }

    /// Kills etcd: the API server still accepts connections, and fails the requests.
    pub fn kill_etcd(&mut self) -> Result<()> {
        self.etcd.kill()
    }

    /// Starts etcd again with its data and waits until the API server is ready with it.
    pub async fn restart_etcd(&mut self) -> Result<()> {
        self.etcd.restart()?;
        let [etcd_client, ..] = &self.ports;
        servers::wait_for_etcd(&mut self.etcd, etcd_client).await?;
        wait_for_api_server(&mut self.api_server, &self.access).await
    }

    /// Keeps a copy of etcd's data, as a backup would. etcd and kube-apiserver are stopped for it and started again.
    pub async fn back_up(&mut self) -> Result<Backup> {
        let copy = Scratch::create("etcd-backup")?;
        self.with_etcd_stopped(|data| copy_folder(data, &copy.path().join("etcd")))
            .await?;
        Ok(Backup(copy))
    }

    /// Puts etcd's data back to what they were: resource versions go backwards.
    pub async fn restore(&mut self, backup: &Backup) -> Result<()> {
        self.with_etcd_stopped(|data| {
            std::fs::remove_dir_all(data)?;
            copy_folder(&backup.0.path().join("etcd"), data)
        })
        .await
    }

    async fn with_etcd_stopped(&mut self, work: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.kill()?;
        work(&self.scratch.path().join("etcd")).map_err(Error::io("copying the data of etcd"))?;
        self.etcd.restart()?;
        let [etcd_client, ..] = &self.ports;
        servers::wait_for_etcd(&mut self.etcd, etcd_client).await?;
        self.restart_api_server().await
    }

    /// The ids of the processes that run now.
    pub fn pids(&self) -> Vec<u32> {
        [
            self.scheduler.as_ref(),
            self.controller_manager.as_ref(),
            Some(&self.api_server),
            Some(&self.etcd),
        ]
        .into_iter()
        .flatten()
        .filter_map(Process::pid)
        .collect()
    }
}

/// A copy of etcd's data.
#[derive(Debug)]
pub struct Backup(Scratch);

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

async fn wait_for_api_server(process: &mut Process, access: &Access) -> Result<()> {
    let client = access.client_without_retry()?;
    process
        .wait_ready(READY, async || access::is_ready(&client).await)
        .await
}

/// The path of the API server that the tests run against.
fn kube_apiserver() -> Result<std::path::PathBuf, Error> {
    let version = environment::kubernetes_version();
    environment::cached(&format!("kubernetes-{version}"), "kube-apiserver")
}

/// The path of a program of the newest Kubernetes.
fn kubernetes(program: &str) -> Result<std::path::PathBuf, Error> {
    environment::cached(KUBERNETES, program)
}
