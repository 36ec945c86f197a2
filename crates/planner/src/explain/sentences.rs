//! What is said of a whole job, in its status and about each of its nodes.

use std::collections::BTreeSet;

use jiff::Zoned;
use larder_api::names::FOREIGN_AGENT;

use crate::progress::NoLogin;
use crate::view::NodeKey;

/// A moment that may be a year away.
pub(crate) fn date_and_time(moment: &Zoned) -> String {
    moment.strftime("%a %Y-%m-%d %H:%M %Q").to_string()
}

/// Which jobs the fleet limit lets go first; None if there are none.
pub(super) fn jobs_before_sentence(jobs: usize) -> Option<String> {
    match jobs {
        0 => None,
        1 => Some("1 job with a higher priority goes first".to_owned()),
        _ => Some(format!("{jobs} jobs with a higher priority go first")),
    }
}

/// Why a job gets fewer nodes at once than it asks for.
pub(crate) const FLEET_LIMIT: &str = "the whole fleet has as many pulls as --max-active-pulls allows";

/// Why nodes wait that need a login.
pub(crate) const LOGINS_WITHHELD: &str =
    "no login is sent to a node, because the policy larder-agent-own-node is not known to be enforced";

/// Whether a job's message says that the whole fleet's limit keeps its nodes waiting.
pub fn names_fleet_limit(message: &str) -> bool {
    message.contains(FLEET_LIMIT)
}

/// Names of nodes that a sentence lists.
const NAMES_LISTED: usize = 3;

/// Which nodes need a login and are served by other software; None if there are none.
pub(crate) fn foreign_agents_sentence(nodes: &BTreeSet<NodeKey>) -> Option<String> {
    let names: Vec<&str> = nodes.iter().take(NAMES_LISTED).map(|node| &**node).collect();
    let more = if NAMES_LISTED < nodes.len() { ", …" } else { "" };
    let noun = if nodes.len() == 1 { "node" } else { "nodes" };
    (!nodes.is_empty()).then(|| {
        let (count, names) = (nodes.len(), names.join(", "));
        format!(
            "{count} {noun} cannot be sent the login, because another agent such as {FOREIGN_AGENT} serves the NodeImage \
             there and no Larder agent has reported: {names}{more}"
        )
    })
}

/// What Secrets that are of no use mean for the job; None if there are none.
pub(crate) fn no_logins_sentence(no_logins: &[NoLogin]) -> Option<String> {
    let said = |NoLogin { registry, secrets }: &NoLogin| {
        let (noun, verb) = if secrets.len() == 1 {
            ("secret", "holds")
        } else {
            ("secrets", "hold")
        };
        format!("the pull {noun} {} {verb} no login for {registry}", secrets.join(", "))
    };
    let all: Vec<String> = no_logins.iter().map(said).collect();
    (!all.is_empty()).then(|| format!("{}, which is asked without one", all.join(", ")))
}

/// What it means for the job that more nodes failed than it tolerates.
pub(crate) fn too_many_failures_sentence(active: usize) -> String {
    let then = match active {
        0 => "no other node is started",
        _ => "waits for the pulls that are under way",
    };
    format!("too many nodes failed, {then}")
}

/// What Secrets that cannot be used mean for the job.
pub(super) fn secrets_sentence(missing: &[String], unreadable: &[String], forbidden: &[String]) -> String {
    let missing = missing
        .iter()
        .map(|name| format!("the pull secret {name} does not exist"));
    let unreadable = unreadable
        .iter()
        .map(|name| format!("the pull secret {name} holds no docker configuration"));
    let forbidden = forbidden
        .iter()
        .map(|name| format!("the API server does not let the controller read the pull secret {name}"));
    let all: Vec<String> = missing.chain(unreadable).chain(forbidden).collect();
    format!("{}; nothing is pulled until that is mended", all.join(", "))
}
