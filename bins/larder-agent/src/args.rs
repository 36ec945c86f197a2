//! What was typed. Each flag is also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use larder_agent::FetchMode;
use larder_model::{ByteSize, NodeName};
use larder_runtime::RuntimeEndpoint;
use larder_telemetry::logs::LogFormat;

/// Pulls the images that this node's NodeImage asks for, and reports on it.
#[derive(Debug, Parser)]
#[command(name = "larder-agent", version)]
pub(crate) struct Args {
    /// Name of the node and of its NodeImage (default: $NODE_NAME)
    #[arg(long, env = "LARDER_NODE_NAME", value_parser = NodeName::parse)]
    pub(crate) node_name: Option<NodeName>,

    /// The variable in which manifests usually pass the name of the node
    #[arg(long, env = "NODE_NAME", hide = true, value_parser = NodeName::parse)]
    pub(crate) node_name_of_pod: Option<NodeName>,

    /// Kubeconfig for the API server (default: the pod's service account, then $KUBECONFIG)
    #[arg(long, env = "LARDER_KUBECONFIG", value_name = "FILE", conflicts_with = "server")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// URL of an API server that needs no kubeconfig, such as KubeEdge's MetaServer: http://127.0.0.1:10550
    #[arg(long, env = "LARDER_SERVER", value_name = "URL")]
    pub(crate) server: Option<http::Uri>,

    /// File with a bearer token for --server
    #[arg(long, env = "LARDER_TOKEN_FILE", value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,

    /// File with the certificate authority of --server
    #[arg(long, env = "LARDER_CA_FILE", value_name = "FILE", requires = "server")]
    pub(crate) ca_file: Option<PathBuf>,

    /// Address for /healthz, /readyz and /metrics
    #[arg(
        long,
        env = "LARDER_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8081"
    )]
    pub(crate) listen: SocketAddr,

    /// File with the bearer token that /metrics asks for; without it, /metrics answers on the loopback address alone
    #[arg(long, env = "LARDER_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub(crate) metrics_token_file: Option<PathBuf>,

    /// Socket of the container runtime, such as unix:///run/containerd/containerd.sock (default: the usual places are tried)
    #[arg(long, env = "LARDER_RUNTIME_ENDPOINT", value_name = "SOCKET", value_parser = RuntimeEndpoint::parse)]
    pub(crate) runtime_endpoint: Option<RuntimeEndpoint>,

    /// Mount point of the node's root filesystem, when the agent runs in a container
    #[arg(long, env = "LARDER_HOST_ROOT", value_name = "DIR", default_value = "/")]
    pub(crate) host_root: PathBuf,

    /// Directory for the node's key and the ledger
    #[arg(
        long,
        env = "LARDER_STATE_DIR",
        value_name = "DIR",
        default_value = "/var/lib/larder-agent"
    )]
    pub(crate) state_dir: PathBuf,

    /// Maximum concurrent pulls
    #[arg(long, env = "LARDER_MAX_CONCURRENT_PULLS", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_concurrent_pulls: u16,

    /// Who fetches layers: auto (the agent, in parallel ranges, where containerd allows it and it pays) or cri (the runtime)
    #[arg(long, env = "LARDER_FETCH", value_name = "MODE", default_value_t = FetchMode::Cri)]
    pub(crate) fetch: FetchMode,

    /// Maximum connections of one pull, with --fetch=auto
    #[arg(long, env = "LARDER_CONNECTIONS_PER_PULL", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) connections_per_pull: u16,

    /// Maximum bytes per second of all pulls of this node, such as 5MiB, with --fetch=auto; 0: no limit
    #[arg(long, env = "LARDER_MAX_BANDWIDTH", value_name = "BYTES", default_value = "0")]
    pub(crate) max_bandwidth: ByteSize,

    /// Accept images built only for another architecture: for nodes that emulate it, which an agent in a pod cannot see
    #[arg(long, env = "LARDER_ACCEPT_FOREIGN_IMAGES", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(crate) accept_foreign_images: bool,

    /// Credential-provider configuration, as the kubelet's flag of the same name
    #[arg(
        long,
        env = "LARDER_IMAGE_CREDENTIAL_PROVIDER_CONFIG",
        value_name = "FILE",
        requires = "image_credential_provider_bin_dir"
    )]
    pub(crate) image_credential_provider_config: Option<PathBuf>,

    /// Directory of the credential-provider plugins, as the kubelet's flag of the same name
    #[arg(long, env = "LARDER_IMAGE_CREDENTIAL_PROVIDER_BIN_DIR", value_name = "DIR")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,

    /// File with logins of this node, as docker login writes it: for registries, and for mirrors under the mirror's own host.
    /// Read at the start
    #[arg(long, env = "LARDER_REGISTRY_CONFIG", value_name = "FILE")]
    pub(crate) registry_config: Option<PathBuf>,

    /// Usage of the image filesystem, in percent, at which the kubelet removes images; as in the kubelet's configuration
    #[arg(long, env = "LARDER_IMAGE_GC_HIGH_THRESHOLD", value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) image_gc_high_threshold: u8,

    /// Maximum share of the image filesystem for pinned images, in percent
    #[arg(long, env = "LARDER_PIN_BUDGET", value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) pin_budget: u8,

    /// Directory of containerd's hosts.toml files, to reach registries as the runtime does
    #[arg(
        long,
        env = "LARDER_HOSTS_DIR",
        value_name = "DIR",
        default_value = "/etc/containerd/certs.d"
    )]
    pub(crate) hosts_dir: PathBuf,

    /// Log format: text or json
    #[arg(long, env = "LARDER_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,

    /// Log level, or comma-separated target=level pairs
    #[arg(long, env = "LARDER_LOG", default_value = "info")]
    pub(crate) log: String,
}
