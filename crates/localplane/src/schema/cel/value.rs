//! JSON as CEL sees it: numbers and strings by the schema's word, field names escaped where CEL could not write them.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube_cel::cel::{
    Context, Program, Value as Cel,
    objects::{Key, Map},
};
use serde_json::Value;

use crate::schema::{Node, structural::Type};

/// Words a field name cannot be in an expression.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Converts values; knows how to read times.
pub(super) struct Converter {
    time: Option<Program>,
    duration: Option<Program>,
}

impl Converter {
    pub(super) fn new() -> Self {
        Self {
            time: Program::compile("timestamp(text)").ok(),
            duration: Program::compile("duration(text)").ok(),
        }
    }

    pub(super) fn convert(&self, schema: Option<&Node>, value: &Value, functions: &Context<'_>) -> Cel {
        let plain = schema.filter(|schema| !schema.int_or_string);
        match value {
            Value::Null => Cel::Null,
            Value::Bool(flag) => Cel::Bool(*flag),
            Value::Number(number) => match (plain.map(|schema| schema.kind), number.as_i64(), number.as_u64()) {
                (Some(Type::Number), ..) => Cel::Float(number.as_f64().unwrap_or_default()),
                (_, Some(signed), _) => Cel::Int(signed),
                (_, None, Some(unsigned)) => Cel::UInt(unsigned),
                _ => Cel::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => {
                let format = plain.and_then(|schema| schema.format.as_deref());
                self.text(format, text, functions)
            }
            Value::Array(items) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                let items = items.iter().map(|item| self.convert(schema, item, functions));
                Cel::List(Arc::new(items.collect()))
            }
            Value::Object(map) => {
                let is_map = schema.is_some_and(|schema| schema.additional.is_some());
                let entries: HashMap<Key, Cel> = map
                    .iter()
                    .map(|(key, value)| {
                        let child =
                            schema.and_then(|schema| schema.properties.get(key).or(schema.additional.as_deref()));
                        // The keys of a map are data; only the names of fields are escaped.
                        let key = if is_map { key.clone() } else { escape(key) };
                        (Key::String(Arc::new(key)), self.convert(child, value, functions))
                    })
                    .collect();
                Cel::Map(Map { map: Arc::new(entries) })
            }
        }
    }

    fn text(&self, format: Option<&str>, text: &str, functions: &Context<'_>) -> Cel {
        let plain = || Cel::String(Arc::new(text.to_owned()));
        let parsed = |program: &Option<Program>| {
            let mut scope = functions.new_inner_scope();
            scope.add_variable_from_value("text", plain());
            program.as_ref().and_then(|program| program.execute(&scope).ok())
        };
        match format {
            Some("date-time") => parsed(&self.time).unwrap_or_else(plain),
            Some("duration") => parsed(&self.duration).unwrap_or_else(plain),
            Some("byte") => STANDARD
                .decode(text)
                .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
            _ => plain(),
        }
    }
}

fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['_', '.', '-', '/']) {
        return name.to_owned();
    }
    // A single underscore may stand; only the doubled one is taken by the escapes themselves.
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// What `type(value)` gives, and what the names of types stand for.
pub(super) fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        _ => "dyn",
    }
}

/// The names of types, usable in rules.
pub(super) const TYPES: [&str; 9] = [
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "list",
    "map",
    "null_type",
];
