//! What was typed. The texts here are the program's help.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use larder_model::ImageRef;
use larder_runtime::RuntimeEndpoint;

/// Container images on every node before anything needs them.
#[derive(Debug, Parser)]
#[command(
    name = "larder",
    version,
    after_help = "Exit codes: 0 done; 1 the job failed, the lint or the doctor found something, the plan does not fit; 2 wrong usage or file; \
                  3 API not reachable (pull: no container runtime); 4 --timeout over; 130 interrupted."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) cluster: Cluster,

    /// Print without colours, on a terminal too
    #[arg(long, global = true, env = "NO_COLOR", hide_env_values = true, value_parser = FalseyValueParser::new(), action = ArgAction::SetTrue)]
    pub(crate) no_color: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster, as in kubectl.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// Path of the kubeconfig file; else KUBECONFIG says it, else it is ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig file to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Namespace to use, instead of the context's
    #[arg(long, short, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine, without a cluster: API server, controller and nodes in one process
    Up(Up),
    /// Submit jobs, show their progress and wait for their end
    Run(Run),
    /// Show jobs: all of them, or one with its nodes
    Status(Status),
    /// Say of each node why it waits, failed or was left out
    Why(Why),
    /// Ask the nodes what a job would pull and whether it fits; pulls nothing
    Plan(Plan),
    /// Pull images onto this machine, without any cluster
    Pull(Pull),
    /// Check files by the rules of the CRDs, without a cluster
    Lint(Lint),
    /// Look at a cluster and say what is wrong with Larder in it, and what to do
    Doctor(Doctor),
    /// Print the CRDs as YAML
    Crds,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many nodes; the first is this machine with its container runtime, if one answers, the others have folders
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) nodes: NonZeroUsize,

    /// Where everything is kept; else larder in XDG_DATA_HOME or ~/.local/share
    #[arg(long, env = "LARDER_DATA", value_name = "DIR", value_parser = folder())]
    pub(crate) data: Option<PathBuf>,

    /// Where kubectl is served, on a loopback address; port 0 takes a free one. Without it: where it was last
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// The same on 127.0.0.1, by the port alone
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,

    /// Show the whole system at work: a registry with sample images, three nodes and the example jobs; then stop
    #[arg(long, conflicts_with = "nodes")]
    pub(crate) demo: bool,

    /// With --demo: stay up afterwards
    #[arg(long, requires = "demo")]
    pub(crate) keep: bool,

    /// What goes into DIR/larder.log: a level, or target=level pairs with commas between them
    #[arg(long, env = "LARDER_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    #[arg(long, env = "XDG_DATA_HOME", hide = true, value_parser = folder())]
    pub(crate) data_home: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true, value_parser = folder())]
    pub(crate) home: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// File with the jobs (YAML or JSON, several documents may stand in one); - for standard input
    #[arg(long, short, required = true, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,

    /// Give up waiting after this long; the jobs go on
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Show each node too; in a large cluster there are many
    #[arg(long)]
    pub(crate) nodes: bool,

    /// Form of the output; json and yaml come at the end, with nothing before
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Name of a job, with its kind in front if several kinds have one of that name: imagepulljob/web
    pub(crate) job: String,

    /// This node alone
    pub(crate) node: Option<String>,

    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// File with the jobs, as for run; - for standard input
    #[arg(long, short, required = true, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,

    /// How long to wait for the nodes' answers
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) timeout: Duration,

    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// The images
    #[arg(required = true, value_name = "IMAGE", value_parser = ImageRef::parse)]
    pub(crate) images: Vec<ImageRef>,

    /// The runtime's socket, such as unix:///run/containerd/containerd.sock; without it the usual places are tried
    #[arg(long, env = "LARDER_RUNTIME_ENDPOINT", value_name = "SOCKET", value_parser = RuntimeEndpoint::parse)]
    pub(crate) runtime_endpoint: Option<RuntimeEndpoint>,

    /// Into this folder (an OCI image layout) instead of a runtime
    #[arg(long, value_name = "DIR", conflicts_with = "runtime_endpoint")]
    pub(crate) to: Option<PathBuf>,

    /// Ask the registry although an image of that name is there
    #[arg(long)]
    pub(crate) always: bool,

    /// How long one try may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "600s")]
    pub(crate) timeout: Duration,

    /// Tries after the first
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) retries: u16,

    /// Pulls at once
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) at_once: NonZeroUsize,

    /// Folder of hosts.toml files, for mirrors and certificates
    #[arg(
        long,
        env = "LARDER_HOSTS_DIR",
        value_name = "DIR",
        default_value = "/etc/containerd/certs.d"
    )]
    pub(crate) hosts_dir: PathBuf,

    /// File with logins, as docker login writes it; else config.json in DOCKER_CONFIG or ~/.docker
    #[arg(long, value_name = "FILE")]
    pub(crate) registry_config: Option<PathBuf>,

    /// Credential-provider configuration, as the kubelet's flag of the same name
    #[arg(long, value_name = "FILE", requires = "image_credential_provider_bin_dir")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,

    /// Where the credential-provider plugins lie, as the kubelet's flag of the same name
    #[arg(long, value_name = "DIR")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,

    #[arg(long, env = "DOCKER_CONFIG", hide = true, value_parser = folder())]
    pub(crate) docker_config: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true, value_parser = folder())]
    pub(crate) home: Option<PathBuf>,

    /// Form of the output; json and yaml come at the end, with nothing before
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of a job, with its kind in front if several kinds have one of that name: imagepulljob/web
    pub(crate) job: Option<String>,

    /// Jobs of all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,

    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Namespace that Larder is installed in; not given, it is looked for
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,

    /// Form of the output
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
