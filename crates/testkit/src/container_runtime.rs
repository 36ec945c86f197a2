//! Container runtimes of every supported kind behind one face, for tests that hold for all of them.

use std::path::PathBuf;

use crate::cri_o::CriO;
use crate::docker::Docker;
use crate::{Containerd, ContainerdOptions, ContainerdVersion, Result};

/// Which container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// containerd.
    Containerd(ContainerdVersion),
    /// CRI-O.
    CriO,
    /// Docker behind cri-dockerd.
    Docker,
}

/// What a runtime is started with.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Which one.
    pub kind: RuntimeKind,
    /// Gives it a disk of this many bytes for images, to be filled up by tests.
    pub disk_size: Option<u64>,
    /// The mirror of docker.io, `127.0.0.1:20123`. Of all registries this is the one for which every runtime can have a
    /// mirror.
    pub docker_hub_mirror: Option<String>,
}

impl RuntimeOptions {
    /// The usual settings.
    pub fn new(kind: RuntimeKind) -> Self {
        Self {
            kind,
            disk_size: None,
            docker_hub_mirror: None,
        }
    }
}

/// A running container runtime with CRI; it ends, and its images go, when it is dropped.
#[derive(Debug)]
pub struct ContainerRuntime(Server);

#[derive(Debug)]
enum Server {
    Containerd(Containerd),
    CriO(CriO),
    Docker(Box<Docker>),
}

impl ContainerRuntime {
    /// Starts a runtime with the usual settings and waits until CRI answers.
    pub async fn start(kind: RuntimeKind) -> Result<Self> {
        Self::start_with(&RuntimeOptions::new(kind)).await
    }

    /// Starts a runtime and waits until CRI answers. Needs root, as container runtimes do.
    pub async fn start_with(options: &RuntimeOptions) -> Result<Self> {
        Ok(Self(match options.kind {
            RuntimeKind::Containerd(version) => Server::Containerd(containerd(version, options).await?),
            RuntimeKind::CriO => Server::CriO(CriO::start(options).await?),
            RuntimeKind::Docker => Server::Docker(Box::new(Docker::start(options).await?)),
        }))
    }

    /// The socket of CRI.
    pub fn socket(&self) -> PathBuf {
        match &self.0 {
            Server::Containerd(server) => server.socket(),
            Server::CriO(server) => server.socket(),
            Server::Docker(server) => server.socket(),
        }
    }

    /// The folder on whose file system images are stored.
    pub fn root(&self) -> PathBuf {
        match &self.0 {
            Server::Containerd(server) => server.root(),
            Server::CriO(server) => server.root(),
            Server::Docker(server) => server.root(),
        }
    }

    /// Kills the process that pulls, in the middle of whatever it does.
    pub fn kill(&mut self) -> Result<()> {
        match &mut self.0 {
            Server::Containerd(server) => server.kill(),
            Server::CriO(server) => server.process.kill(),
            Server::Docker(server) => server.kill(),
        }
    }

    /// Starts it again with the same sockets and data.
    pub async fn restart(&mut self) -> Result<()> {
        match &mut self.0 {
            Server::Containerd(server) => server.restart().await,
            Server::CriO(server) => server.restart().await,
            Server::Docker(server) => server.restart().await,
        }
    }

    /// The ids of its processes that run.
    pub fn pids(&self) -> Vec<u32> {
        match &self.0 {
            Server::Containerd(server) => server.pid().into_iter().collect(),
            Server::CriO(server) => server.process.pid().into_iter().collect(),
            Server::Docker(server) => server.cri.pid().into_iter().chain(server.engine.pid()).collect(),
        }
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        match &self.0 {
            Server::Containerd(server) => server.log_tail(),
            Server::CriO(server) => server.process.log_tail(),
            Server::Docker(server) => format!("{}\n{}", server.cri.log_tail(), server.engine.log_tail()),
        }
    }
}

async fn containerd(version: ContainerdVersion, options: &RuntimeOptions) -> Result<Containerd> {
    let containerd = Containerd::start_with(ContainerdOptions {
        disk_size: options.disk_size,
        ..ContainerdOptions::new(version)
    })
    .await?;
    if let Some(mirror) = &options.docker_hub_mirror {
        let hosts = format!("server = \"http://127.0.0.1:1\"\n[host.\"http://{mirror}\"]\n");
        containerd.set_hosts("docker.io", &hosts)?;
    }
    Ok(containerd)
}
