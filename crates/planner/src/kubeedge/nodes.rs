//! Which nodes a job is for. Chosen once, when the job begins (and again when somebody edits the choice), as upstream
//! does; nodes that join later are not taken in, and nodes that were taken in stay.
//!
//! A node that is named and does not qualify is recorded as failed, with the known text. A node that was found by its
//! labels and does not qualify is left out and counted. With a deadline, nodes that are not ready are waited for.

use std::collections::{BTreeMap, BTreeSet};

use larder_api::image_pre_pull_job::{ImagePrePullJobStatus, ImagePrePullTemplate};
use larder_api::names::EDGE_NODE_LABEL;
use larder_model::Reason;
use thiserror::Error;

use super::recorded::{self, Cause};
use super::texts::{self, BAD_NODE_RULE, BOTH_NODE_RULES, NO_NODE_RULE, NO_NODES, NOT_EDGE, NOT_READY, NodePhase};
use crate::agent_nodes::{NoAgent, WithoutAgent};
use crate::dialect::Candidate;
use crate::select::{LabelRule, UnknownOperator};
use crate::view::NodeKey;

/// How a job names its nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeRule {
    /// These, each once, in the job's order.
    Names(Vec<NodeKey>),
    /// Edge nodes with these labels, in the order of their names.
    Labels(LabelRule),
}

/// Why a job's way to name nodes cannot be used. The API server refuses these; an object from before the CRD's rules may
/// hold them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeRuleError {
    /// Names and labels.
    #[error("{BOTH_NODE_RULES}")]
    Both,
    /// Neither.
    #[error("{NO_NODE_RULE}")]
    Neither,
    /// Both names of one field.
    #[error("nodes is another name of nodeNames; give only one of them")]
    BothNames,
    /// A selector that cannot be read.
    #[error("{BAD_NODE_RULE}{0}")]
    Selector(UnknownOperator),
}

/// A job's labels match no node that could take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{NO_NODES}")]
pub struct NoNodes;

/// The nodes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// In the order in which the status shows them.
    pub nodes: Vec<Chosen>,
    /// Nodes with the right labels that were left out.
    pub left_out: LeftOut,
}

/// One node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its name.
    pub name: NodeKey,
    /// Why it failed before anything was tried.
    pub unfit: Option<Unfit>,
}

/// Nodes with the right labels that do not qualify.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Not edge nodes.
    pub not_edge: usize,
    /// Not ready.
    pub not_ready: usize,
    /// Without an agent.
    pub no_agent: WithoutAgent,
}

/// Why a node failed before anything was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There is no such node.
    Missing,
    /// Not an edge node.
    NotEdge,
    /// No agent runs there.
    NoAgent(NoAgent),
    /// Not ready.
    NotReady,
    /// The overriders make no valid image for it; the sentence says why.
    Rewrite(String),
}

/// What was chosen before: by an earlier life of the controller, or before an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    taken_in: BTreeSet<NodeKey>,
    refused: BTreeMap<NodeKey, Unfit>,
    /// Failed under other software, which does not say whether they were tried: looked at anew.
    unknown: BTreeSet<NodeKey>,
    scope: Scope,
}

/// What an earlier choice means for nodes that are found by their labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    /// Labels are evaluated again: earlier nodes stay if they match, and others are added.
    #[default]
    Open,
    /// Exactly the earlier nodes; nodes that match only now are not added.
    Fixed,
    /// The earlier nodes, and others that match: the status had no room for all names.
    Incomplete,
}

impl NodeRule {
    /// Reads how a job names its nodes. An empty list counts as not given.
    pub fn parse(template: &ImagePrePullTemplate) -> Result<Self, NodeRuleError> {
        let (([], names) | (names, [])) = (&*template.node_names, &*template.nodes) else {
            return Err(NodeRuleError::BothNames);
        };
        match (names, &template.label_selector) {
            ([], None) => Err(NodeRuleError::Neither),
            ([_, ..], Some(_)) => Err(NodeRuleError::Both),
            ([], Some(selector)) => LabelRule::parse(selector)
                .map(Self::Labels)
                .map_err(NodeRuleError::Selector),
            (names, None) => {
                let mut seen = BTreeSet::new();
                let first = names.iter().filter(|name| seen.insert(name.as_str()));
                Ok(Self::Names(first.map(|name| name.as_str().into()).collect()))
            }
        }
    }
}

