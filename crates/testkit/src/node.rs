//! A real node: kubelet and containerd on a [`Machine`] of its own, joined to a [`ControlPlane`](crate::ControlPlane) that
//! was told of it in `Options::nodes`.
//!
//! Paths are those of a node as distributions set it up (`/run/containerd/containerd.sock`, `/var/lib/kubelet`, …), so that
//! what is installed into the cluster needs no settings for the tests. Pods have addresses of their own, which only this
//! node reaches, and reach the API server at its Service's address; no other Service works, nor names.

mod containerd;
mod kubelet;
mod machine;
mod relay;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use serde_json::{Value, json};
use tokio::process::Command;

pub use self::containerd::runnable_image;
use self::machine::Machine;
use self::relay::Relay;
use crate::control_plane::SERVICE;
use crate::environment::{CONTAINERD, cached};
use crate::image::Image;
use crate::{Access, Error, Process, Result, command};

/// The image of the process that holds a pod together. Every node has it; test pods may run it too.
pub const PAUSE_IMAGE: &str = "larder.invalid/pause:1";

/// A kubelet registers within seconds, and asks for the state of its runtime every ten; a busy machine takes its time.
const READY: Duration = Duration::from_mins(2);

/// What a node is started with.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Gives the image file system this many bytes; otherwise it has all that the machine has.
    pub image_disk: Option<u64>,
    /// More fields of the kubelet's configuration, which win over ours.
    pub kubelet: Value,
    /// Labels that the kubelet sets when it registers.
    pub labels: Vec<(String, String)>,
    /// Archives of images that the runtime has before the kubelet starts, as in the image of a machine.
    pub archives: Vec<PathBuf>,
    /// Servers of the test that the node reaches before the kubelet starts, see [`Node::reach`].
    pub reaches: Vec<SocketAddr>,
}

/// A running node. Everything on it ends, and all that it stored goes, when it is dropped.
#[derive(Debug)]
pub struct Node {
    name: String,
    access: Access,
    options: NodeOptions,
    relays: Vec<Relay>,
    kubelet: Process,
    containerd: Process,
    // The last to go: all processes on it end with it.
    machine: Machine,
}

impl Node {
    /// Starts a node and waits until it is Ready.
    pub async fn start(access: &Access, name: &str, options: NodeOptions) -> Result<Self> {
        let machine = Machine::start(name, options.image_disk).await?;
        let mut relays = vec![Relay::start(&machine, SERVICE.into(), access.address())?];
        relays.push(Relay::start(&machine, access.address(), access.address())?);
        let mut containerd = containerd::start(&machine)?;
        containerd::wait_ready(&mut containerd, &machine).await?;
        import(&machine, &runnable_image([])?, PAUSE_IMAGE).await?;
        for archive in &options.archives {
            import_archive(&machine, archive).await?;
        }
        for server in &options.reaches {
            relays.push(Relay::start(&machine, *server, *server)?);
        }
        let kubelet = kubelet::start(&machine, access, name, &options)?;
        let mut node = Self {
            name: name.to_owned(),
            access: access.clone(),
            options,
            relays,
            kubelet,
            containerd,
            machine,
        };
        node.wait_until_ready(None).await?;
        Ok(node)
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets the node reach a server of the test, for example a registry, under the server's own address.
    pub fn reach(&mut self, server: SocketAddr) -> Result<()> {
        self.relays.push(Relay::start(&self.machine, server, server)?);
        Ok(())
    }

    /// A connection made on the node, for example to a pod on it.
    pub fn connect(&self, address: SocketAddr) -> Result<tokio::net::TcpStream> {
        self.machine.connect(address)
    }

    /// What a path on the node is called here. Only paths below `/run`, `/var/lib/containerd`, `/var/lib/kubelet` and
    /// `/var/log/pods` are the node's own.
    pub fn path(&self, on_the_node: impl AsRef<Path>) -> PathBuf {
        self.machine.outside(on_the_node.as_ref())
    }

    /// The cgroups of its pods: one, or one in each hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.machine.cgroups()
    }

