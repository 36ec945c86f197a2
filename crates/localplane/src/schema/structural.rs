//! The schema as a tree that is cheap to walk.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::SchemaError;

/// The type a schema asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Bounds of numbers, strings, lists and objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
}

/// One place of the schema.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a word of the schema language, independent of the others"
)]
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Option<Box<Node>>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) list: ListType,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    /// Whether a default stands here or below.
    pub(crate) has_defaults: bool,
    pub(crate) choices: Vec<Value>,
    pub(crate) bounds: Bounds,
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: Option<String>,
    pub(crate) unique: bool,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// Compiles the JSON form of a schema. `path` names the place in errors.
    pub(crate) fn compile(schema: &Value, path: &str) -> Result<Self, SchemaError> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
        let below = |key: &str| -> Result<Vec<Node>, SchemaError> {
            let branches = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            branches.map(|branch| Self::compile(branch, path)).collect()
        };
        let single = |value: Option<&Value>, step: &str| -> Result<Option<Box<Node>>, SchemaError> {
            value
                .filter(|value| value.is_object())
                .map(|value| Self::compile(value, &format!("{path}{step}")).map(Box::new))
                .transpose()
        };
        let mut node = Self {
            kind: kind(text("type")),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string") || text("format") == Some("int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            additional: match schema.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Box::new(Self::compile(
                    &serde_json::json!({"x-kubernetes-preserve-unknown-fields": true}),
                    path,
                )?)),
                other => single(other, ".*")?,
            },
            items: single(schema.get("items"), "[]")?,
            list: list_type(schema),
            required: strings(schema.get("required")),
            default: schema.get("default").cloned(),
            has_defaults: false,
            choices: schema
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            bounds: bounds(schema),
            pattern: text("pattern").map(|text| pattern(text, path)).transpose()?,
            format: text("format").map(str::to_owned),
            unique: flag("uniqueItems"),
            all_of: below("allOf")?,
            any_of: below("anyOf")?,
            one_of: below("oneOf")?,
            not: single(schema.get("not"), "")?,
            properties: properties(schema, path)?,
        };
        node.has_defaults = node.default.is_some()
            || node.properties.values().any(|child| child.has_defaults)
            || node.additional.as_ref().is_some_and(|child| child.has_defaults)
            || node.items.as_ref().is_some_and(|child| child.has_defaults);
        Ok(node)
    }
}

fn properties(schema: &Value, path: &str) -> Result<BTreeMap<String, Node>, SchemaError> {
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let compiled = properties.map(|(name, property)| {
        let place = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        Ok((name.clone(), Node::compile(property, &place)?))
    });
    compiled.collect()
}

fn pattern(text: &str, path: &str) -> Result<Regex, SchemaError> {
    Regex::new(text).map_err(|source| SchemaError::Pattern {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

fn kind(word: Option<&str>) -> Type {
    match word {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn bounds(schema: &Value) -> Bounds {
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
    Bounds {
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    }
}
