//! Which nodes an ImagePullJob or ImageListPullJob is for.

use crate::case::{Case, accept, refuse};

/// The cases of both kinds, around the line that names the image or images.
pub(crate) fn cases(images: &str) -> Vec<Case> {
    [selector(images), labels(images), pod_selector(images)]
        .into_iter()
        .flatten()
        .collect()
}

fn selector(images: &str) -> Vec<Case> {
    const BOTH: &str = "selector can not have both names and a label selector";
    let with = |value: &str| format!("{{{images}, selector: {value}}}");
    let requirement = |value: &str| with(&format!("{{matchExpressions: [{value}]}}"));
    vec![
        accept("empty selector", with("{}")),
        accept("selector is null", with("null")),
        accept("selector by names", with("{names: [node-1, node-2]}")),
        accept(
            "selector by labels",
            with("{matchLabels: {node-type: xxx, zone: \"\"}}"),
        ),
        accept(
            "no names beside labels",
            with("{names: [], matchLabels: {node-type: xxx}}"),
        ),
        accept("names beside no labels", with("{names: [node-1], matchLabels: {}}")),
        accept("In", requirement("{key: zone, operator: In, values: [a, b]}")),
        accept(
            "NotIn",
            requirement("{key: example.com/zone, operator: NotIn, values: [a]}"),
        ),
        accept("Exists", requirement("{key: gpu, operator: Exists}")),
        accept(
            "DoesNotExist",
            requirement("{key: gpu, operator: DoesNotExist, values: []}"),
        ),
        refuse(
            "the guides' names and labels together",
            with("{names: [node-1, node-2], matchLabels: {node-type: xxx}}"),
            BOTH,
        ),
        refuse(
            "names and expressions together",
            with("{names: [node-1], matchExpressions: [{key: a, operator: Exists}]}"),
            BOTH,
        ),
        refuse(
            "one node twice",
            with("{names: [node-1, node-2, node-1]}"),
            "Duplicate value: \"node-1\"",
        ),
        refuse("node without name", with("{names: [\"\"]}"), "spec.selector.names[0]"),
        refuse("names is no list", with("{names: node-1}"), "spec.selector.names"),
        refuse(
            "In without values",
            requirement("{key: zone, operator: In}"),
            "values must be given when operator is In or NotIn",
        ),
        refuse(
            "NotIn with an empty list",
            requirement("{key: zone, operator: NotIn, values: []}"),
            "values must be given when operator is In or NotIn",
        ),
        refuse(
            "Exists with values",
            requirement("{key: zone, operator: Exists, values: [a]}"),
            "values must not be given when operator is Exists or DoesNotExist",
        ),
        refuse(
            "operator that nobody knows",
            requirement("{key: zone, operator: Equals, values: [a]}"),
            "spec.selector.matchExpressions[0].operator: Unsupported value: \"Equals\"",
        ),
        refuse(
            "requirement without key",
            requirement("{operator: Exists}"),
            "spec.selector.matchExpressions[0].key: Required value",
        ),
        refuse(
            "requirement without operator",
            requirement("{key: zone}"),
            "spec.selector.matchExpressions[0].operator: Required value",
        ),
    ]
}

fn labels(images: &str) -> Vec<Case> {
    let label = |value: &str| format!("{{{images}, selector: {{matchLabels: {value}}}}}");
    let key = |key: &str| format!("{{{images}, selector: {{matchExpressions: [{{key: {key}, operator: Exists}}]}}}}");
    let long = "a".repeat(64);
    let prefix = format!(
        "{}.{}.{}.{}",
        "p".repeat(63),
        "p".repeat(63),
        "p".repeat(63),
        "p".repeat(61)
    );
    vec![
        accept("longest label key", key(&format!("{prefix}/{}", "k".repeat(63)))),
        accept("label with a prefix", label("{node-role.kubernetes.io/edge: \"\"}")),
        refuse(
            "label value with a blank",
            label("{zone: \"a b\"}"),
            "spec.selector.matchLabels.zone",
        ),
        refuse(
            "label value that is too long",
            label(&format!("{{zone: {long}}}")),
            "spec.selector.matchLabels.zone",
        ),
        refuse(
            "label value that is a number",
            label("{zone: 5}"),
            "spec.selector.matchLabels.zone",
        ),
        accept("label value that is null counts as not given", label("{zone: null}")),
        refuse("label key with a blank", label("{\"a b\": c}"), "a label key must"),
        refuse(
            "label key with a name that is too long",
            label(&format!("{{{long}: a}}")),
            "a label key must",
        ),
        refuse("label key with two slashes", label("{a/b/c: d}"), "a label key must"),
        refuse("empty label key", label("{\"\": a}"), "a label key must"),
        refuse(
            "label key that is too long",
            label(&format!("{{{}: a}}", "k".repeat(318))),
            "a label key must",
        ),
        refuse(
            "key with a blank",
            key("\"a b\""),
            "spec.selector.matchExpressions[0].key",
        ),
        refuse(
            "key with a name that is too long",
            key(&long),
            "spec.selector.matchExpressions[0].key",
        ),
        refuse(
            "value of a requirement with a slash",
            format!("{{{images}, selector: {{matchExpressions: [{{key: a, operator: In, values: [b/c]}}]}}}}"),
            "spec.selector.matchExpressions[0].values[0]",
        ),
    ]
}

fn pod_selector(images: &str) -> Vec<Case> {
    const BOTH: &str = "can not set both selector and podSelector";
    let with = |value: &str| format!("{{{images}, {value}}}");
    vec![
        accept("pods by label", with("podSelector: {matchLabels: {pod-label: xxx}}")),
        accept(
            "pods by expression",
            with("podSelector: {matchExpressions: [{key: pod-label, operator: In, values: [xxx]}]}"),
        ),
        refuse(
            "pods and nodes together",
            with("podSelector: {matchLabels: {a: b}}, selector: {names: [node-1]}"),
            BOTH,
        ),
        refuse(
            "pods beside an empty selector",
            with("podSelector: {matchLabels: {a: b}}, selector: {}"),
            BOTH,
        ),
        accept(
            "pods beside a selector that is null",
            with("podSelector: {matchLabels: {a: b}}, selector: null"),
        ),
        refuse(
            "pods by an expression without values",
            with("podSelector: {matchExpressions: [{key: a, operator: In}]}"),
            "values must be given when operator is In or NotIn",
        ),
    ]
}
