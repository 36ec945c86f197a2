//! What an agent is started with.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use larder_model::NodeName;
use larder_runtime::RuntimeEndpoint;

/// Everything that can be set. Nothing here is a secret.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node, and the name of its NodeImage.
    pub node: NodeName,
    /// Where key and ledger lie. None: both are forgotten with the process, as hollow nodes and single pulls want it.
    pub state_dir: Option<PathBuf>,
    /// Maximum concurrent pulls.
    pub max_pulls: usize,
    /// Used share of the image filesystem, in percent, at which the kubelet cleans up.
    pub gc_threshold: u8,
    /// Share of the image filesystem, in percent, that pinned images may take up.
    pub pin_share: u8,
    /// Where containerd's `hosts.toml` files lie, to ask registries as the runtime would.
    pub hosts_dir: Option<PathBuf>,
    /// Accept images that are built only for another architecture: the node emulates it where the agent cannot see that.
    pub accept_foreign_images: bool,
    /// Where the kernel lists its emulators. A folder that is empty or cannot be read stands for none.
    pub binfmt_dir: PathBuf,
    /// Who fetches layers, where the runtime leaves a choice.
    pub fetch: FetchMode,
    /// Maximum connections of one pull, where we fetch.
    pub connections_per_pull: usize,
    /// Maximum bytes a second of all pulls together, where we fetch.
    pub max_bandwidth: Option<NonZeroU64>,
    /// How often the NodeImage is read anew although the watch is silent. A real API server sends bookmarks once a
    /// minute, so this strikes only where something is broken; KubeEdge's MetaServer sends none.
    pub silence: Duration,
    /// How often the runtime is asked what it holds although it reported no change, at least; a runtime without events reports
    /// none.
    pub inspect_every: Duration,
}

impl Settings {
    /// The usual settings for this node.
    pub fn new(node: NodeName) -> Self {
        Self {
            node,
            state_dir: None,
            max_pulls: 3,
            gc_threshold: 85,
            pin_share: 50,
            hosts_dir: None,
            accept_foreign_images: false,
            binfmt_dir: PathBuf::from("/proc/sys/fs/binfmt_misc"),
            fetch: FetchMode::default(),
            connections_per_pull: 8,
            max_bandwidth: None,
            silence: Duration::from_mins(3),
            inspect_every: Duration::from_mins(5),
        }
    }
}

/// Who fetches the layers of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchMode {
    /// The agent, into the runtime's content store, where that is possible and pays.
    Auto,
    /// The container runtime.
    #[default]
    Cri,
}

impl FromStr for FetchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cri" => Ok(Self::Cri),
            other => Err(format!("`{other}` is neither auto nor cri")),
        }
    }
}

impl fmt::Display for FetchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cri => "cri",
        })
    }
}

/// Where the runtime is.
#[derive(Clone, Debug)]
pub struct RuntimePlace {
    /// Its socket; none: it is looked for.
    pub endpoint: Option<RuntimeEndpoint>,
    /// Where this process sees the node's root filesystem.
    pub host_root: PathBuf,
}

impl Default for RuntimePlace {
    fn default() -> Self {
        Self {
            endpoint: None,
            host_root: PathBuf::from("/"),
        }
    }
}
