//! From facts to findings. Pure: the same facts always give the same sentences.

mod agents;
mod controller;
mod surroundings;

use serde::Serialize;

use super::facts::{Facts, Seen};

/// How many names are said; of the others, the number.
const NAMED: usize = 5;

/// Whether something has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Problem,
    Note,
}

/// One thing that is wrong, or worth knowing. Field names are the output of `-o json`, on which scripts rely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) says: String,
    /// What to do about it.
    pub(super) advice: String,
    /// The nodes that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<String>,
}

impl Finding {
    fn problem(says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            level: Level::Problem,
            says: says.into(),
            advice: advice.into(),
            nodes: Vec::new(),
        }
    }

    fn note(says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            level: Level::Note,
            ..Self::problem(says, advice)
        }
    }

    fn on(self, nodes: &[&str]) -> Self {
        Self {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            ..self
        }
    }
}

/// One part of a cluster, and what was found there. Field names are the output of `-o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Area {
    #[serde(rename = "area")]
    pub(super) name: &'static str,
    /// What is right, if nothing is wrong.
    #[serde(skip)]
    pub(super) fine: String,
    pub(super) findings: Vec<Finding>,
}

/// Everything that there is to say.
pub(super) fn diagnose(facts: &Facts) -> Vec<Area> {
    let mut areas = vec![surroundings::server(facts), surroundings::crds(facts)];
    if !facts.server.embedded {
        areas.push(surroundings::rivals(facts));
        areas.push(controller::controller(facts));
    }
    areas.push(agents::agents(facts));
    if !facts.server.embedded {
        areas.push(surroundings::policy(facts));
        areas.push(surroundings::rights(facts));
    }
    areas
}

/// What could not be looked at: that is no problem of the cluster.
fn unseen<T>(what: &str, seen: &Seen<T>, findings: &mut Vec<Finding>) {
    if let Err(why) = seen {
        let why = why.trim_end_matches('.');
        findings.push(Finding::note(
            format!("{what} cannot be looked at: {why}."),
            "Ask again with an account that may.",
        ));
    }
}

/// `a, b, c and 4 more`.
fn names(all: &[&str]) -> String {
    let said = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => said,
        more => format!("{said} and {more} more"),
    }
}

/// `1 node`, `3 nodes`.
fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
