//! Real containerds with CRI, several side by side: each has its own root, state and socket. They pull and unpack
//! images; no network plugin is set up, so they run no pods.

mod config;

pub(crate) use self::config::cri_state;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::Command;

use crate::environment::{CONTAINERD, CONTAINERD_1_7, CONTAINERD_DEBIAN, cached, require_root};
use crate::scratch::mount_memory;
use crate::{Error, Lifetime, Process, Program, Result, Scratch, command};

const READY: Duration = Duration::from_mins(1);

/// The namespace in which CRI keeps its images.
const CRI_NAMESPACE: &str = "k8s.io";

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerdVersion {
    /// 1.6, from Debian's packages: the oldest that is supported.
    V1_6,
    /// 1.7, built from its Go module: the last release before 2.0.
    V1_7,
    /// 2.4, built from its Go module.
    V2,
}

impl ContainerdVersion {
    fn program(self, name: &str) -> Result<PathBuf> {
        match self {
            Self::V1_6 => cached(CONTAINERD_DEBIAN, name),
            Self::V1_7 => cached(CONTAINERD_1_7, name),
            Self::V2 => cached(CONTAINERD, name),
        }
    }
}

/// What a containerd is started with.
#[derive(Debug, Clone)]
pub struct ContainerdOptions {
    /// Which one.
    pub version: ContainerdVersion,
    /// Gives it a disk of this many bytes, to be filled up by tests.
    pub disk_size: Option<u64>,
    /// How many layers one pull fetches at the same time; containerd's own default is 3.
    pub max_concurrent_downloads: u32,
    /// Whether layers leave the content store once they are unpacked.
    pub discard_unpacked_layers: bool,
    /// From 2.x on: fetches layers in parallel ranges of this many bytes, which is off by default.
    pub layer_fetch_buffer: Option<u32>,
}

impl ContainerdOptions {
    /// The usual settings.
    pub fn new(version: ContainerdVersion) -> Self {
        Self {
            version,
            disk_size: None,
            max_concurrent_downloads: 3,
            discard_unpacked_layers: false,
            layer_fetch_buffer: None,
        }
    }
}

/// A running containerd; it ends, and its images go, when it is dropped.
#[derive(Debug)]
pub struct Containerd {
    version: ContainerdVersion,
    process: Process,
    scratch: Scratch,
}

impl Containerd {
    /// Starts a containerd with the usual settings and waits until CRI answers.
    pub async fn start(version: ContainerdVersion) -> Result<Self> {
        Self::start_with(ContainerdOptions::new(version)).await
    }

    /// Starts a containerd and waits until CRI answers. Needs root, as containerd itself does.
    pub async fn start_with(options: ContainerdOptions) -> Result<Self> {
        require_root("containerd")?;
        let version = options.version;
        let path = version.program("containerd")?;
        let scratch = Scratch::create("containerd")?;
        for folder in ["root", "state", "certs.d"] {
            scratch.create_folder(folder)?;
        }
        if let Some(size) = options.disk_size {
            mount_memory(&scratch.join("root"), size).await?;
        }
        let config = scratch.write("config.toml", config::text(scratch.path(), &options))?;
        let program = Program {
            name: "containerd",
            path,
            args: vec!["--config".into(), config.display().to_string()],
            env: vec![],
            log: scratch.join("containerd.log"),
            lifetime: Lifetime::Handle,
        };
        let mut containerd = Self {
            version,
            process: Process::start(program)?,
            scratch,
        };
        containerd.wait_ready().await?;
        Ok(containerd)
    }

    /// Its socket, for CRI and for containerd's own services.
    pub fn socket(&self) -> PathBuf {
        self.scratch.join("containerd.sock")
    }

    /// The folder on whose file system images are stored.
    pub fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    /// The folder with one sub-folder per registry host, each with a `hosts.toml`.
    pub fn hosts_folder(&self) -> PathBuf {
        self.scratch.join("certs.d")
    }

    /// Sets the `hosts.toml` of a registry; the next pull reads it.
    pub fn set_hosts(&self, registry: &str, hosts_toml: &str) -> Result<()> {
        // containerd writes a port as `_5000_` in folder names, and reads `host:5000` too.
        let folder = self.hosts_folder().join(registry);
        let doing = Error::io(format!("writing hosts.toml in {}", folder.display()));
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join("hosts.toml"), hosts_toml))
            .map_err(doing)
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Kills it, in the middle of whatever it does.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again with the same socket and data.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready().await
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    pub fn thaw(&self) -> Result<()> {
        self.process.thaw()
    }

    /// How often CRI was asked to pull this reference, over all its starts; containerd writes it into its log.
    pub fn pulls(&self, reference: &str) -> usize {
        let asked = format!(r#"msg="PullImage \"{reference}\"""#);
        let log = self.process.log();
        log.lines().filter(|line| line.ends_with(&asked)).count()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Runs `ctr` on it, in the namespace of CRI, and gives back the outcome, good or bad.
    pub async fn ctr<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        self.ctr_through(&self.socket(), args).await
    }

    /// The same through another socket, for example that of a [`CriProxy`](crate::CriProxy).
    pub async fn ctr_through<A: AsRef<OsStr>>(
        &self,
        socket: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Output> {
        let mut ctr = Command::new(self.version.program("ctr")?);
        ctr.arg("--address")
            .arg(socket)
            .args(["--namespace", CRI_NAMESPACE])
            .args(args);
        command::outcome("running ctr", ctr).await
    }

    /// The socket is there before the services are: asks for the state of CRI until it is good.
    async fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket();
        let ctr = self.version.program("ctr")?;
        let ready = async || {
            UnixStream::connect(&socket).await.map_err(|error| error.to_string())?;
            let mut plugins = Command::new(&ctr);
            plugins.arg("--address").arg(&socket).args(["plugins", "ls"]);
            let listed = command::output("asking for the plugins", plugins)
                .await
                .map_err(|error| error.to_string())?;
            config::cri_state(&String::from_utf8_lossy(&listed))
        };
        self.process.wait_ready(READY, ready).await
    }
}
