//! Which nodes a campaign is for: all, by name, by label, or where matching pods run; and of those only the ones whose
//! taints are tolerated, if tolerations are given.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use thiserror::Error;

/// Taints that Kubernetes puts on a node that does not answer. Such a node is still wanted: it waits until it is back.
const WAITED_FOR: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Which nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// How they are found.
    pub by: SelectBy,
    /// When given, nodes with other taints are left out.
    pub tolerations: Option<Vec<Toleration>>,
}

/// How nodes are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SelectBy {
    /// Every node.
    #[default]
    All,
    /// These; names without a node are passed over.
    Names(BTreeSet<String>),
    /// Exactly these, chosen once: a name without a node is still one of them, and waits for the node.
    Fixed(BTreeSet<String>),
    /// Nodes with these labels.
    Labels(LabelRule),
    /// Nodes that run pods with these labels.
    Pods(LabelRule),
}

/// What a selection looks at.
#[derive(Clone, Copy, Debug)]
pub struct NodeTraits<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its taints.
    pub taints: &'a [Taint],
    /// Whether a pod that the campaign's pod rule matches runs there.
    pub runs_matching_pod: bool,
}

/// A label selector that was checked once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRule(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    DoesNotExist(String),
    /// Only in node affinity: the label is a number above this one.
    Gt(String, i64),
    /// Only in node affinity: the label is a number below this one.
    Lt(String, i64),
}

/// An operator that no Kubernetes knows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the label selector's operator {0:?} is unknown; use In, NotIn, Exists or DoesNotExist")]
pub struct UnknownOperator(String);

impl Selection {
    /// Whether a node is one of them.
    pub fn selects(&self, node: NodeTraits<'_>) -> bool {
        let found = match &self.by {
            SelectBy::All => true,
            SelectBy::Names(names) | SelectBy::Fixed(names) => names.contains(node.name),
            SelectBy::Labels(rule) => rule.matches(node.labels),
            SelectBy::Pods(_) => node.runs_matching_pod,
        };
        found && self.tolerates(node.taints)
    }

    /// Whether a node is one of those that were chosen once, by name.
    pub fn names(&self, node: &str) -> bool {
        matches!(&self.by, SelectBy::Fixed(names) if names.contains(node))
    }

    fn tolerates(&self, taints: &[Taint]) -> bool {
        // An empty list counts as not given, as everywhere.
        let given = self.tolerations.as_ref().filter(|list| !list.is_empty());
        given.is_none_or(|tolerations| all_tolerated(taints, tolerations))
    }
}

/// Whether a node's taints keep nobody out who has these tolerations.
pub(crate) fn all_tolerated(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule" && !WAITED_FOR.contains(&taint.key.as_str()))
        .all(|taint| tolerations.iter().any(|toleration| tolerated(taint, toleration)))
}

/// Kubernetes' own rule: an empty key with Exists tolerates everything, an empty effect every effect.
pub(crate) fn tolerated(taint: &Taint, toleration: &Toleration) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            let value = toleration.value.as_deref().unwrap_or_default();
            !key.is_empty() && value == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

impl LabelRule {
    /// Reads a label selector.
    pub fn parse(selector: &LabelSelector) -> Result<Self, UnknownOperator> {
        let labels = selector.match_labels.iter().flatten();
        let expressions = selector.match_expressions.iter().flatten();
        Self::new(labels, expressions)
    }

