//! What the cluster's API server fills in, as far as Larder reads it.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::object::{Object, meta_mut, meta_str};

pub(super) fn namespace(object: &mut Object) {
    let name = meta_str(object, "name").to_owned();
    if !name.is_empty() {
        let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
        if let Value::Object(labels) = labels {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    if spec.get("finalizers").is_none() && meta_str(object, "uid").is_empty() {
        object.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
    }
    set_missing(object, "status", json!({"phase": "Active"}));
}

pub(super) fn pod(object: &mut Object) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        for (field, default) in [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("schedulerName", json!("default-scheduler")),
            ("enableServiceLinks", json!(true)),
            ("securityContext", json!({})),
        ] {
            set_missing(spec, field, default);
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(container) = container {
                    let policy = pull_policy(container);
                    set_missing(container, "imagePullPolicy", policy.into());
                    set_missing(container, "terminationMessagePath", json!("/dev/termination-log"));
                    set_missing(container, "terminationMessagePolicy", json!("File"));
                    set_missing(container, "resources", json!({}));
                }
            }
        }
    }
    let status = object.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        set_missing(status, "phase", json!("Pending"));
    }
}

fn pull_policy(container: &Map<String, Value>) -> &'static str {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let newest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    if newest { "Always" } else { "IfNotPresent" }
}

/// `stringData` is for writing only: it ends up in `data`.
pub(super) fn secret(object: &mut Object) {
    if let Some(Value::Object(texts)) = object.remove("stringData") {
        let data = object.entry("data").or_insert_with(|| json!({}));
        if let Value::Object(data) = data {
            for (key, text) in texts {
                data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
            }
        }
    }
    set_missing(object, "type", json!("Opaque"));
}

pub(super) fn event(object: &mut Object) {
    set_missing(object, "source", json!({}));
    for (field, value) in [
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ] {
        set_missing(object, field, value);
    }
}

fn set_missing(object: &mut Object, field: &str, value: Value) {
    object.entry(field).or_insert(value);
}
