//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, age};
use crate::object::{self, Object};

fn at<'a>(object: &'a Object, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get(*first)?, |value, step| value.get(step))
}

fn text<'a>(object: &'a Object, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn count(object: &Object, field: &str) -> usize {
    match object.get(field) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}

pub(crate) fn plain() -> Vec<Column> {
    vec![Column::name(), Column::age()]
}

pub(crate) fn namespace() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Status", "string", 0, |object, _| {
            text(object, &["status", "phase"]).into()
        }),
        Column::age(),
    ]
}

pub(crate) fn node() -> Vec<Column> {
    const ROLE: &str = "node-role.kubernetes.io/";
    let info = |name: &str, cell| Column::made(name, "string", 1, cell);
    vec![
        Column::name(),
        Column::made("Status", "string", 0, |object, _| node_status(object).into()),
        Column::made("Roles", "string", 0, |object, _| {
            let labels = object::meta(object, "labels").and_then(Value::as_object);
            let roles: Vec<&str> = labels
                .into_iter()
                .flatten()
                .filter_map(|(key, _)| key.strip_prefix(ROLE).filter(|role| !role.is_empty()))
                .collect();
            or_none(&roles.join(","))
        }),
        Column::age(),
        Column::made("Version", "string", 0, |object, _| {
            text(object, &["status", "nodeInfo", "kubeletVersion"]).into()
        }),
        info("Internal-IP", |object, _| node_address(object, "InternalIP")),
        info("External-IP", |object, _| node_address(object, "ExternalIP")),
        info("OS-Image", |object, _| {
            or_unknown(text(object, &["status", "nodeInfo", "osImage"]))
        }),
        info("Kernel-Version", |object, _| {
            or_unknown(text(object, &["status", "nodeInfo", "kernelVersion"]))
        }),
        info("Container-Runtime", |object, _| {
            or_unknown(text(object, &["status", "nodeInfo", "containerRuntimeVersion"]))
        }),
    ]
}

fn or_unknown(text: &str) -> Value {
    if text.is_empty() {
        "<unknown>".into()
    } else {
        text.into()
    }
}

fn node_status(object: &Object) -> String {
    let ready = at(object, &["status", "conditions"])
        .and_then(Value::as_array)
        .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == "Ready"));
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(object, &["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_address(object: &Object, kind: &str) -> Value {
    let addresses = at(object, &["status", "addresses"]).and_then(Value::as_array);
    let found = addresses.into_iter().flatten().find(|address| address["type"] == kind);
    or_none(
        found
            .and_then(|address| address["address"].as_str())
            .unwrap_or_default(),
    )
}

pub(crate) fn pod() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Ready", "string", 0, |object, _| {
            let total = at(object, &["spec", "containers"])
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            let ready = pod_containers(object).filter(|status| status["ready"] == true).count();
            format!("{ready}/{total}").into()
        }),
        Column::made("Status", "string", 0, |object, _| pod_status(object).into()),
        Column::made("Restarts", "string", 0, |object, _| {
            let restarts: i64 = pod_containers(object)
                .filter_map(|status| status["restartCount"].as_i64())
                .sum();
            restarts.to_string().into()
        }),
        Column::age(),
        Column::made("IP", "string", 1, |object, _| {
            or_none(text(object, &["status", "podIP"]))
        }),
        Column::made("Node", "string", 1, |object, _| {
            or_none(text(object, &["spec", "nodeName"]))
        }),
        Column::made("Nominated Node", "string", 1, |object, _| {
            or_none(text(object, &["status", "nominatedNodeName"]))
        }),
        Column::made("Readiness Gates", "string", 1, |_, _| "<none>".into()),
    ]
}

fn pod_containers(object: &Object) -> impl Iterator<Item = &Value> {
    at(object, &["status", "containerStatuses"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn pod_status(object: &Object) -> String {
    if object::is_deleting(object) {
        return "Terminating".into();
    }
    let waiting = pod_containers(object).find_map(|status| {
        let state = &status["state"];
        ["waiting", "terminated"]
            .into_iter()
            .find_map(|kind| state[kind]["reason"].as_str())
    });
    let reason = text(object, &["status", "reason"]);
    match (waiting, reason) {
        (Some(waiting), _) => waiting.to_owned(),
        (None, "") => text(object, &["status", "phase"]).to_owned(),
        (None, reason) => reason.to_owned(),
    }
}

pub(crate) fn secret() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Type", "string", 0, |object, _| text(object, &["type"]).into()),
        Column::made("Data", "string", 0, |object, _| count(object, "data").into()),
        Column::age(),
    ]
}

pub(crate) fn config_map() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Data", "string", 0, |object, _| {
            (count(object, "data") + count(object, "binaryData")).into()
        }),
        Column::age(),
    ]
}

pub(crate) fn service_account() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Secrets", "string", 0, |object, _| count(object, "secrets").into()),
        Column::age(),
    ]
}

pub(crate) fn lease() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Holder", "string", 0, |object, _| {
            text(object, &["spec", "holderIdentity"]).into()
        }),
        Column::age(),
    ]
}

pub(crate) fn definition() -> Vec<Column> {
    vec![
        Column::name(),
        Column::made("Created At", "date", 0, |object, _| {
            object::meta_str(object, "creationTimestamp").into()
        }),
    ]
}

pub(crate) fn event() -> Vec<Column> {
    vec![
        Column::made("Last Seen", "string", 0, last_seen),
        Column::made("Type", "string", 0, |object, _| text(object, &["type"]).into()),
        Column::made("Reason", "string", 0, |object, _| text(object, &["reason"]).into()),
        Column::made("Object", "string", 0, |object, _| {
            let kind = text(object, &["involvedObject", "kind"]).to_lowercase();
            format!("{kind}/{}", text(object, &["involvedObject", "name"])).into()
        }),
        Column::made("Subobject", "string", 1, |object, _| {
            text(object, &["involvedObject", "fieldPath"]).into()
        }),
        Column::made("Source", "string", 1, |object, _| {
            let component = text(object, &["source", "component"]);
            let component = if component.is_empty() {
                text(object, &["reportingComponent"])
            } else {
                component
            };
            component.into()
        }),
        Column::made("Message", "string", 0, |object, _| {
            text(object, &["message"]).trim().into()
        }),
        Column::made("First Seen", "string", 1, |object, now| {
            first_of(object, &[&["firstTimestamp"], &["eventTime"]], now)
        }),
        Column::made("Count", "string", 1, |object, _| {
            let series = at(object, &["series", "count"]).and_then(Value::as_i64);
            let plain = object.get("count").and_then(Value::as_i64);
            series.or(plain).unwrap_or(1).into()
        }),
        {
            let mut name = Column::name();
            name.priority = 1;
            name
        },
    ]
}

fn last_seen(object: &Object, now: Timestamp) -> Value {
    first_of(
        object,
        &[
            &["series", "lastObservedTime"],
            &["lastTimestamp"],
            &["eventTime"],
            &["firstTimestamp"],
        ],
        now,
    )
}

fn first_of(object: &Object, paths: &[&[&str]], now: Timestamp) -> Value {
    let found = paths
        .iter()
        .find_map(|path| at(object, path).filter(|value| value.is_string()));
    found.map_or_else(|| "<unknown>".into(), |value| age(value, now))
}
