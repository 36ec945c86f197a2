//! What was typed. The texts here are the program's help.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, OsStringValueParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum};
use larder_agent::FetchMode;
use larder_model::{ByteSize, ImageRef};
use larder_runtime::RuntimeEndpoint;

use crate::commands::run::images_of::source::Source;

/// Container images on every node before anything needs them.
#[derive(Debug, Parser)]
#[command(
    name = "larder",
    version,
    after_help = "Exit codes: 0 success; 1 the job failed, lint or doctor found problems, or the plan does not fit; 2 wrong usage or file; \
                  3 API not reachable (pull: no container runtime); 4 --timeout exceeded; 130 interrupted."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) cluster: Cluster,

    /// Print without colours, even on a terminal
    #[arg(long, global = true, env = "NO_COLOR", hide_env_values = true, value_parser = FalseyValueParser::new(), action = ArgAction::SetTrue)]
    pub(crate) no_color: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The cluster, selected as with kubectl.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// Path to the kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Namespace to use instead of the context's
    #[arg(long, short, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine without a cluster: API server, controller and nodes in one process
    Up(Up),
    /// Create jobs, show their progress and wait until they end
    Run(Run),
    /// Show all jobs, or one job with its nodes
    Status(Status),
    /// Explain for each node why it waits, failed or was not selected
    Why(Why),
    /// Ask the nodes what a job would pull and whether it fits, without pulling
    Plan(Plan),
    /// Pull images onto this machine without a cluster
    Pull(Pull),
    /// Check files against the rules of the CRDs, without a cluster
    Lint(Lint),
    /// Check a cluster for problems with Larder and say how to fix them
    Doctor(Doctor),
    /// Print the CRDs as YAML
    Crds,
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Number of nodes; the first uses this machine's container runtime if one answers, the others keep images in folders
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) nodes: NonZeroUsize,

    /// Data folder (default: larder in $XDG_DATA_HOME or ~/.local/share)
    #[arg(long, env = "LARDER_DATA", value_name = "DIR", value_parser = folder())]
    pub(crate) data: Option<PathBuf>,

    /// Loopback address to serve the API on; port 0 picks a free one (default: the address of the previous start)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// Port of 127.0.0.1 to serve the API on
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,

    /// Run a demonstration with a registry of sample images, three nodes and the example jobs, then stop
    #[arg(long, conflicts_with = "nodes")]
    pub(crate) demo: bool,

    /// Keep running after the demonstration
    #[arg(long, requires = "demo")]
    pub(crate) keep: bool,

    /// Filter for DIR/larder.log: a level, or target=level pairs separated by commas
    #[arg(long, env = "LARDER_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    #[arg(long, env = "XDG_DATA_HOME", hide = true, value_parser = folder())]
    pub(crate) data_home: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true, value_parser = folder())]
    pub(crate) home: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("jobs").required(true).args(["filename", "images_of"]))]
pub(crate) struct Run {
    /// File with jobs in YAML or JSON, in one or more documents; - for standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,

    /// Pull the images of workloads, as one ImageListPullJob: a file with manifests, - for standard input, KIND/NAME of an object
    /// in the cluster such as deployment/web, or namespace/NAME
    #[arg(long, value_name = "SOURCE", value_parser = Source::parse)]
    pub(crate) images_of: Option<Source>,

    /// Stop waiting after this time; the jobs continue
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Show the progress of each node
    #[arg(long)]
    pub(crate) nodes: bool,

    /// Output format; json and yaml are printed once, at the end
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Name of the job; with its kind, as in imagepulljob/web, if several kinds have a job of that name
    pub(crate) job: String,

    /// Explain this node only
    pub(crate) node: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// File with jobs, as for run; - for standard input
    #[arg(long, short, required = true, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,

