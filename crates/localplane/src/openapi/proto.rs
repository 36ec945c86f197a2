//! An OpenAPI version 2 document in the protobuf form that kubectl reads it in.
//!
//! The messages have the field numbers of the published definition and only the fields that our own documents contain;
//! vendor extensions are text, as in that definition.

use prost::{Message, Oneof};
use serde_json::Value;

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<Schemas>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Paths {
    #[prost(message, repeated, tag = "2")]
    path: Vec<NamedPathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedPathItem {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<PathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct PathItem {
    #[prost(message, optional, tag = "2")]
    get: Option<Operation>,
    #[prost(message, optional, tag = "3")]
    put: Option<Operation>,
    #[prost(message, optional, tag = "4")]
    post: Option<Operation>,
    #[prost(message, optional, tag = "5")]
    delete: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    patch: Option<Operation>,
    #[prost(message, repeated, tag = "9")]
    parameters: Vec<ParametersItem>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(string, tag = "3")]
    description: String,
    #[prost(string, tag = "5")]
    id: String,
    #[prost(message, repeated, tag = "8")]
    parameters: Vec<ParametersItem>,
    #[prost(message, optional, tag = "9")]
    responses: Option<Responses>,
    #[prost(message, repeated, tag = "13")]
    extensions: Vec<NamedAny>,
}

/// A parameter: which of two kinds, which of several places, and then itself.
#[derive(Clone, PartialEq, Message)]
struct ParametersItem {
    #[prost(message, optional, tag = "1")]
    parameter: Option<Parameter>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(message, optional, tag = "2")]
    non_body: Option<NonBodyParameter>,
}

