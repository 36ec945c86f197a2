//! The nodes of several pod templates, as one job can select them.
//!
//! A job has one label selector, or a list of names, and one list of tolerations. Pods can ask for more: one of several
//! terms, numbers above or below others, and each template for something else. [`Alternative`]s are what the templates ask
//! for, [`merge`] makes one selection of them. It never leaves out a node on which one of the pods may run; where it selects
//! more than those, it says so.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use larder_api::names::WARMING_TAINT;
use larder_api::template::NodeSelector;

use super::Workload;
use crate::pod_nodes::{NAME_FIELD, PodNodes, required_terms};
use crate::select::{UnknownOperator, all_tolerated};

/// Taints that Kubernetes lets every pod tolerate, for a while, and one that leaves as soon as the images are there.
const TOLERATED_BY_ALL: [(&str, &str); 3] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    (WARMING_TAINT, ""),
];

/// Taints that Kubernetes lets the pods of DaemonSets tolerate beside them.
const TOLERATED_BY_DAEMON_SETS: [(&str, &str); 4] = [
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Where one of the pods may run, if this holds altogether.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alternative {
    /// One of these nodes; None if the name does not matter.
    names: Option<BTreeSet<String>>,
    requirements: BTreeSet<Requirement>,
    tolerations: BTreeSet<Tolerance>,
    /// A job's selector can say all of it.
    is_exact: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: String,
    values: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tolerance {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

/// The nodes of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Merged {
    pub(super) selector: Option<NodeSelector>,
    pub(super) tolerations: Vec<Toleration>,
    /// These nodes and no others.
    pub(super) is_exact: bool,
}

/// What the pods of a workload ask of a node. Empty if no node can have it.
pub(super) fn alternatives(workload: &Workload) -> Vec<Alternative> {
    let pods = &workload.pods;
    // Such a pod does not pass through the scheduler, so no label and no taint is looked at.
    if let Some(name) = node_name(pods) {
        let everything = Tolerance {
            operator: "Exists".to_owned(),
            ..Tolerance::default()
        };
        return vec![Alternative {
            names: Some([name.to_owned()].into()),
            requirements: BTreeSet::new(),
            tolerations: [everything].into(),
            is_exact: true,
        }];
    }
    let every_term = Alternative {
        names: None,
        requirements: pods.node_selector.iter().flatten().map(Requirement::equal).collect(),
        tolerations: tolerations(workload).map(Tolerance::new).collect(),
        is_exact: true,
    };
    let Some(terms) = required_terms(pods.affinity.as_ref()) else {
        return vec![every_term];
    };
    let one = |term: &NodeSelectorTerm| {
        let mut one = every_term.clone();
        for expression in term.match_expressions.iter().flatten() {
            // A job's selector compares no numbers.
            if matches!(expression.operator.as_str(), "Gt" | "Lt") {
                one.is_exact = false;
            } else {
                let values = expression.values.iter().flatten().cloned().collect();
                one.requirements.insert(Requirement {
                    key: expression.key.clone(),
                    operator: expression.operator.clone(),
                    values,
                });
            }
        }
        for field in term.match_fields.iter().flatten() {
            if field.key == NAME_FIELD && field.operator == "In" {
                let given: BTreeSet<String> = field.values.iter().flatten().cloned().collect();
                one.names = Some(match one.names.take() {
                    Some(names) => names.intersection(&given).cloned().collect(),
                    None => given,
                });
            } else {
                one.is_exact = false;
            }
        }
        // A selector has names or labels.
        one.is_exact &= one.names.is_none() || one.requirements.is_empty();
        one
    };
    let nobody = |one: &Alternative| one.names.as_ref().is_some_and(BTreeSet::is_empty);
    terms.into_iter().map(one).filter(|one| !nobody(one)).collect()
}

/// One selection for all of them; None if there are none.
pub(super) fn merge(alternatives: &[Alternative]) -> Option<Merged> {
    let alternatives = widest(alternatives);
    let first = alternatives.first()?;
    let tolerations: BTreeSet<&Tolerance> = alternatives.iter().flat_map(|one| &one.tolerations).collect();
    let same_tolerations = alternatives.iter().all(|one| one.tolerations == first.tolerations);
    let names: Option<Vec<&BTreeSet<String>>> = alternatives.iter().map(|one| one.names.as_ref()).collect();
    let (selector, is_union) = if let Some(names) = names {
        let names: BTreeSet<&String> = names.into_iter().flatten().collect();
        let selector = NodeSelector {
            names: names.into_iter().cloned().collect(),
            ..NodeSelector::default()
        };
        (Some(selector), true)
    } else {
        let (requirements, is_union) = merge_requirements(&alternatives);
        let no_names = alternatives.iter().all(|one| one.names.is_none());
        (selector(&requirements), is_union && no_names)
    };
    Some(Merged {
        selector,
        tolerations: tolerations.into_iter().map(Tolerance::to_api).collect(),
        is_exact: is_union && same_tolerations && alternatives.iter().all(|one| one.is_exact),
    })
}

/// Without those whose nodes others have too.
fn widest(alternatives: &[Alternative]) -> Vec<&Alternative> {
    let distinct: BTreeSet<&Alternative> = alternatives.iter().collect();
    let covered = |one: &Alternative| distinct.iter().any(|other| *other != one && other.covers(one));
    distinct.iter().copied().filter(|one| !covered(one)).collect()
}

/// What all of them require: the requirements that they share, and for a label of which each requires certain values, those
/// of all. The union of their nodes if they differ in one such label alone.
fn merge_requirements(alternatives: &[&Alternative]) -> (BTreeSet<Requirement>, bool) {
    let is_shared = |one: &Requirement| alternatives.iter().all(|other| other.requirements.contains(one));
    let (shared, own): (BTreeSet<&Requirement>, BTreeSet<&Requirement>) = alternatives
        .iter()
        .flat_map(|one| &one.requirements)
        .partition(|one| is_shared(one));
    let mut merged: BTreeSet<Requirement> = shared.into_iter().cloned().collect();
    let keys: BTreeSet<&str> = own.iter().map(|requirement| requirement.key.as_str()).collect();
    for key in &keys {
        let values_of = |one: &&Alternative| {
            let mut found = one.requirements.iter();
            let found = found.find(|own| own.key == *key && own.operator == "In" && !is_shared(own));
            found.map(|requirement| requirement.values.clone())
        };
        let values: Option<Vec<BTreeSet<String>>> = alternatives.iter().map(values_of).collect();
        merged.extend(values.map(|values| Requirement {
            key: (*key).to_owned(),
            operator: "In".to_owned(),
            values: values.into_iter().flatten().collect(),
        }));
    }
    let own_count = |one: &&Alternative| one.requirements.iter().filter(|one| !is_shared(one)).count();
    let one_each = alternatives.iter().all(|one| own_count(one) == 1);
    let all_in = own.iter().all(|requirement| requirement.operator == "In");
    let is_union = own.is_empty() || (one_each && all_in && keys.len() == 1);
    (merged, is_union)
}

fn selector(requirements: &BTreeSet<Requirement>) -> Option<NodeSelector> {
    let mut selector = NodeSelector::default();
    for requirement in requirements {
        let one_value = requirement.values.first().filter(|_| requirement.values.len() == 1);
        match one_value {
            Some(value) if requirement.operator == "In" && !selector.match_labels.contains_key(&requirement.key) => {
                selector.match_labels.insert(requirement.key.clone(), value.clone());
            }
            _ => selector.match_expressions.push(requirement.to_api()),
        }
    }
    (!requirements.is_empty()).then_some(selector)
}

fn node_name(pods: &PodSpec) -> Option<&str> {
    pods.node_name.as_deref().filter(|name| !name.is_empty())
}

/// What the pods tolerate, with what Kubernetes adds. Never empty: a job without tolerations ignores taints.
fn tolerations(workload: &Workload) -> impl Iterator<Item = Toleration> {
    let of_daemon_sets = match workload.kind.as_str() {
        "DaemonSet" => TOLERATED_BY_DAEMON_SETS.as_slice(),
        _ => &[],
    };
    let added = TOLERATED_BY_ALL.iter().chain(of_daemon_sets);
    let added = added.map(|(key, effect)| Toleration {
        key: Some((*key).to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some((*effect).to_owned()),
        ..Toleration::default()
    });
    // Operators that a job does not know are none that it could tolerate by.
    let known = |one: &&Toleration| matches!(one.operator.as_deref(), None | Some("" | "Equal" | "Exists"));
    let own = workload.pods.tolerations.iter().flatten().filter(known).cloned();
    own.chain(added)
}

impl Alternative {
    /// Whether every node of the other is one of this. What a selector cannot say is not looked at, so the answer holds for
    /// this one's selector.
    fn covers(&self, other: &Self) -> bool {
        let names = match (&self.names, &other.names) {
            (None, _) => true,
            (Some(mine), Some(theirs)) => theirs.is_subset(mine),
            (Some(_), None) => false,
        };
        names
            && self.is_exact
            && self.requirements.is_subset(&other.requirements)
            && self.tolerations.is_superset(&other.tolerations)
    }
}

impl Requirement {
    fn equal((key, value): (&String, &String)) -> Self {
        Self {
            key: key.clone(),
            operator: "In".to_owned(),
            values: [value.clone()].into(),
        }
    }

    fn to_api(&self) -> LabelSelectorRequirement {
        let values: Vec<String> = self.values.iter().cloned().collect();
        LabelSelectorRequirement {
            key: self.key.clone(),
            operator: self.operator.clone(),
            values: Some(values).filter(|values| !values.is_empty()),
        }
    }
}

impl Tolerance {
    fn new(toleration: Toleration) -> Self {
        let operator = toleration.operator.filter(|operator| operator != "Equal");
        Self {
            key: toleration.key.unwrap_or_default(),
            operator: operator.unwrap_or_default(),
            value: toleration.value.unwrap_or_default(),
            effect: toleration.effect.unwrap_or_default(),
        }
    }

    fn to_api(&self) -> Toleration {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Toleration {
            key: given(&self.key),
            operator: given(&self.operator),
            value: given(&self.value),
            effect: given(&self.effect),
            toleration_seconds: None,
        }
    }
}

/// On which nodes pods of some workloads may run: exactly, one node after another.
#[derive(Clone, Debug)]
pub struct WorkloadNodes(Vec<Rule>);

#[derive(Clone, Debug)]
enum Rule {
    Named(String),
    Scheduled {
        nodes: PodNodes,
        tolerations: Vec<Toleration>,
    },
}

impl WorkloadNodes {
    /// Reads what the workloads ask of nodes.
    pub fn new(workloads: &[Workload]) -> Result<Self, UnknownOperator> {
        let rule = |workload: &Workload| {
            let pods = &workload.pods;
            if let Some(name) = node_name(pods) {
                return Ok(Rule::Named(name.to_owned()));
            }
            let none = BTreeMap::new();
            Ok(Rule::Scheduled {
                nodes: PodNodes::new(pods.node_selector.as_ref().unwrap_or(&none), pods.affinity.as_ref())?,
                tolerations: tolerations(workload).collect(),
            })
        };
        workloads.iter().map(rule).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a pod of one of them may run on a node.
    pub fn contain(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
        self.0.iter().any(|rule| match rule {
            Rule::Named(node) => node == name,
            Rule::Scheduled { nodes, tolerations } => nodes.matches(name, labels) && all_tolerated(taints, tolerations),
        })
    }
}
