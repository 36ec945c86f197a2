//! Whether every node has an agent that can work, and which has not, and why.

use std::collections::BTreeMap;

use super::{Area, Finding, controller, count, names, unseen};
use crate::commands::doctor::facts::{Agent, Facts, Node, Pod};

pub(super) fn agents(facts: &Facts) -> Area {
    let mut findings = Vec::new();
    unseen("The nodes", &facts.nodes, &mut findings);
    let nodes: &[Node] = facts.nodes.as_deref().unwrap_or_default();
    if nodes.is_empty() && facts.nodes.is_ok() {
        findings.push(Finding::problem(
            "The cluster has no node.",
            "Let nodes join; Larder has nothing to pull onto.",
        ));
    }
    if !facts.server.embedded {
        unseen("The agents' pods", &facts.system.agents, &mut findings);
    }
    let (ready, down): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| node.ready);
    if !down.is_empty() {
        let down = node_names(&down);
        findings.push(
            Finding::note(
                format!(
                    "{} not ready, and left alone until then: {}.",
                    are(down.len()),
                    names(&down)
                ),
                "Bring them back, or delete their Node objects: kubectl get nodes",
            )
            .on(&down),
        );
    }
    findings.extend(without_node_image(&ready));
    findings.extend(silent(facts, &ready));
    findings.extend(without_runtime(&ready));
    findings.extend(without_key(&ready));
    findings.extend(duplicates(&ready));
    findings.extend(skewed(facts, &ready));
    Area {
        name: "agents",
        fine: format!("An agent answers on {}.", all(ready.len())),
        findings,
    }
}

fn without_node_image(nodes: &[&Node]) -> Option<Finding> {
    let without: Vec<&Node> = nodes.iter().copied().filter(|node| !node.has_node_image).collect();
    if without.is_empty() {
        return None;
    }
    let without = node_names(&without);
    let says = format!("{} no NodeImage: {}.", have(without.len()), names(&without));
    let advice = "The controller makes one for each Node: see what is said of it.";
    Some(Finding::problem(says, advice).on(&without))
}

/// Nodes whose agent does not speak, one finding for each cause.
fn silent(facts: &Facts, nodes: &[&Node]) -> Vec<Finding> {
    let pods = facts.system.agents.as_deref().unwrap_or_default();
    let mut causes: BTreeMap<Silence, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.has_node_image) {
        let pod = pods.iter().find(|pod| pod.node.as_deref() == Some(node.name.as_str()));
        let cause = match &facts.system.agents {
            Ok(pods) if !facts.server.embedded => Silence::of(node, pod, pods.is_empty()),
            Ok(_) | Err(_) => node.agent.is_none().then_some(Silence::Unheard),
        };
        if let Some(cause) = cause {
            causes.entry(cause).or_default().push(&node.name);
        }
    }
    let namespace = &facts.system.namespace;
    let finding = |(cause, nodes): (Silence, Vec<&str>)| {
        let (what, advice) = cause.words(namespace);
        let says = format!("{what} on {}: {}.", count(nodes.len(), "node"), names(&nodes));
        Finding::problem(says, advice).on(&nodes)
    };
    causes.into_iter().map(finding).collect()
}

/// Why an agent does not speak.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Silence {
    /// It never has spoken, and its pod cannot be seen.
    Unheard,
    /// It never has, and there is no pod that could.
    NoPod,
    /// Its pod does not run.
    Pod(String),
    /// It never has, although its pod runs.
    Mute,
    /// It has, and its pod is gone.
    PodGone,
}

impl Silence {
    /// `no_pods`: there are none at all, so that agents that have answered are run in another way.
    fn of(node: &Node, pod: Option<&Pod>, no_pods: bool) -> Option<Self> {
        match (&node.agent, pod) {
            (None, None) => Some(Self::NoPod),
            (_, Some(pod)) if !pod.ready => {
                let why = pod.trouble.as_deref().unwrap_or("it does not say why");
                Some(Self::Pod(why.trim_end_matches('.').to_owned()))
            }
            (None, Some(_)) => Some(Self::Mute),
            (Some(_), None) if !no_pods => Some(Self::PodGone),
            (Some(_), _) => None,
        }
    }

    fn words(&self, namespace: &str) -> (String, String) {
        let pods = format!("kubectl -n {namespace} get pods -o wide");
        match self {
            Self::Unheard => (
                "No agent has ever answered".to_owned(),
                "See that larder-agent runs there and reaches the API server.".to_owned(),
            ),
            Self::NoPod => (
                "No agent has ever answered and there is no pod for one".to_owned(),
                format!(
                    "Look whether the DaemonSet is there, whether its nodeSelector and tolerations let it there, and what its \
                     Events say of refused pods: kubectl -n {namespace} describe daemonset"
                ),
            ),
            Self::Pod(why) => (
                format!("The agent's pod is not ready ({why})"),
                format!("Look at it: {pods}"),
            ),
            Self::Mute => (
                "The agent's pod runs and its agent has never answered".to_owned(),
                format!(
                    "Read its log, it says what the API server refuses: kubectl -n {namespace} logs daemonset/larder-agent"
                ),
            ),
            Self::PodGone => (
                "An agent has answered and its pod is gone".to_owned(),
                format!("Look whether the DaemonSet's nodeSelector and tolerations still let it there: {pods}"),
            ),
        }
    }
}

