//! What is typed: flags, and environment variables of the same names.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use jiff::SignedDuration;
use larder_api::names::WARMING_TAINT;
use larder_api::window::WindowEnd;
use larder_planner::SecretRef;
use larder_planner::agent_nodes::AgentNodes;
use larder_planner::node_gate::{DEFAULT_MAX_WAIT, GateRules};
use larder_planner::secret::SecretNamespaces;
use larder_planner::windows::Windows;
use larder_telemetry::logs::LogFormat;
use thiserror::Error;

use crate::feature_gates::{FeatureGates, UnreadableGate};
use crate::settings::Settings;

/// The client library logs as an error what is tried again; whoever tries again here says so once, as a warning.
const LOG: &str = "info,kube_client=off,kube_runtime=off";

/// Hands out image pulls to the nodes of a cluster and reports how far they are.
#[derive(Clone, Debug, Parser)]
#[command(name = "larder-controller", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Args {
    /// How to reach the cluster; without it the Pod's own account, else KUBECONFIG
    #[arg(long, env = "LARDER_KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the controller's Lease
    #[arg(long, env = "LARDER_NAMESPACE", global = true, default_value = larder_api::names::LARDER_NAMESPACE)]
    pub namespace: String,

    /// Let one of several replicas lead; without it, this one always does
    #[arg(long, env = "LARDER_LEADER_ELECT", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub leader_elect: bool,

    /// Where /healthz, /readyz and /metrics are served
    #[arg(
        long,
        env = "LARDER_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,

    /// Features to turn on or off, as Name=true,Name=false [ImagePullJobGate: true]
    #[arg(long, env = "LARDER_FEATURE_GATES", value_name = "GATES")]
    pub feature_gates: Vec<String>,

    /// Pulls at once in the whole cluster, over all jobs; 0 for no limit
    #[arg(long, env = "LARDER_MAX_ACTIVE_PULLS", default_value_t = 0, value_name = "NUMBER")]
    pub max_active_pulls: usize,

    /// Hand out nothing new; what is under way goes on
    #[arg(long, env = "LARDER_PAUSE", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub pause: bool,

    /// When pulls may start in the whole cluster: a JSON list of objects with days, from, to and timeZone, as in a job's windows.
    /// A job pulls only inside these and inside its own windows (default: at any time)
    #[arg(long, env = "LARDER_WINDOWS", value_name = "JSON", value_parser = Windows::parse_fleet)]
    pub windows: Option<Windows>,

    /// What happens to pulls that run when the last of --windows closes: Finish, or Stop until one opens
    #[arg(long, env = "LARDER_WINDOW_END", default_value = "Finish", value_name = "END", requires = "windows", value_parser = window_end)]
    pub window_end: WindowEnd,

    /// Keep the images of workloads and namespaces with the label larder.dev/warm: "true" on the nodes where their pods may run
    #[arg(long, env = "LARDER_WARM_WORKLOADS", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub warm_workloads: bool,

    /// Let new nodes wait for the images of jobs with nodeGate: maintain the condition larder.dev/ImagesReady of Nodes, and take
    /// this start-up taint off once the images are there [default taint: larder.dev/warming]
    #[arg(long, env = "LARDER_NODE_GATE", num_args = 0..=1, default_missing_value = WARMING_TAINT, require_equals = true,
          value_name = "TAINT")]
    pub node_gate: Option<String>,

    /// How long a new node waits at most, as 15m or 1h30m [default: 15m]
    #[arg(long, env = "LARDER_NODE_GATE_MAX_WAIT", value_name = "DURATION")]
    pub node_gate_max_wait: Option<SignedDuration>,

    /// CloudCore writes in its own name for KubeEdge's edge nodes and is let through (the chart's kubeEdge.identity:
    /// CloudCore). Any of them can then speak for any other, so no credentials are sealed for nodes with the edge label
    #[arg(long, env = "LARDER_ACCEPT_CLOUDCORE", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub accept_cloudcore: bool,

    /// Send logins to nodes although the policy larder-agent-own-node is not enforced (Kubernetes 1.27 to 1.29, or the policy
    /// is not installed). Any node can then obtain the logins of all other nodes. Without this flag, jobs with pull secrets wait
    #[arg(long, env = "LARDER_ACCEPT_UNENFORCED_NODE_POLICY", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub accept_unenforced_node_policy: bool,

    /// Namespaces whose Secrets ImagePrePullJobs may use, separated by commas. These jobs name Secrets of any namespace, and
    /// whoever may create one has the logins used (default: all namespaces)
    #[arg(
        long,
        env = "LARDER_IMAGE_PRE_PULL_SECRET_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ','
    )]
    pub image_pre_pull_secret_namespaces: Vec<String>,

    /// ServiceAccount of the agents, in --namespace. The controller impersonates it to check that the policy is enforced
    #[arg(long, env = "LARDER_AGENT_SERVICE_ACCOUNT", default_value = larder_access::AGENT, value_name = "NAME")]
    pub agent_service_account: String,

    /// Where agents run, as JSON: a list with the nodeSelector, affinity and tolerations of each of their DaemonSets. Jobs
    /// leave out all other nodes [default: all but Windows, Fargate and virtual nodes]
    #[arg(long, env = "LARDER_AGENT_NODES", value_name = "JSON", value_parser = AgentNodes::parse)]
    pub agent_nodes: Option<AgentNodes>,

    /// Which log lines: a level such as info, or target=level pairs with commas between them
    #[arg(long, env = "LARDER_LOG", default_value = LOG, value_name = "FILTER")]
    pub log: String,

    /// How log lines look: text or json
    #[arg(long, env = "LARDER_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Flags that cannot be what was meant.