    /// Reads labels and expressions that must all hold.
    pub fn new<'a>(
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
        expressions: impl IntoIterator<Item = &'a LabelSelectorRequirement>,
    ) -> Result<Self, UnknownOperator> {
        let equal = |(key, value): (&String, &String)| Ok(Requirement::In(key.clone(), [value.clone()].into()));
        let labels = labels.into_iter().map(equal);
        let expressions = expressions.into_iter().map(requirement);
        labels.chain(expressions).collect::<Result<_, _>>().map(Self)
    }

    /// Reads the expressions of one term of node affinity, which must all hold.
    pub(crate) fn of_node_affinity<'a>(
        expressions: impl IntoIterator<Item = &'a NodeSelectorRequirement>,
    ) -> Result<Self, UnknownOperator> {
        let expressions = expressions.into_iter().map(node_requirement);
        expressions.collect::<Result<_, _>>().map(Self)
    }

    /// Labels that must not have these values.
    pub(crate) fn none_of<'a>(unwanted: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let differs = |(key, value): (&str, &str)| Requirement::NotIn(key.to_owned(), [value.to_owned()].into());
        Self(unwanted.into_iter().map(differs).collect())
    }

    /// Whether every requirement holds; without any, everything matches.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::DoesNotExist(key) => !labels.contains_key(key),
            Requirement::Gt(key, limit) => number(labels, key).is_some_and(|value| *limit < value),
            Requirement::Lt(key, limit) => number(labels, key).is_some_and(|value| value < *limit),
        })
    }
}

fn number(labels: &BTreeMap<String, String>, key: &str) -> Option<i64> {
    labels.get(key)?.parse().ok()
}