impl Before {
    /// What a job's status and the nodes that hold its claims tell of an earlier choice. A very large status may not name
    /// nodes that are done, but their claims stay until the job ended.
    pub fn of(status: Option<&ImagePrePullJobStatus>, claimed: impl IntoIterator<Item = NodeKey>) -> Self {
        let mut before = Self::default();
        for node in status.into_iter().flat_map(recorded::nodes) {
            let name = NodeKey::from(node.name);
            match (node.cause, node.phase) {
                (Some(Cause::Unfit(unfit)), _) => {
                    before.refused.insert(name, unfit);
                }
                (None, Some(NodePhase::Failure)) => {
                    before.unknown.insert(name);
                }
                (Some(Cause::Reason(_)) | None, _) => {
                    before.taken_in.insert(name);
                }
            }
        }
        before.taken_in.extend(claimed);
        let was_chosen = before.known().next().is_some();
        before.scope = match status {
            _ if !was_chosen => Scope::Open,
            Some(status) if !recorded::is_complete(status) => Scope::Incomplete,
            Some(_) | None => Scope::Fixed,
        };
        before
    }

    /// Every node that there was.
    fn known(&self) -> impl Iterator<Item = &NodeKey> {
        self.taken_in.iter().chain(self.refused.keys()).chain(&self.unknown)
    }

    /// Why a node failed before anything was tried, if it did. `node` is what is known of it now.
    fn unfit(&self, name: &NodeKey, node: Option<&Candidate<'_>>, waits: bool) -> Option<Unfit> {
        if self.taken_in.contains(name) {
            return None;
        }
        let refused = self.refused.get(name).cloned();
        refused.or_else(|| node.map_or(Some(Unfit::Missing), |node| unfit(*node, waits)))
    }

    /// After an edit of the nodes: who was taken in stays, if the job still names it, and others may come.
    #[must_use]
    pub fn edited(self) -> Self {
        Self {
            taken_in: self.taken_in,
            ..Self::default()
        }
    }
}

/// Chooses a job's nodes. `waits` says that nodes which are not ready are waited for, because the job has a deadline.
pub fn choose(
    rule: &NodeRule,
    fleet: &BTreeMap<NodeKey, Candidate<'_>>,
    waits: bool,
    before: &Before,
) -> Result<Choice, NoNodes> {
    let mut choice = Choice::default();
    match rule {
        NodeRule::Names(names) => {
            for name in names {
                choice.push(name, before.unfit(name, fleet.get(name), waits));
            }
        }
        NodeRule::Labels(rule) => {
            let known: BTreeSet<&NodeKey> = before.known().collect();
            let stay = before.scope != Scope::Open;
            for name in known.iter().filter(|_| stay) {
                choice.push(name, before.unfit(name, fleet.get(*name), waits));
            }
            for (name, node) in fleet.iter().filter(|(_, node)| rule.matches(node.labels)) {
                match unfit(*node, waits) {
                    _ if stay && known.contains(name) => {}
                    None if before.scope == Scope::Fixed => {}
                    None => choice.push(name, None),
                    Some(_) if before.taken_in.contains(name) => choice.push(name, None),
                    Some(Unfit::NotReady) => choice.left_out.not_ready += 1,
                    Some(Unfit::NoAgent(why)) => {
                        choice.left_out.no_agent.set(name, Some(why));
                    }
                    Some(_) => choice.left_out.not_edge += 1,
                }
            }
            choice.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        }
    }
    if choice.nodes.is_empty() {
        Err(NoNodes)
    } else {
        Ok(choice)
    }
}

