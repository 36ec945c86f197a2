//! A walk over the schemas of all CRDs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::Value;

/// One node of a schema.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    /// Such as `spec.images[]`; `.*` stands for the values of a map.
    pub(crate) path: String,
    pub(crate) schema: &'a Value,
    /// Whether the node above requires it.
    pub(crate) required: bool,
    /// The nodes above it, outermost first.
    pub(crate) above: Vec<&'a Value>,
}

/// The schema of one version, as JSON.
pub(crate) fn of_version(version: &CustomResourceDefinitionVersion) -> Value {
    let validation = version.schema.as_ref().unwrap();
    serde_json::to_value(validation.open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// The schema that both versions of a definition carry.
pub(crate) fn of(crd: &CustomResourceDefinition) -> Value {
    of_version(&crd.spec.versions[0])
}

/// All nodes below `schema`, each before what lies in it.
pub(crate) fn nodes(schema: &Value) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let root = Node {
        path: String::new(),
        schema,
        required: true,
        above: Vec::new(),
    };
    walk(root, &mut found);
    found
}

fn walk<'a>(node: Node<'a>, into: &mut Vec<Node<'a>>) {
    let schema = node.schema;
    let mut above = node.above.clone();
    above.push(schema);
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|n| n == name))
    };
    let mut below = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let separator = if node.path.is_empty() { "" } else { "." };
        below.push((format!("{}{separator}{name}", node.path), field, required(name)));
    }
    if schema["items"].is_object() {
        below.push((format!("{}[]", node.path), &schema["items"], false));
    }
    if schema["additionalProperties"].is_object() {
        below.push((format!("{}.*", node.path), &schema["additionalProperties"], false));
    }
    into.push(node);
    for (path, schema, required) in below {
        let above = above.clone();
        walk(
            Node {
                path,
                schema,
                required,
                above,
            },
            into,
        );
    }
}

/// The rules that stand on one node, as expression and message.
pub(crate) fn rules(schema: &Value) -> Vec<(&str, &str)> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules
        .map(|rule| {
            (
                rule["rule"].as_str().unwrap(),
                rule["message"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}
