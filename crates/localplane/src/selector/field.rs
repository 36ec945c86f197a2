//! `metadata.name=a,spec.nodeName!=b`: field selectors, limited to the fields a resource declares.

use crate::{registry::Resource, stored::Stored};

/// All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Index in the resource's selectable fields.
    Declared(usize),
}

impl FieldSelector {
    /// Parses the text of a `fieldSelector` parameter for `resource`.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split_unescaped(text, ',') {
            if part.is_empty() {
                continue;
            }
            let (label, value, equal) =
                operator(&part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let field = match label {
                "metadata.name" => Field::Name,
                "metadata.namespace" if resource.namespaced => Field::Namespace,
                _ => resource
                    .selectable
                    .iter()
                    .position(|field| field.label == label)
                    .map(Field::Declared)
                    .ok_or_else(|| format!("field label not supported: {label}"))?,
            };
            terms.push(Term {
                field,
                value: unescape(value),
                equal,
            });
        }
        Ok(Self { terms })
    }

    /// Whether every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The one name that can match, if the selector asks for one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == Field::Name)
            .map(|term| term.value.as_str())
    }

    /// Whether the object matches.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.terms.iter().all(|term| {
            let value = match term.field {
                Field::Name => &object.name.name,
                Field::Namespace => &object.name.namespace,
                Field::Declared(index) => &object.fields[index],
            };
            (*value == term.value) == term.equal
        })
    }
}

fn operator(part: &str) -> Option<(&str, &str, bool)> {
    let at = part.find(['!', '='])?;
    let (label, rest) = part.split_at(at);
    for (symbol, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(value) = rest.strip_prefix(symbol) {
            return Some((label, value, equal));
        }
    }
    None
}

fn split_unescaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    plain
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::builtin::KINDS;

    fn pods() -> Resource {
        let pod = KINDS.iter().find(|kind| kind.is_pod()).unwrap();
        pod.resource(0)
    }

    #[rstest]
    #[case::everything("", true)]
    #[case::name("metadata.name=a", true)]
    #[case::double_equals("metadata.name==a", true)]
    #[case::other_name("metadata.name=b", false)]
    #[case::not_that_name("metadata.name!=b", true)]
    #[case::namespace("metadata.namespace=default", true)]
    #[case::declared("spec.nodeName=n1,status.phase=Running", true)]
    #[case::one_of_two("spec.nodeName=n1,status.phase=Failed", false)]
    #[case::empty_value("status.podIP=", true)]
    fn selects(#[case] selector: &str, #[case] want: bool) {
        let resource = pods();
        let pod = json!({
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let stored = Stored::new(&resource, pod.as_object().unwrap().clone(), 1, 0);
        let selector = FieldSelector::parse(selector, &resource).unwrap();
        assert_eq!(selector.matches(&stored), want);
    }

    #[rstest]
    #[case::unknown_field("spec.containers=a")]
    #[case::no_operator("metadata.name")]
    fn refuses(#[case] selector: &str) {
        FieldSelector::parse(selector, &pods()).unwrap_err();
    }

    #[test]
    fn a_selector_for_one_name_is_known_as_such() {
        let parse = |text: &str| FieldSelector::parse(text, &pods()).unwrap();
        assert_eq!(parse("status.phase=Running,metadata.name=a\\,b").name(), Some("a,b"));
        assert_eq!(parse("metadata.name!=a").name(), None);
    }
}