#[derive(Clone, PartialEq, Message)]
struct NonBodyParameter {
    #[prost(oneof = "Place", tags = "3, 4")]
    place: Option<Place>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Place {
    #[prost(message, tag = "3")]
    Query(QueryParameter),
    #[prost(message, tag = "4")]
    Path(PathParameter),
}

#[derive(Clone, PartialEq, Message)]
struct QueryParameter {
    #[prost(bool, tag = "1")]
    required: bool,
    #[prost(string, tag = "2")]
    place: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(string, tag = "6")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct PathParameter {
    #[prost(bool, tag = "1")]
    required: bool,
    #[prost(string, tag = "2")]
    place: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(string, tag = "5")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct Responses {
    #[prost(message, repeated, tag = "1")]
    code: Vec<NamedResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedResponse {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<ResponseValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseValue {
    #[prost(message, optional, tag = "1")]
    response: Option<Response>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    description: String,
    #[prost(message, optional, tag = "2")]
    schema: Option<SchemaItem>,
}

#[derive(Clone, PartialEq, Message)]
struct SchemaItem {
    #[prost(message, optional, tag = "1")]
    schema: Option<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Schemas {
    #[prost(message, repeated, tag = "1")]
    schemas: Vec<NamedSchema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedSchema {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Schema {
    #[prost(string, tag = "1")]
    reference: String,
    #[prost(string, tag = "2")]
    format: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(message, optional, tag = "5")]
    default: Option<Any>,
    #[prost(double, tag = "7")]
    maximum: f64,
    #[prost(double, tag = "9")]
    minimum: f64,
    #[prost(uint64, tag = "11")]
    max_length: u64,
    #[prost(uint64, tag = "12")]
    min_length: u64,
    #[prost(string, tag = "13")]
    pattern: String,
    #[prost(uint64, tag = "14")]
    max_items: u64,
    #[prost(uint64, tag = "15")]
    min_items: u64,
    #[prost(uint64, tag = "17")]
    max_properties: u64,
    #[prost(string, repeated, tag = "19")]
    required: Vec<String>,
    #[prost(message, repeated, tag = "20")]
    choices: Vec<Any>,
    #[prost(message, optional, tag = "21")]
    additional_properties: Option<AdditionalProperties>,
    #[prost(message, optional, tag = "22")]
    kind: Option<TypeItem>,
    #[prost(message, optional, boxed, tag = "23")]
    items: Option<Box<ItemsItem>>,
    #[prost(message, repeated, tag = "24")]
    all_of: Vec<Schema>,
    #[prost(message, optional, tag = "25")]
    properties: Option<Schemas>,
    #[prost(message, repeated, tag = "31")]
    extensions: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct AdditionalProperties {
    #[prost(oneof = "Additional", tags = "1, 2")]
    value: Option<Additional>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Additional {
    #[prost(message, tag = "1")]
    Schema(Box<Schema>),
    #[prost(bool, tag = "2")]
    Allowed(bool),
}

#[derive(Clone, PartialEq, Message)]
struct TypeItem {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ItemsItem {
    #[prost(message, repeated, tag = "1")]
    schema: Vec<Schema>,
}

/// Any value, as YAML text; JSON is YAML.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

#[derive(Clone, PartialEq, Message)]
struct NamedAny {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

/// The whole document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let info = &document["info"];
    let paths = entries(document, "paths").map(|(name, item)| NamedPathItem {
        name: name.clone(),
        value: Some(path_item(item)),
    });
    Document {
        swagger: text(document, "swagger"),
        info: Some(Info {
            title: text(info, "title"),
            version: text(info, "version"),
        }),
        paths: Some(Paths { path: paths.collect() }),
        definitions: Some(schemas(document, "definitions")),
    }
    .encode_to_vec()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn any(value: &Value) -> Any {
    Any {
        yaml: format!("{value}\n"),
    }
}

fn extensions(value: &Value) -> Vec<NamedAny> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| key.starts_with("x-"))
        .map(|(key, extension)| NamedAny {
            name: key.clone(),
            value: Some(any(extension)),
        })
        .collect()
}

fn schemas(value: &Value, key: &str) -> Schemas {
    let named = entries(value, key).map(|(name, value)| NamedSchema {
        name: name.clone(),
        value: Some(schema(value)),
    });
    Schemas {
        schemas: named.collect(),
    }
}

fn schema(value: &Value) -> Schema {
    let number = |key: &str| value.get(key).and_then(Value::as_f64).unwrap_or_default();
    let count = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or_default();
    let kind = value.get("type").and_then(Value::as_str);
    Schema {
        reference: text(value, "$ref"),
        format: text(value, "format"),
        description: text(value, "description"),
        default: value.get("default").map(any),
        maximum: number("maximum"),
        minimum: number("minimum"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: text(value, "pattern"),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        max_properties: count("maxProperties"),
        required: list(value, "required")
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        choices: list(value, "enum").map(any).collect(),
        additional_properties: value.get("additionalProperties").map(|below| AdditionalProperties {
            value: Some(match below {
                Value::Bool(allowed) => Additional::Allowed(*allowed),
                below => Additional::Schema(Box::new(schema(below))),
            }),
        }),
        kind: kind.map(|kind| TypeItem {
            value: vec![kind.to_owned()],
        }),
        items: value.get("items").map(|items| {
            Box::new(ItemsItem {
                schema: vec![schema(items)],
            })
        }),
        all_of: list(value, "allOf").map(schema).collect(),
        properties: value.get("properties").is_some().then(|| schemas(value, "properties")),
        extensions: extensions(value),
    }
}

fn path_item(value: &Value) -> PathItem {
    let verb = |verb: &str| value.get(verb).map(operation);
    PathItem {
        get: verb("get"),
        put: verb("put"),
        post: verb("post"),
        delete: verb("delete"),
        patch: verb("patch"),
        parameters: parameters(value),
    }
}

fn operation(value: &Value) -> Operation {
    let code = entries(value, "responses").map(|(code, value)| NamedResponse {
        name: code.clone(),
        value: Some(ResponseValue {
            response: Some(Response {
                description: text(value, "description"),
                schema: value.get("schema").map(|value| SchemaItem {
                    schema: Some(schema(value)),
                }),
            }),
        }),
    });
    Operation {
        description: text(value, "description"),
        id: text(value, "operationId"),
        parameters: parameters(value),
        responses: Some(Responses { code: code.collect() }),
        extensions: extensions(value),
    }
}

fn parameters(value: &Value) -> Vec<ParametersItem> {
    list(value, "parameters")
        .map(|parameter| ParametersItem {
            parameter: Some(Parameter {
                non_body: Some(NonBodyParameter {
                    place: Some(place(parameter)),
                }),
            }),
        })
        .collect()
}

fn place(parameter: &Value) -> Place {
    let required = parameter.get("required").and_then(Value::as_bool).unwrap_or_default();
    let (place, name, kind) = (text(parameter, "in"), text(parameter, "name"), text(parameter, "type"));
    if place == "path" {
        Place::Path(PathParameter {
            required,
            place,
            name,
            kind,
        })
    } else {
        Place::Query(QueryParameter {
            required,
            place,
            name,
            kind,
        })
    }
}
