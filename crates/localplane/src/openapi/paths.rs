//! The paths of every resource, with the parameters by which clients see what the server can do: kubectl looks here
//! for `dryRun` and `fieldValidation` before it uses them.

use serde_json::{Map, Value, json};

use super::definitions::{Dialect, definition_name};
use crate::registry::{Registry, Resource, Version};

/// The paths of the chosen versions.
pub(super) fn all(registry: &Registry, wanted: impl Fn(&Version) -> bool, dialect: Dialect) -> Value {
    let mut paths = Map::new();
    for resource in registry.resources() {
        for version in resource.versions.iter().filter(|version| wanted(version)) {
            let base = base(resource, version);
            paths.insert(
                base.clone(),
                item(resource, version, &["get", "post", "delete"], false, dialect),
            );
            let one = format!("{base}/{{name}}");
            paths.insert(
                one.clone(),
                item(resource, version, &["get", "put", "patch", "delete"], true, dialect),
            );
            if version.status {
                let status = format!("{one}/status");
                paths.insert(status, item(resource, version, &["get", "put", "patch"], true, dialect));
            }
        }
    }
    Value::Object(paths)
}

fn base(resource: &Resource, version: &Version) -> String {
    let root = if version.group.is_empty() {
        format!("/api/{}", version.name)
    } else {
        format!("/apis/{}/{}", version.group, version.name)
    };
    if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    }
}

fn item(resource: &Resource, version: &Version, verbs: &[&str], named: bool, dialect: Dialect) -> Value {
    let mut item = Map::new();
    let mut own = Vec::new();
    if named {
        own.push(parameter("name", "path", dialect));
    }
    if resource.namespaced {
        own.push(parameter("namespace", "path", dialect));
    }
    if !own.is_empty() {
        item.insert("parameters".into(), Value::Array(own));
    }
    for verb in verbs {
        if resource.is_read_only() && *verb != "get" {
            continue;
        }
        item.insert((*verb).to_owned(), operation(resource, version, verb, named, dialect));
    }
    Value::Object(item)
}

fn operation(resource: &Resource, version: &Version, verb: &str, named: bool, dialect: Dialect) -> Value {
    let (action, parameters): (&str, &[&str]) = match (verb, named) {
        ("get", true) => ("get", &["pretty"]),
        ("get", false) => (
            "list",
            &[
                "allowWatchBookmarks",
                "continue",
                "fieldSelector",
                "labelSelector",
                "limit",
                "resourceVersion",
                "resourceVersionMatch",
                "sendInitialEvents",
                "timeoutSeconds",
                "watch",
            ],
        ),
        ("post", _) => ("post", &["dryRun", "fieldManager", "fieldValidation"]),
        ("put", _) => ("put", &["dryRun", "fieldManager", "fieldValidation"]),
        ("patch", _) => ("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
        (_, true) => ("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        (_, false) => (
            "deletecollection",
            &["dryRun", "fieldSelector", "labelSelector", "propagationPolicy"],
        ),
    };
    let schema = dialect.reference(&definition_name(resource, version));
    let response = match dialect {
        Dialect::V2 => json!({"description": "OK", "schema": schema}),
        Dialect::V3 => json!({"description": "OK", "content": {"application/json": {"schema": schema}}}),
    };
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| parameter(name, "query", dialect))
        .collect();
    json!({
        "description": format!("{action} {}", resource.kind),
        "operationId": format!("{action}{}{}", version.name, resource.kind),
        "parameters": parameters,
        "responses": {"200": response},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": version.group,
            "version": version.name,
            "kind": resource.kind,
        },
    })
}

fn parameter(name: &str, place: &str, dialect: Dialect) -> Value {
    let mut parameter = json!({"name": name, "in": place});
    if place == "path" {
        parameter["required"] = true.into();
    }
    match dialect {
        Dialect::V2 => parameter["type"] = "string".into(),
        Dialect::V3 => parameter["schema"] = json!({"type": "string"}),
    }
    parameter
}
