//! The schema of every kind under the name that references use.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::registry::{Registry, Resource, Shape, Version};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Which OpenAPI a document is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }

    /// A reference to a definition.
    pub(super) fn reference(self, name: &str) -> Value {
        json!({"$ref": format!("{}{name}", self.prefix())})
    }
}

/// The definitions of the chosen versions and of everything they refer to.
pub(super) fn all(registry: &Registry, wanted: impl Fn(&Version) -> bool, dialect: Dialect) -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.definitions_path = dialect
        .prefix()
        .trim_start_matches('#')
        .trim_end_matches('/')
        .to_owned()
        .into();
    settings.inline_subschemas = false;
    let mut generator = settings.into_generator();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
    let mut kinds: Vec<(String, Value)> = Vec::new();
    let mut custom = Map::new();
    for resource in registry.resources() {
        for version in resource.versions.iter().filter(|version| wanted(version)) {
            let kind = json!({"group": version.group, "version": version.name, "kind": resource.kind});
            match resource.builtin {
                Some(_) if version.shape == Shape::EventsV1 => {
                    generator.subschema_for::<k8s_openapi::api::events::v1::Event>();
                    kinds.push(("io.k8s.api.events.v1.Event".into(), kind));
                }
                Some(builtin) => kinds.push(((builtin.schema)(&mut generator).into_owned(), kind)),
                None => {
                    let name = definition_name(resource, version);
                    custom.insert(name.clone(), custom_schema(version, dialect));
                    kinds.push((name, kind));
                }
            }
        }
    }
    let mut definitions = generator.take_definitions(true);
    definitions.extend(custom);
    for definition in definitions.values_mut() {
        adapt(definition, dialect);
    }
    for (name, kind) in kinds {
        if let Some(definition) = definitions.get_mut(&name) {
            definition[KINDS] = json!([kind]);
        }
    }
    Value::Object(definitions)
}

/// The name of a custom kind's definition: its group backwards, its version, its kind.
pub(super) fn definition_name(resource: &Resource, version: &Version) -> String {
    if let Some(builtin) = resource.builtin {
        if version.shape == Shape::EventsV1 {
            return "io.k8s.api.events.v1.Event".into();
        }
        return (builtin.schema)(&mut SchemaSettings::openapi3().into_generator()).into_owned();
    }
    let mut parts: Vec<&str> = version.group.split('.').rev().collect();
    parts.push(&version.name);
    parts.push(&resource.kind);
    parts.join(".")
}

fn custom_schema(version: &Version, dialect: Dialect) -> Value {
    let mut schema = version
        .schema
        .as_ref()
        .map_or_else(|| json!({"type": "object"}), |schema| schema.json().clone());
    let text = |description: &str| json!({"type": "string", "description": description});
    schema["properties"]["apiVersion"] = text("The version of the schema of this representation of an object.");
    schema["properties"]["kind"] = text("The kind of object this is.");
    schema["properties"]["metadata"] = dialect.reference(META);
    schema["properties"]["metadata"]["description"] = "Standard object's metadata.".into();
    schema
}

/// Version 2 lets a reference have a description beside it, and clients follow references only there.
fn unwrap_reference(map: &mut Map<String, Value>) {
    let reference = match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref").cloned(),
        _ => None,
    };
    if let Some(reference) = reference {
        map.remove("allOf");
        map.insert("$ref".into(), reference);
    }
}

/// Brings a schema into what the dialect can say.
fn adapt(schema: &mut Value, dialect: Dialect) {
    let Value::Object(map) = schema else { return };
    if let Some(Value::Array(required)) = map.get_mut("required") {
        // The typed API marks metadata as required; the API does not.
        required.retain(|field| field != "metadata");
    }
    if map.get("required").is_some_and(|required| *required == json!([])) {
        map.remove("required");
    }
    match dialect {
        Dialect::V2 => {
            unwrap_reference(map);
            // Version 2 has no words for these; the server checks them anyway.
            for word in ["oneOf", "anyOf", "not", "nullable", "x-kubernetes-validations"] {
                map.remove(word);
            }
            if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                map.remove("type");
            }
            if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
                // Clients would refuse the unknown fields that are allowed here.
                for word in ["type", "properties", "items", "required"] {
                    map.remove(word);
                }
            }
        }
        Dialect::V3 => {
            if map.len() > 1
                && let Some(reference) = map.remove("$ref")
            {
                map.insert("allOf".into(), json!([{"$ref": reference}]));
            }
        }
    }
    for word in ["properties", "patternProperties"] {
        if let Some(Value::Object(below)) = map.get_mut(word) {
            for schema in below.values_mut() {
                adapt(schema, dialect);
            }
        }
    }
    for word in ["items", "additionalProperties", "not"] {
        if let Some(below) = map.get_mut(word) {
            adapt(below, dialect);
        }
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(below)) = map.get_mut(word) {
            for schema in below {
                adapt(schema, dialect);
            }
        }
    }
}