fn with_agent<'a>(nodes: &[&'a Node], is: impl Fn(&Agent) -> bool) -> Vec<&'a str> {
    let of = |node: &&'a Node| node.agent.as_ref().is_some_and(&is).then_some(node.name.as_str());
    nodes.iter().filter_map(of).collect()
}

fn without_runtime(nodes: &[&Node]) -> Option<Finding> {
    let without = with_agent(nodes, |agent| agent.runtime.is_none());
    if without.is_empty() {
        return None;
    }
    let says = format!(
        "The agent finds no container runtime on {}: {}.",
        count(without.len(), "node"),
        names(&without)
    );
    let advice = "Say where its socket is: helm upgrade with agent.runtime.socket (the chart's values/ has files for K3s, k0s, \
                  MicroK8s and CRI-O), or --runtime-endpoint.";
    Some(Finding::problem(says, advice).on(&without))
}

fn without_key(nodes: &[&Node]) -> Option<Finding> {
    let without = with_agent(nodes, |agent| !agent.has_key);
    if without.is_empty() {
        return None;
    }
    let says = format!(
        "The agent has no key on {}, so that no pull secret can be sealed to it: {}.",
        count(without.len(), "node"),
        names(&without)
    );
    let advice = "Start the agent with --state-dir on a folder that it may write; its log says what is wrong with the one it has.";
    Some(Finding::problem(says, advice).on(&without))
}

/// Nodes whose name two agents have.
fn duplicates(nodes: &[&Node]) -> Option<Finding> {
    let found = with_agent(nodes, |agent| agent.conflicts_with.is_some());
    let first = nodes
        .iter()
        .find_map(|node| node.agent.as_ref()?.conflicts_with.as_ref())?;
    let says = format!(
        "Two agents run with the name of the same node, and overwrite each other's status, on {}: {}.",
        count(found.len(), "node"),
        names(&found)
    );
    let advice = format!(
        "Stop one of the two, or start it with its own --node-name. status.agent.conflictsWith of the NodeImage names the \
         other agent by its host and a random part, such as {first}."
    );
    Some(Finding::problem(says, advice).on(&found))
}

/// Agents that are not of the controller's version; where that one is unknown, not of the most frequent.
fn skewed(facts: &Facts, nodes: &[&Node]) -> Option<Finding> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for version in nodes.iter().filter_map(|node| node.agent.as_ref()?.version.as_deref()) {
        *versions.entry(version).or_default() += 1;
    }
    let controller = controller::version(facts).filter(|version| is_version(version));
    let most = versions
        .iter()
        .max_by_key(|(_, count)| **count)
        .map(|(version, _)| *version);
    let (wanted, whose) = match (controller, most) {
        (Some(version), _) => (version.trim_start_matches('v'), "the controller"),
        (None, most) => (most?, "most agents"),
    };
    let differs = |version: Option<&str>| version.is_some_and(|version| version.trim_start_matches('v') != wanted);
    let others = with_agent(nodes, |agent| differs(agent.version.as_deref()));
    if others.is_empty() {
        return None;
    }
    let mut found: Vec<&str> = versions.into_keys().filter(|version| differs(Some(version))).collect();
    found.dedup();
    let says = format!(
        "The agents on {} have version {}, {whose} {}{wanted}: {}.",
        count(others.len(), "node"),
        found.join(", "),
        if whose == "the controller" { "has " } else { "have " },
        names(&others)
    );
    let advice = format!(
        "Nothing to do while an upgrade is under way; otherwise see why the DaemonSet does not replace them: kubectl -n {} \
         rollout status daemonset/larder-agent",
        facts.system.namespace
    );
    let far = found.iter().any(|version| release(version) != release(wanted));
    let finding = if far {
        Finding::problem(says, advice)
    } else {
        Finding::note(says, advice)
    };
    Some(finding.on(&others))
}

/// `0.1` of `0.1.7`: within one of these everything works together.
fn release(version: &str) -> Vec<&str> {
    version.trim_start_matches('v').split('.').take(2).collect()
}

/// Tags of images may be anything.
fn is_version(tag: &str) -> bool {
    let numbers = tag.trim_start_matches('v').split(['.', '-', '+']).take(3);
    let numbers: Vec<&str> = numbers.collect();
    numbers.len() == 3 && numbers.iter().take(2).all(|number| number.parse::<u32>().is_ok())
}

fn node_names<'a>(nodes: &[&'a Node]) -> Vec<&'a str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

fn are(number: usize) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", count(number, "node"))
}

fn have(number: usize) -> String {
    let verb = if number == 1 { "has" } else { "have" };
    format!("{} {verb}", count(number, "node"))
}

fn all(number: usize) -> String {
    match number {
        0 => "no node: none is ready".to_owned(),
        1 => "the one node".to_owned(),
        number => format!("all {number} nodes"),
    }
}
