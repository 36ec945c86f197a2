//! Schema fragments that schemars cannot derive: bounds, list and map types, unions, and the rules of [`crate::rules`].
//!
//! Every string and list under a CEL rule is bounded, because the API server refuses a CRD whose rules could cost too
//! much at the largest size that its schema allows.

use k8s_openapi::api::core::v1::ObjectReference;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::rules;

/// Longest image reference: a name of 255, a tag of 128 and a sha512 digest of 135 characters with their separators.
pub(crate) const IMAGE_MAX: u32 = 520;

/// Most images in a list, as upstream.
pub(crate) const IMAGES_MAX: u32 = 255;

/// Longest name of a Kubernetes object.
pub(crate) const NAME_MAX: u32 = 253;

/// Most node names in one selector. With more, a label selector is the right tool; the bound keeps rules affordable and
/// is twice the largest fleet that Larder is made for.
pub(crate) const NODE_NAMES_MAX: u32 = 20_000;

/// Longest text of a node's agent that is no message.
pub(crate) const TEXT_MAX: u32 = 1024;

/// Longest message, as in the conditions of Kubernetes. Larder cuts its own to [`crate::contract::MESSAGE_BYTES_MAX`];
/// OpenKruise's agents pass on whatever the runtime says, and an API server that holds unchanged fields against the schema
/// (before Kubernetes 1.30) refuses every later write of an object with a longer one, so the bound is far beyond that.
pub(crate) const MESSAGE_MAX: u32 = 32 * 1024;

/// Most tags of one image name in a NodeImage. Larder stops long before, at the size of the whole object.
pub(crate) const TAGS_MAX: u32 = 1024;

/// Most results of one image name: those of tags that are gone stay until the agent's next write.
pub(crate) const TAG_RESULTS_MAX: u32 = 2 * TAGS_MAX;

/// Longest label key: a DNS name of 253, a slash and 63 characters.
const LABEL_KEY_MAX: u32 = 317;

/// Most requirements in one label selector.
const REQUIREMENTS_MAX: u32 = 64;

/// A label's value: empty, or up to 63 characters that begin and end with a letter or digit.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Name of an object, a Secret for one: what the API server takes as such, and what can stand in an address.
const OBJECT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// `conditions`: a list keyed by `type`, the only field in any status that must be there (a list key has to be).
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": { "type": "string" },
                "status": { "type": "string" },
                "reason": { "type": "string" },
                "message": { "type": "string", "maxLength": MESSAGE_MAX },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        },
    })
}

/// `matchLabels`: a bounded map of label values.
pub(crate) fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": REQUIREMENTS_MAX,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "x-kubernetes-validations": rules::match_labels(),
    })
}

/// `matchExpressions`: bounded requirements with the four operators that Kubernetes knows.
pub(crate) fn match_expressions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": REQUIREMENTS_MAX,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "maxLength": LABEL_KEY_MAX, "pattern": rules::LABEL_KEY },
                "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                "values": {
                    "type": "array",
                    "maxItems": 256,
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
                },
            },
            "x-kubernetes-validations": rules::requirement(),
        },
    })
}

/// A label selector as Kubernetes has it, bounded, and without fields that nobody knows.
pub(crate) fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": match_labels(generator),
            "matchExpressions": match_expressions(generator),
        },
    })
}

/// `parallelism`: an integer, or a string that holds one. Bounded, so that its rules cost little.
pub(crate) fn parallelism(_: &mut SchemaGenerator) -> Schema {
    int_or_string(&rules::parallelism())
}

/// `maxFailures`: a count, or a percentage of the selected nodes.
pub(crate) fn max_failures(_: &mut SchemaGenerator) -> Schema {
    int_or_string(&rules::max_failures())
}

fn int_or_string(rules: &Value) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 16,
        "x-kubernetes-validations": rules,
    })
}

/// One image reference of a Kruise kind.
pub(crate) fn image(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": IMAGE_MAX,
        "x-kubernetes-validations": rules::image(),
    })
}

/// The images of an ImageListPullJob: raw duplicates are refused, images equal after normalisation count once.
pub(crate) fn image_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": IMAGES_MAX,
        "x-kubernetes-list-type": "set",
        "items": image(generator),
    })
}

/// `selector.names`: node names, each once.
pub(crate) fn node_names_set(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": NODE_NAMES_MAX,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": NAME_MAX },
    })
}

/// Names of Secrets in the job's namespace.
pub(crate) fn pull_secrets(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": object_name(generator),
    })
}

/// The name of an object.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": OBJECT_NAME })
}

/// Tolerations as in a Pod.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "properties": {
                "key": { "type": "string", "maxLength": LABEL_KEY_MAX },
                "operator": { "type": "string", "enum": ["", "Exists", "Equal"] },
                "value": { "type": "string", "maxLength": 63 },
                "effect": { "type": "string", "enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"] },
                "tolerationSeconds": { "type": "integer", "format": "int64" },
            },
        },
    })
}

/// Labels or annotations for the runtime. They stand in every selected node's NodeImage, whose size is bounded.
pub(crate) fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 64, "additionalProperties": { "type": "string", "maxLength": 4096 } })
}

/// Owners of an entry, each kept as a whole.
pub(crate) fn owner_references(generator: &mut SchemaGenerator) -> Schema {
    let mut owners = generator.subschema_for::<Vec<ObjectReference>>();
    if let Some(items) = owners.pointer_mut("/items").and_then(Value::as_object_mut) {
        items.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    owners
}

/// Takes `nullable` out of a schema, everywhere. schemars writes it for every `Option`; with it an explicit `null` would be
/// stored, without it the API server drops the null as if the field were not given, as it does for the originals.
pub(crate) fn without_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            fields.values_mut().for_each(without_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nullable),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Bounds every integer of format `int32` to what fits, everywhere. kube-apiserver 1.27 does not look at the format, and
/// nobody could read the object that it stores.
pub(crate) fn bound_int32(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(|format| format == "int32") {
                fields.entry("minimum").or_insert_with(|| json!(f64::from(i32::MIN)));
                fields.entry("maximum").or_insert_with(|| json!(f64::from(i32::MAX)));
            }
            fields.values_mut().for_each(bound_int32);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_int32),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names of checks that a node can make.
pub(crate) fn checks(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": { "type": "string", "enum": ["disk", "cpu", "mem"] },
    })
}

/// A counter: zero if not given, so that a status without it is accepted and read back with it.
pub(crate) fn counter(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "default": json!(0) })
}