    /// Maximum time to wait for the nodes' answers
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) timeout: Duration,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Images to pull
    #[arg(required = true, value_name = "IMAGE", value_parser = ImageRef::parse)]
    pub(crate) images: Vec<ImageRef>,

    /// Socket of the container runtime, such as unix:///run/containerd/containerd.sock (default: the usual paths are tried)
    #[arg(long, env = "LARDER_RUNTIME_ENDPOINT", value_name = "SOCKET", value_parser = RuntimeEndpoint::parse)]
    pub(crate) runtime_endpoint: Option<RuntimeEndpoint>,

    /// Folder to pull into, as an OCI image layout, instead of a container runtime
    #[arg(long, value_name = "DIR", conflicts_with = "runtime_endpoint")]
    pub(crate) to: Option<PathBuf>,

    /// Ask the registry even if an image of that name is present
    #[arg(long)]
    pub(crate) always: bool,

    /// Maximum time of one attempt
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "600s")]
    pub(crate) timeout: Duration,

    /// Number of attempts after the first
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) retries: u16,

    /// Maximum concurrent pulls
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) at_once: NonZeroUsize,

    /// What fetches layers into containerd: auto (larder, in parallel ranges, where that helps) or cri (containerd)
    #[arg(long, env = "LARDER_FETCH", value_name = "MODE", default_value_t = FetchMode::Cri)]
    pub(crate) fetch: FetchMode,

    /// Maximum connections of one pull, with --fetch=auto or --to
    #[arg(long = "connections-per-pull", env = "LARDER_CONNECTIONS_PER_PULL", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) connections: u16,

    /// Maximum bytes per second of all pulls, such as 5MiB, with --fetch=auto or --to; 0: no limit
    #[arg(long, env = "LARDER_MAX_BANDWIDTH", value_name = "BYTES", default_value = "0")]
    pub(crate) max_bandwidth: ByteSize,

    /// Folder with hosts.toml files for mirrors and certificates
    #[arg(
        long,
        env = "LARDER_HOSTS_DIR",
        value_name = "DIR",
        default_value = "/etc/containerd/certs.d"
    )]
    pub(crate) hosts_dir: PathBuf,

    /// File with logins as docker login writes it (default: config.json in $DOCKER_CONFIG or ~/.docker)
    #[arg(long, value_name = "FILE")]
    pub(crate) registry_config: Option<PathBuf>,

    /// Credential provider configuration, like the kubelet flag of the same name
    #[arg(long, value_name = "FILE", requires = "image_credential_provider_bin_dir")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,

    /// Folder with the credential provider plugins, like the kubelet flag of the same name
    #[arg(long, value_name = "DIR")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,

    #[arg(long, env = "DOCKER_CONFIG", hide = true, value_parser = folder())]
    pub(crate) docker_config: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true, value_parser = folder())]
    pub(crate) home: Option<PathBuf>,

    /// Output format; json and yaml are printed once, at the end
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the job; with its kind, as in imagepulljob/web, if several kinds have a job of that name
    pub(crate) job: Option<String>,

    /// Show the jobs of all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Namespace in which Larder is installed (default: it is searched for)
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Files to check; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

/// A folder from the environment. The empty text is let in: it counts as unset, see [`given`].
fn folder() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// A folder that is named; an empty name is none.
pub(crate) fn given(folder: Option<&PathBuf>) -> Option<PathBuf> {
    folder.filter(|folder| !folder.as_os_str().is_empty()).cloned()
}

/// A duration as people write it: `90`, `90s`, `5m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => return Err(format!("`{other}` is no unit; use s, m or h, as in 5m")),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| "write a number with a unit, as in 90s or 5m".to_owned())?;
    Ok(Duration::from_secs(count.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use rstest::rstest;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[rstest]
    #[case::seconds("90", Ok(90))]
    #[case::seconds_with_unit("90s", Ok(90))]
    #[case::minutes("5m", Ok(300))]
    #[case::hours("2h", Ok(7200))]
    #[case::no_number("m", Err("write a number with a unit, as in 90s or 5m"))]
    #[case::unknown_unit("3d", Err("`d` is no unit; use s, m or h, as in 5m"))]
    fn durations(#[case] text: &str, #[case] want: Result<u64, &str>) {
        assert_eq!(duration(text), want.map(Duration::from_secs).map_err(str::to_owned));
    }
}
