//! On which nodes a pod may run by their labels and names: `nodeSelector` and required node affinity, as Kubernetes'
//! scheduler reads them. Taints are not looked at here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorTerm};

use crate::select::{LabelRule, UnknownOperator};

/// The only field of a node that Kubernetes lets a pod select by.
pub(crate) const NAME_FIELD: &str = "metadata.name";

/// The nodes of one pod's definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodNodes {
    labels: LabelRule,
    /// One of these must hold; None if nothing is required.
    terms: Option<Vec<Term>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    labels: LabelRule,
    fields: LabelRule,
}

impl PodNodes {
    pub(crate) fn new(
        node_selector: &BTreeMap<String, String>,
        affinity: Option<&Affinity>,
    ) -> Result<Self, UnknownOperator> {
        let terms = required_terms(affinity).map(|terms| terms.into_iter().map(Term::parse).collect());
        Ok(Self {
            labels: LabelRule::new(node_selector, [])?,
            terms: terms.transpose()?,
        })
    }

    pub(crate) fn matching(labels: LabelRule) -> Self {
        Self { labels, terms: None }
    }

    pub(crate) fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let one_holds = |terms: &Vec<Term>| terms.iter().any(|term| term.matches(name, labels));
        self.labels.matches(labels) && self.terms.as_ref().is_none_or(one_holds)
    }
}

/// The terms of which one must hold; None if nothing is required. A term without requirements matches no node and is left
/// out.
pub(crate) fn required_terms(affinity: Option<&Affinity>) -> Option<Vec<&NodeSelectorTerm>> {
    let nodes = affinity?.node_affinity.as_ref()?;
    let required = nodes.required_during_scheduling_ignored_during_execution.as_ref()?;
    let terms = required.node_selector_terms.iter();
    Some(terms.filter(|term| !is_empty(term)).collect())
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    let given = |list: Option<usize>| list.is_some_and(|length| 0 < length);
    !given(term.match_expressions.as_ref().map(Vec::len)) && !given(term.match_fields.as_ref().map(Vec::len))
}

impl Term {
    fn parse(term: &NodeSelectorTerm) -> Result<Self, UnknownOperator> {
        Ok(Self {
            labels: LabelRule::of_node_affinity(term.match_expressions.iter().flatten())?,
            fields: LabelRule::of_node_affinity(term.match_fields.iter().flatten())?,
        })
    }

    fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let fields = [(NAME_FIELD.to_owned(), name.to_owned())].into();
        self.labels.matches(labels) && self.fields.matches(&fields)
    }
}