#[derive(Debug, Error)]
pub enum ArgsError {
    /// A feature gate cannot be read.
    #[error(transparent)]
    Gate(#[from] UnreadableGate),
    /// An empty name would be the namespace of nothing.
    #[error("--namespace is empty; leave it out for {}", larder_api::names::LARDER_NAMESPACE)]
    EmptyNamespace,
    /// Not the name of a namespace.
    #[error("--image-pre-pull-secret-namespaces: {0:?} is not the name of a namespace")]
    SecretNamespace(String),
    /// Not the key of a taint.
    #[error("--node-gate: {0:?} is not the key of a taint; give one such as {WARMING_TAINT}, without value and effect")]
    Taint(String),
    /// Nodes would not wait at all.
    #[error("--node-gate-max-wait must be longer than 0; leave out --node-gate to let no node wait")]
    NoWait,
}

impl Args {
    /// What was meant, for a process of this name; and the feature gates that mean nothing here.
    pub fn settings(&self, identity: String) -> Result<(Settings, Vec<String>), ArgsError> {
        if self.namespace.is_empty() {
            return Err(ArgsError::EmptyNamespace);
        }
        let (gates, unknown) = FeatureGates::read(&self.feature_gates)?;
        let settings = Settings {
            namespace: self.namespace.clone(),
            identity,
            leader_elect: self.leader_elect,
            gates,
            max_active_pulls: NonZeroUsize::new(self.max_active_pulls),
            accept_cloudcore: self.accept_cloudcore,
            accept_unenforced_node_policy: self.accept_unenforced_node_policy,
            pre_pull_secret_namespaces: self.pre_pull_secret_namespaces()?,
            agent_account: self.agent_service_account.clone(),
            agent_nodes: self.agent_nodes.clone().unwrap_or_default(),
            pause: self.pause,
            windows: self.windows.clone().unwrap_or_default().ending(self.window_end),
            warm_workloads: self.warm_workloads,
            node_gate: self.node_gate()?,
        };
        Ok((settings, unknown))
    }

    fn node_gate(&self) -> Result<Option<GateRules>, ArgsError> {
        let max_wait = self.node_gate_max_wait.unwrap_or(DEFAULT_MAX_WAIT);
        if max_wait <= SignedDuration::ZERO {
            return Err(ArgsError::NoWait);
        }
        // An environment variable has to say something to switch it on or off.
        let taint = match self.node_gate.as_deref() {
            None | Some("" | "false") => return Ok(None),
            Some("true") => WARMING_TAINT,
            Some(taint) => taint,
        };
        if !is_taint_key(taint) {
            return Err(ArgsError::Taint(taint.to_owned()));
        }
        Ok(Some(GateRules {
            taint: taint.to_owned(),
            max_wait,
        }))
    }