    /// Runs a command on the node and gives back its outcome, good or bad.
    pub async fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        let mut inside = Command::new("nsenter");
        inside.args(self.machine.entry()).args(args);
        command::outcome("running a command on a node", inside).await
    }

    /// Runs `ctr` on its containerd, in the namespace of CRI, and gives back the outcome, good or bad.
    pub async fn ctr<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        command::outcome("running ctr", ctr(&self.machine, args)?).await
    }

    /// Names of the images that the runtime has.
    pub async fn images(&self) -> Result<Vec<String>> {
        let listed = command::output("listing images with ctr", ctr(&self.machine, ["images", "ls", "-q"])?).await?;
        Ok(String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect())
    }

    /// Puts an image onto the node by hand, as an administrator does without a registry.
    pub async fn import(&self, image: &Image, name: &str) -> Result<()> {
        import(&self.machine, image, name).await
    }

    /// The same from an archive.
    pub async fn import_archive(&self, archive: &Path) -> Result<()> {
        import_archive(&self.machine, archive).await
    }

    /// Stops the kubelet and starts it with these fields in its configuration beside, or instead of, ours.
    pub async fn reconfigure_kubelet(&mut self, fields: Value) -> Result<()> {
        self.kubelet.kill()?;
        let last_word = kubelet::last_word(&self.in_the_api().await?);
        self.options.kubelet = fields;
        self.kubelet = kubelet::start(&self.machine, &self.access, &self.name, &self.options)?;
        self.wait_until_ready(last_word).await
    }

    /// Kills containerd and starts it again; containers go on meanwhile.
    pub async fn restart_containerd(&mut self) -> Result<()> {
        self.containerd.restart()?;
        containerd::wait_ready(&mut self.containerd, &self.machine).await
    }

    /// The process ids of kubelet, containerd and the machine.
    pub fn pids(&self) -> Vec<u32> {
        let all = [self.kubelet.pid(), self.containerd.pid(), self.machine.pid()];
        all.into_iter().flatten().collect()
    }

    /// The ends of the logs of kubelet and containerd, for a test that fails.
    pub fn log_tail(&self) -> String {
        format!(
            "--- kubelet of {}\n{}\n--- containerd\n{}",
            self.name,
            self.kubelet.log_tail(),
            self.containerd.log_tail()
        )
    }

    /// The lines that containers wrote, each container's file with its name.
    pub fn container_logs(&self) -> String {
        kubelet::container_logs(&self.path("/var/log/pods"))
    }

    async fn in_the_api(&self) -> Result<k8s_openapi::api::core::v1::Node> {
        let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(self.access.client()?);
        let found = nodes.get(&self.name).await;
        found.map_err(Error::kube(format!("reading node {}", self.name)))
    }

    /// What a kubelet before this one said last does not count.
    async fn wait_until_ready(&mut self, last_word: Option<Time>) -> Result<()> {
        let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(self.access.client()?);
        let name = self.name.clone();
        self.kubelet
            .wait_ready(READY, async || {
                let node = nodes.get(&name).await.map_err(|error| error.to_string())?;
                kubelet::is_ready(&node, last_word.as_ref())
            })
            .await
    }
}

fn ctr<A: AsRef<OsStr>>(machine: &Machine, args: impl IntoIterator<Item = A>) -> Result<Command> {
    let mut ctr = Command::new(cached(CONTAINERD, "ctr")?);
    ctr.arg("--address")
        .arg(machine.outside(Path::new(containerd::SOCKET)))
        .args(["--namespace", "k8s.io"])
        .args(args);
    Ok(ctr)
}

async fn import(machine: &Machine, image: &Image, name: &str) -> Result<()> {
    let archive = machine
        .scratch()
        .write(&format!("{}.tar", crate::unique_name("image")), image.archive(name))?;
    import_archive(machine, &archive).await?;
    std::fs::remove_file(&archive).map_err(Error::io(format!("removing {}", archive.display())))
}

async fn import_archive(machine: &Machine, archive: &Path) -> Result<()> {
    let doing = format!("importing {} with ctr", archive.display());
    let import = ctr(
        machine,
        [OsStr::new("images"), OsStr::new("import"), archive.as_os_str()],
    )?;
    command::output(&doing, import).await.map(drop)
}

/// Fields of `over` replace those of `base`, deeply.
fn merged(mut base: Value, over: &Value) -> Value {
    json_patch_merge(&mut base, over);
    base
}

fn json_patch_merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                json_patch_merge(base.entry(key).or_insert(json!({})), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