/// Why a node does not qualify. An edge node carries the label with an empty value; then an agent has to run there, and the
/// node has to be ready, unless nodes that are not ready are waited for. The first that does not hold is the answer.
pub(super) fn unfit(node: Candidate<'_>, waits: bool) -> Option<Unfit> {
    if node.labels.get(EDGE_NODE_LABEL).is_none_or(|value| !value.is_empty()) {
        return Some(Unfit::NotEdge);
    }
    if let Some(why) = node.no_agent {
        return Some(Unfit::NoAgent(why));
    }
    (!node.ready && !waits).then_some(Unfit::NotReady)
}

impl Choice {
    fn push(&mut self, name: &NodeKey, unfit: Option<Unfit>) {
        self.nodes.push(Chosen {
            name: name.clone(),
            unfit,
        });
    }

    /// The choice as something to go by when the job is edited.
    pub fn before(&self) -> Before {
        let mut before = Before {
            scope: Scope::Fixed,
            ..Before::default()
        };
        for Chosen { name, unfit } in &self.nodes {
            match unfit {
                // What the overriders make of its images is looked at anew.
                None | Some(Unfit::Rewrite(_)) => {
                    before.taken_in.insert(name.clone());
                }
                Some(unfit) => {
                    before.refused.insert(name.clone(), unfit.clone());
                }
            }
        }
        before
    }

    /// How many nodes there are.
    pub fn total(&self) -> usize {
        self.nodes.len()
    }

    /// How many of them failed before anything was tried.
    pub fn unfit(&self) -> usize {
        self.nodes.iter().filter(|node| node.unfit.is_some()).count()
    }

    /// The nodes that can be tried.
    pub fn fit(&self) -> impl Iterator<Item = &NodeKey> {
        self.nodes
            .iter()
            .filter(|node| node.unfit.is_none())
            .map(|node| &node.name)
    }
}

impl Unfit {
    /// What the node's entry says.
    pub fn text(&self, node: &str) -> String {
        match self {
            Self::Missing => texts::no_such_node(node),
            Self::NotEdge => NOT_EDGE.to_owned(),
            Self::NoAgent(why) => why.sentence().to_owned(),
            Self::NotReady => NOT_READY.to_owned(),
            Self::Rewrite(why) => why.clone(),
        }
    }

    /// Those that a status tells of by a word of their own. What the overriders make of a node's images is looked at anew.
    pub(super) const RECORDED: [Self; 7] = [
        Self::Missing,
        Self::NotEdge,
        Self::NotReady,
        Self::NoAgent(NoAgent::Virtual),
        Self::NoAgent(NoAgent::OperatingSystem),
        Self::NoAgent(NoAgent::NotSelected),
        Self::NoAgent(NoAgent::Taint),
    ];

    /// The word in the node's entry.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "NoSuchNode",
            Self::NotEdge => "NotEdgeNode",
            Self::NotReady => "NotReadyAtStart",
            Self::NoAgent(NoAgent::Virtual) => "NoAgentVirtualNode",
            Self::NoAgent(NoAgent::OperatingSystem) => "NoAgentOperatingSystem",
            Self::NoAgent(NoAgent::NotSelected) => "NoAgentNotSelected",
            Self::NoAgent(NoAgent::Taint) => "NoAgentTaint",
            Self::Rewrite(_) => self.reason().as_str(),
        }
    }

    /// Reads the word, except that of [`Self::Rewrite`].
    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::RECORDED.into_iter().find(|unfit| unfit.word() == word)
    }

    /// The word by which reasons are counted.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing | Self::NotEdge | Self::NoAgent(_) => Reason::NodeUnsuitable,
            Self::NotReady => Reason::NodeNotReady,
            Self::Rewrite(_) => Reason::InvalidReference,
        }
    }
}

impl LeftOut {
    /// A sentence about them; none if there are none.
    pub fn sentence(&self) -> Option<String> {
        let parts = [(self.not_edge, "not edge nodes"), (self.not_ready, "not ready")];
        let said: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| 0 < *count)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let total = self.not_edge + self.not_ready;
        let others = (0 < total).then(|| format!("{total} nodes with the right labels left out: {}", said.join(", ")));
        let sentences: Vec<String> = others.into_iter().chain(self.no_agent.sentence()).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }
}

#[cfg(test)]
mod tests;