    fn pre_pull_secret_namespaces(&self) -> Result<SecretNamespaces, ArgsError> {
        let namespaces = &self.image_pre_pull_secret_namespaces;
        if namespaces.is_empty() {
            return Ok(SecretNamespaces::All);
        }
        match namespaces.iter().find(|name| SecretRef::of(name, "any").is_err()) {
            Some(wrong) => Err(ArgsError::SecretNamespace(wrong.clone())),
            None => Ok(SecretNamespaces::Only(namespaces.iter().cloned().collect())),
        }
    }
}

fn window_end(text: &str) -> Result<WindowEnd, String> {
    match text {
        "Finish" => Ok(WindowEnd::Finish),
        "Stop" => Ok(WindowEnd::Stop),
        _ => Err("give Finish or Stop".to_owned()),
    }
}

/// `[prefix/]name`, as label keys are.
fn is_taint_key(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_word = |text: &str, rest: &[char]| {
        let ends = [text.chars().next(), text.chars().last()];
        let all = text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || rest.contains(&letter));
        all && ends
            .into_iter()
            .all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
    };
    let is_prefix = |prefix: &str| {
        prefix.len() <= 253
            && is_word(prefix, &['-', '.'])
            && !prefix.contains(|letter: char| letter.is_ascii_uppercase())
    };
    name.len() <= 63 && is_word(name, &['-', '_', '.']) && prefix.is_none_or(is_prefix)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;

    fn parse(flags: &[&str]) -> Args {
        Args::try_parse_from(["larder-controller"].iter().chain(flags)).unwrap()
    }

    fn settings(flags: &[&str]) -> Settings {
        parse(flags).settings("me".into()).unwrap().0
    }

    #[test]
    fn without_flags_it_is_the_usual() {
        assert_eq!(settings(&[]), Settings::new("me".into()));
        assert_eq!(parse(&[]).listen.to_string(), "127.0.0.1:8080");
    }

    #[rstest]
    #[case::alone(&["--leader-elect"], true)]
    #[case::on(&["--leader-elect=true"], true)]
    #[case::off(&["--leader-elect=false"], false)]
    fn leader_election(#[case] flags: &[&str], #[case] on: bool) {
        assert_eq!(settings(flags).leader_elect, on);
    }

    #[test]
    fn limits_and_gates() {
        let flags = [
            "--max-active-pulls",
            "40",
            "--pause",
            "--warm-workloads",
            "--accept-cloudcore",
            "--accept-unenforced-node-policy",
            "--agent-service-account",
            "other-agent",
            "--feature-gates",
            "ImagePullJobGate=false,KruiseDaemon=true",
        ];
        let (settings, unknown) = parse(&flags).settings("me".into()).unwrap();
        assert_eq!(settings.max_active_pulls.map(NonZeroUsize::get), Some(40));
        assert!(
            settings.pause
                && settings.warm_workloads
                && settings.accept_cloudcore
                && settings.accept_unenforced_node_policy
        );
        assert_eq!(settings.agent_user(), "system:serviceaccount:larder-system:other-agent");
        assert!(!settings.gates.image_pull_jobs);
        assert_eq!(unknown, ["KruiseDaemon"]);
        assert_eq!(super::tests::settings(&["--max-active-pulls=0"]).max_active_pulls, None);
    }

