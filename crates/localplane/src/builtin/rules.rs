//! What the cluster's API server refuses, as far as it concerns Larder and kubectl.

use serde_json::Value;

use crate::{
    error::Cause,
    object::{Object, meta_str},
};

/// A Secret or ConfigMap may hold a mebibyte.
const MOST_DATA: usize = 1 << 20;

pub(super) fn pod(object: &Object, old: Option<&Object>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = object
        .get("spec")
        .and_then(|spec| spec.get("containers"))
        .and_then(Value::as_array);
    match containers.map(Vec::as_slice) {
        None | Some([]) => causes.push(Cause::required("spec.containers", "")),
        Some(containers) => {
            for (index, container) in containers.iter().enumerate() {
                for field in ["name", "image"] {
                    if container.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                        causes.push(Cause::required(format!("spec.containers[{index}].{field}"), ""));
                    }
                }
            }
        }
    }
    let node = |object: &Object| object.get("spec").and_then(|spec| spec.get("nodeName")).cloned();
    if let Some(was) = old.and_then(node)
        && node(object).as_ref() != Some(&was)
    {
        causes.push(Cause::forbidden(
            "spec",
            "pod updates may not change the node of a scheduled pod",
        ));
    }
    causes
}

pub(super) fn secret(object: &Object, old: Option<&Object>) -> Vec<Cause> {
    let mut causes = data_rules(object, &["data"], old);
    if let Some(was) = old.and_then(|old| old.get("type"))
        && object.get("type") != Some(was)
    {
        let shown = object.get("type").map(Value::to_string).unwrap_or_default();
        causes.push(Cause::invalid("type", &shown, "field is immutable"));
    }
    let kind = object.get("type").and_then(Value::as_str);
    let needed = match kind {
        Some("kubernetes.io/dockerconfigjson") => Some(".dockerconfigjson"),
        Some("kubernetes.io/dockercfg") => Some(".dockercfg"),
        _ => None,
    };
    if let Some(key) = needed {
        let value = object
            .get("data")
            .and_then(|data| data.get(key))
            .and_then(Value::as_str);
        let decoded = value
            .map(|value| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value).unwrap_or_default());
        match decoded {
            None => causes.push(Cause::required(format!("data[{key}]"), "")),
            Some(bytes) if serde_json::from_slice::<Value>(&bytes).is_err() => {
                causes.push(Cause::invalid(
                    format!("data[{key}]"),
                    "\"<secret contents redacted>\"",
                    "invalid character in a JSON document",
                ));
            }
            Some(_) => {}
        }
    }
    causes
}

pub(super) fn config_map(object: &Object, old: Option<&Object>) -> Vec<Cause> {
    data_rules(object, &["data", "binaryData"], old)
}

fn data_rules(object: &Object, fields: &[&str], old: Option<&Object>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for field in fields {
        for (key, value) in object.get(*field).and_then(Value::as_object).into_iter().flatten() {
            size += value.as_str().map_or(0, str::len);
            let good = !key.is_empty()
                && key.len() <= 253
                && key != "."
                && key != ".."
                && key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            if !good {
                causes.push(Cause::invalid(
                    format!("{field}[{key}]"),
                    &format!("{key:?}"),
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                ));
            }
        }
    }
    if MOST_DATA < size {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MOST_DATA} bytes"),
            field: String::new(),
        });
    }
    let sealed = old.is_some_and(|old| old.get("immutable").and_then(Value::as_bool) == Some(true));
    if let Some(old) = old.filter(|_| sealed) {
        for field in fields.iter().chain(&["immutable"]) {
            if object.get(*field) != old.get(*field) {
                causes.push(Cause::forbidden(*field, "field is immutable when `immutable` is set"));
            }
        }
    }
    causes
}

pub(super) fn event(object: &Object, _old: Option<&Object>) -> Vec<Cause> {
    let namespace = meta_str(object, "namespace");
    let involved = object
        .get("involvedObject")
        .and_then(|involved| involved.get("namespace"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    // An Event about something that has no namespace stands in `default`.
    let fits = involved == namespace || involved.is_empty() && matches!(namespace, "default" | "kube-system");
    if fits {
        Vec::new()
    } else {
        let detail = "does not match event.namespace";
        vec![Cause::invalid(
            "involvedObject.namespace",
            &format!("{involved:?}"),
            detail,
        )]
    }
}

pub(super) fn lease(object: &Object, _old: Option<&Object>) -> Vec<Cause> {
    let spec = object.get("spec");
    let mut causes = Vec::new();
    let number = |field: &str| spec.and_then(|spec| spec.get(field)).and_then(Value::as_i64);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &seconds.to_string(),
            "must be greater than 0",
        ));
    }
    if let Some(count) = number("leaseTransitions").filter(|count| *count < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            &count.to_string(),
            "must be greater than or equal to 0",
        ));
    }
    causes
}
