//! Real CRI-Os, several side by side: each has its own storage, sockets and configuration files, and reads none of the
//! machine's. They pull images and run no pods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::{CONMON_DEBIAN, CRI_O, RUNC_DEBIAN, cached, require_root};
use crate::grpc::cri_ready;
use crate::scratch::mount_memory;
use crate::{Lifetime, Process, Program, Result, RuntimeOptions, Scratch};

const READY: Duration = Duration::from_mins(1);

/// A running CRI-O; it ends, and its images go, when it is dropped.
#[derive(Debug)]
pub(crate) struct CriO {
    pub(crate) process: Process,
    scratch: Scratch,
}

impl CriO {
    pub(crate) async fn start(options: &RuntimeOptions) -> Result<Self> {
        require_root("CRI-O")?;
        let path = cached(CRI_O, "crio")?;
        let scratch = Scratch::create("cri-o")?;
        for folder in ["root", "cni", "policies", "registries.conf.d"] {
            scratch.create_folder(folder)?;
        }
        if let Some(size) = options.disk_size {
            mount_memory(&scratch.join("root"), size).await?;
        }
        let config = scratch.write("crio.conf", config(scratch.path())?)?;
        let storage = scratch.write("storage.conf", storage(scratch.path()))?;
        let registries = scratch.write("registries.conf", registries(options))?;
        scratch.write("policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)?;
        let program = Program {
            name: "crio",
            path,
            args: vec![
                format!("--config={}", config.display()),
                "--config-dir=".to_owned(),
                format!("--registries-conf={}", registries.display()),
                format!("--registries-conf-dir={}", scratch.join("registries.conf.d").display()),
            ],
            env: vec![("CONTAINERS_STORAGE_CONF".into(), storage.display().to_string())],
            log: scratch.join("crio.log"),
            lifetime: Lifetime::Handle,
        };
        let mut crio = Self {
            process: Process::start(program)?,
            scratch,
        };
        crio.wait_ready().await?;
        Ok(crio)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.join("crio.sock")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready().await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket();
        self.process.wait_ready(READY, async || cri_ready(&socket).await).await
    }
}

/// Nothing of it leaves the folder: no files, no network rules, no processes of pods. `pinns` would make the namespaces
/// of pods.
fn config(folder: &Path) -> Result<String> {
    let conmon = cached(CONMON_DEBIAN, "conmon")?;
    let runc = cached(RUNC_DEBIAN, "runc")?;
    Ok(format!(
        r#"[crio]
root = "{folder}/root"
runroot = "{folder}/runroot"
storage_driver = "vfs"
log_dir = "{folder}/logs"
version_file = "{folder}/version"
version_file_persist = "{folder}/version-persist"
clean_shutdown_file = "{folder}/clean.shutdown"
[crio.api]
listen = "{folder}/crio.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.image]
signature_policy = "{folder}/policy.json"
signature_policy_dir = "{folder}/policies"
big_files_temporary_dir = "{folder}/root"
[crio.network]
network_dir = "{folder}/cni"
plugin_dirs = ["{folder}/cni"]
[crio.runtime]
conmon = "{conmon}"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
container_attach_socket_dir = "{folder}/attach"
container_exits_dir = "{folder}/exits"
default_runtime = "runc"
disable_hostport_mapping = true
hooks_dir = []
irqbalance_config_restore_file = "disable"
namespaces_dir = "{folder}/namespaces"
pinns_path = "/bin/true"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
monitor_path = "{conmon}"
[crio.nri]
enable_nri = false
"#,
        folder = folder.display(),
        conmon = conmon.display(),
        runc = runc.display(),
    ))
}

fn storage(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"[storage]
driver = "vfs"
graphroot = "{folder}/root"
runroot = "{folder}/runroot"
"#
    )
}

/// Registries on loopback speak plain HTTP. Short names are those of docker.io, as for every other runtime. What has a
/// mirror is not looked for anywhere else.
fn registries(options: &RuntimeOptions) -> String {
    let mirror = options.docker_hub_mirror.as_deref().map(|mirror| {
        format!(
            r#"
[[registry]]
prefix = "docker.io"
location = "127.0.0.1:1"
insecure = true
[[registry.mirror]]
location = "{mirror}"
insecure = true
"#
        )
    });
    format!(
        r#"unqualified-search-registries = ["docker.io"]
[[registry]]
location = "127.0.0.1"
insecure = true
{}"#,
        mirror.unwrap_or_default()
    )
}