    #[rstest]
    #[case::off(&[], None)]
    #[case::limit_alone(&["--node-gate-max-wait=1h"], None)]
    #[case::on(&["--node-gate"], Some(("larder.dev/warming", 900)))]
    #[case::by_environment(&["--node-gate=true"], Some(("larder.dev/warming", 900)))]
    #[case::off_by_environment(&["--node-gate=false"], None)]
    #[case::own(
        &["--node-gate=startup-taint.cluster-autoscaler.kubernetes.io/larder", "--node-gate-max-wait", "1h30m"],
        Some(("startup-taint.cluster-autoscaler.kubernetes.io/larder", 5_400))
    )]
    fn the_node_gate(#[case] flags: &[&str], #[case] want: Option<(&str, i64)>) {
        let rules = settings(flags).node_gate;
        let found = rules
            .as_ref()
            .map(|rules| (rules.taint.as_str(), rules.max_wait.as_secs()));
        assert_eq!(found, want);
    }

    #[rstest]
    #[case::with_effect(&["--node-gate=larder.dev/warming:NoSchedule"], "without value and effect")]
    #[case::no_name(&["--node-gate=larder.dev/"], "is not the key of a taint")]
    #[case::upper_case_prefix(&["--node-gate=Larder.dev/warming"], "is not the key of a taint")]
    #[case::no_wait(&["--node-gate", "--node-gate-max-wait=0s"], "longer than 0")]
    fn a_node_gate_that_cannot_be_meant(#[case] flags: &[&str], #[case] why: &str) {
        let error = parse(flags).settings("me".into()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn the_secrets_of_pre_pull_jobs_can_be_confined() {
        let confined = settings(&["--image-pre-pull-secret-namespaces=shops,edge-1"]);
        let only = ["shops", "edge-1"].map(str::to_owned);
        assert_eq!(confined.pre_pull_secret_namespaces, SecretNamespaces::Only(only.into()));
        for wrong in ["shops,", "Shops", "shops/login", ""] {
            let flag = format!("--image-pre-pull-secret-namespaces={wrong}");
            let error = parse(&[&flag]).settings("me".into()).unwrap_err();
            assert!(
                error.to_string().contains("is not the name of a namespace"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn where_agents_run() {
        let json = r#"[{"nodeSelector":{"pool":"big"},"tolerations":[{"operator":"Exists"}]}]"#;
        let nodes = settings(&["--agent-nodes", json]).agent_nodes;
        let big = [("pool".to_owned(), "big".to_owned())].into();
        assert_eq!(nodes.without_agent("a", &big, &[]), None);
        assert!(nodes.without_agent("a", &BTreeMap::new(), &[]).is_some());
    }

    #[test]
    fn when_the_whole_fleet_may_pull() {
        const WINDOWS: &str = r#"[{"days":["Sat"],"from":"22:00","to":"06:00","timeZone":"Europe/Berlin"}]"#;
        let windows = Windows::parse_fleet(WINDOWS).unwrap();
        assert_eq!(settings(&["--windows", WINDOWS]).windows, windows);
        let stops = settings(&["--windows", WINDOWS, "--window-end=Stop"]).windows;
        assert_eq!(stops, windows.ending(WindowEnd::Stop));
    }

    #[rstest]
    #[case::not_json(&["--windows", "22:00-06:00"], "give a JSON list")]
    #[case::zone(&["--windows", r#"[{"from":"22:00","to":"06:00","timeZone":"Europe/Atlantis"}]"#], "Europe/Atlantis")]
    #[case::end(&["--windows", "[]", "--window-end=Pause"], "give Finish or Stop")]
    #[case::end_of_nothing(&["--window-end=Stop"], "--windows <JSON>")]
    fn windows_that_cannot_be_meant(#[case] flags: &[&str], #[case] why: &str) {
        let flags = ["larder-controller"].iter().chain(flags);
        let error = Args::try_parse_from(flags).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }

    #[rstest]
    #[case::not_json("pool=big", "give a JSON list")]
    #[case::misspelt(r#"[{"nodeselector":{}}]"#, "nodeselector")]
    #[case::empty("[]", "no node would have an agent")]
    fn agent_nodes_that_cannot_be_meant(#[case] json: &str, #[case] why: &str) {
        let error = Args::try_parse_from(["larder-controller", "--agent-nodes", json]).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn an_empty_namespace_is_no_namespace() {
        let error = parse(&["--namespace", ""]).settings("me".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--namespace is empty; leave it out for larder-system"
        );
    }
}
