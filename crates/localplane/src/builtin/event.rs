//! `events.k8s.io/v1` calls the fields of a core Event by other names; nothing else differs.

use serde_json::Value;

use crate::object::Object;

/// Name in core, name in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// From the stored form to `events.k8s.io/v1`.
pub(crate) fn to_events_v1(object: &mut Object) {
    rename(object, RENAMED.iter().map(|(core, events)| (*core, *events)));
    object.insert("apiVersion".into(), Value::from("events.k8s.io/v1"));
}

/// From `events.k8s.io/v1` to the stored form.
pub(crate) fn from_events_v1(object: &mut Object) {
    rename(object, RENAMED.iter().map(|(core, events)| (*events, *core)));
    object.insert("apiVersion".into(), Value::from("v1"));
}

fn rename<'a>(object: &mut Object, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}
