//! The containerd of a node: unlike the ones that only pull, it runs pods, with runc and Debian's network plugins.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use super::PAUSE_IMAGE;
use super::machine::Machine;
use crate::containerd::cri_state;
use crate::environment::{CNI_DEBIAN, CONTAINERD, PAUSE, RUNC_DEBIAN, cached};
use crate::image::{Image, Layer, Recipe};
use crate::{Error, Process, Result, command};

const READY: Duration = Duration::from_mins(1);

/// Where it listens, on the node.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

/// Without `restrict_oom_score_adj` no pod starts inside another container or machine.
fn config() -> Result<String> {
    let runc = cached(RUNC_DEBIAN, "runc")?;
    let plugins = cached(CNI_DEBIAN, "bridge")?;
    let plugins = plugins.parent().unwrap_or(&plugins);
    Ok(format!(
        r#"version = 3
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri",
]
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "/run/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"#,
        plugins = plugins.display(),
        runc = runc.display(),
    ))
}

/// Pods have addresses on a bridge, whose own address is their way to the node.
fn network() -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{ "subnet": "10.244.0.0/16" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "loopback" },
        ],
    })
    .to_string()
}

pub(super) fn start(machine: &Machine) -> Result<Process> {
    let config = machine.scratch().write("containerd.toml", config()?)?;
    let folder = machine.outside(Path::new("/run/cni"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("10-pods.conflist"), network()))
        .map_err(Error::io("writing the network configuration of a node"))?;
    let arguments = vec!["--config".to_owned(), config.display().to_string()];
    Process::start(machine.program("containerd", &cached(CONTAINERD, "containerd")?, arguments))
}

pub(super) async fn wait_ready(process: &mut Process, machine: &Machine) -> Result<()> {
    let socket = machine.outside(Path::new(SOCKET));
    let ctr = cached(CONTAINERD, "ctr")?;
    process
        .wait_ready(READY, async || {
            let mut plugins = Command::new(&ctr);
            plugins.arg("--address").arg(&socket).args(["plugins", "ls"]);
            let listed = command::output("asking for the plugins", plugins)
                .await
                .map_err(|error| error.to_string())?;
            cri_state(&String::from_utf8_lossy(&listed))
        })
        .await
}

/// An image that pods can run: a program that does nothing until it is told to end, and these layers.
pub fn runnable_image(layers: impl IntoIterator<Item = Layer>) -> Result<Image> {
    let program = cached(PAUSE, "pause")?;
    let content = std::fs::read(&program).map_err(Error::io(format!("reading {}", program.display())))?;
    let program = Layer::file("pause", 0o755, content);
    let mut recipe = Recipe::new([program].into_iter().chain(layers));
    recipe.entrypoint = vec!["/pause".to_owned()];
    Ok(recipe.build())
}