/// Node affinity knows two operators more than label selectors.
fn node_requirement(expression: &NodeSelectorRequirement) -> Result<Requirement, UnknownOperator> {
    let limit = || expression.values.iter().flatten().next()?.parse().ok();
    match (expression.operator.as_str(), limit()) {
        ("Gt", Some(limit)) => Ok(Requirement::Gt(expression.key.clone(), limit)),
        ("Lt", Some(limit)) => Ok(Requirement::Lt(expression.key.clone(), limit)),
        _ => requirement(&LabelSelectorRequirement {
            key: expression.key.clone(),
            operator: expression.operator.clone(),
            values: expression.values.clone(),
        }),
    }
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, UnknownOperator> {
    let key = expression.key.clone();
    let values = || expression.values.iter().flatten().cloned().collect();
    match expression.operator.as_str() {
        "In" => Ok(Requirement::In(key, values())),
        "NotIn" => Ok(Requirement::NotIn(key, values())),
        "Exists" => Ok(Requirement::Exists(key)),
        "DoesNotExist" => Ok(Requirement::DoesNotExist(key)),
        other => Err(UnknownOperator(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
        LabelSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
        }
    }

    #[rstest]
    #[case::no_requirement(&[], &[], true)]
    #[case::label(&[("zone", "a")], &[], true)]
    #[case::another_value(&[("zone", "b")], &[], false)]
    #[case::label_is_missing(&[("arch", "arm64")], &[], false)]
    #[case::all_must_hold(&[("zone", "a"), ("arch", "arm64")], &[], false)]
    #[case::is_in(&[], &[("zone", "In", &["a", "b"][..])], true)]
    #[case::is_not_in_the_list(&[], &[("zone", "In", &["b"][..])], false)]
    #[case::in_needs_the_key(&[], &[("arch", "In", &["x"][..])], false)]
    #[case::not_in(&[], &[("zone", "NotIn", &["b"][..])], true)]
    #[case::not_in_refuses(&[], &[("zone", "NotIn", &["a"][..])], false)]
    #[case::not_in_holds_without_the_key(&[], &[("arch", "NotIn", &["x"][..])], true)]
    #[case::exists(&[], &[("zone", "Exists", &[][..])], true)]
    #[case::exists_needs_the_key(&[], &[("arch", "Exists", &[][..])], false)]
    #[case::does_not_exist(&[], &[("arch", "DoesNotExist", &[][..])], true)]
    #[case::does_not_exist_refuses(&[], &[("zone", "DoesNotExist", &[][..])], false)]
    fn by_label(#[case] wanted: &[(&str, &str)], #[case] expressions: &[(&str, &str, &[&str])], #[case] want: bool) {
        let selector = LabelSelector {
            match_labels: Some(labels(wanted)),
            match_expressions: Some(
                expressions
                    .iter()
                    .map(|(key, operator, values)| expression(key, operator, values))
                    .collect(),
            ),
        };
        let node = labels(&[("zone", "a")]);
        assert_eq!(LabelRule::parse(&selector).unwrap().matches(&node), want);
    }

    #[test]
    fn an_unknown_operator_is_named() {
        let selector = LabelSelector {
            match_expressions: Some(vec![expression("zone", "Near", &[])]),
            ..LabelSelector::default()
        };
        assert_eq!(LabelRule::parse(&selector), Err(UnknownOperator("Near".into())));
    }

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: effect.into(),
            time_added: None,
        }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration {
            key: Some(key.into()),
            operator: Some(operator.into()),
            value: Some(value.into()),
            effect: Some(effect.into()),
            toleration_seconds: None,
        }
    }

    fn selects(selection: &Selection, taints: &[Taint], runs_matching_pod: bool) -> bool {
        selection.selects(NodeTraits {
            name: "node-1",
            labels: &labels(&[("zone", "a")]),
            taints,
            runs_matching_pod,
        })
    }

    #[rstest]
    #[case::not_given(None, "NoSchedule", true)]
    #[case::empty_is_not_given(Some(vec![]), "NoSchedule", true)]
    #[case::equal(Some(vec![toleration("gpu", "Equal", "yes", "NoSchedule")]), "NoSchedule", true)]
    #[case::equal_is_the_default(Some(vec![toleration("gpu", "", "yes", "")]), "NoSchedule", true)]
    #[case::another_value(Some(vec![toleration("gpu", "Equal", "no", "")]), "NoSchedule", false)]
    #[case::another_effect(Some(vec![toleration("gpu", "Exists", "", "NoExecute")]), "NoSchedule", false)]
    #[case::another_key(Some(vec![toleration("disk", "Exists", "", "")]), "NoSchedule", false)]
    #[case::exists(Some(vec![toleration("gpu", "Exists", "", "")]), "NoExecute", true)]
    #[case::everything(Some(vec![toleration("", "Exists", "", "")]), "NoExecute", true)]
    #[case::an_empty_key_needs_exists(Some(vec![toleration("", "Equal", "yes", "")]), "NoExecute", false)]
    #[case::a_soft_taint_keeps_nobody_out(Some(vec![toleration("disk", "Exists", "", "")]), "PreferNoSchedule", true)]
    fn by_toleration(#[case] tolerations: Option<Vec<Toleration>>, #[case] effect: &str, #[case] want: bool) {
        let selection = Selection {
            by: SelectBy::All,
            tolerations,
        };
        assert_eq!(selects(&selection, &[taint("gpu", "yes", effect)], false), want);
    }

    #[test]
    fn a_node_that_does_not_answer_is_waited_for_whatever_is_tolerated() {
        let selection = Selection {
            by: SelectBy::All,
            tolerations: Some(vec![toleration("gpu", "Exists", "", "")]),
        };
        let taints = WAITED_FOR.map(|key| taint(key, "", "NoExecute"));
        assert!(selects(&selection, &taints, false));
    }

    #[rstest]
    #[case::all(SelectBy::All, false, true)]
    #[case::named(SelectBy::Names(["node-1".to_owned()].into()), false, true)]
    #[case::not_named(SelectBy::Names(["node-2".to_owned()].into()), false, false)]
    #[case::pod_there(SelectBy::Pods(LabelRule::default()), true, true)]
    #[case::pod_not_there(SelectBy::Pods(LabelRule::default()), false, false)]
    fn by_kind(#[case] by: SelectBy, #[case] runs_matching_pod: bool, #[case] want: bool) {
        let selection = Selection { by, tolerations: None };
        assert_eq!(selects(&selection, &[], runs_matching_pod), want);
    }
}
