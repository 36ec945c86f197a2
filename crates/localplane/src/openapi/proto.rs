//! An OpenAPI version 2 document in the protobuf form that kubectl reads it in.
//!
//! Written field by field with the numbers of the published message definition; only what our own documents contain is
//! covered, and vendor extensions travel as text, as that definition has it.

use serde_json::{Map, Value};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let byte = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            if value == 0 {
                self.0.push(byte);
                return;
            }
            self.0.push(byte | 0x80);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn flag(&mut self, field: u64, flag: Option<bool>) {
        if flag == Some(true) {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, field: u64, number: Option<u64>) {
        if let Some(number) = number {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn double(&mut self, field: u64, number: Option<f64>) {
        if let Some(number) = number {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn str_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// `name` and `value`: how this format writes an entry of a map.
fn named(name: &str, value: &Message) -> Message {
    let mut entry = Message::default();
    entry.text(1, Some(name));
    entry.message(2, value);
    entry
}

/// Any value, as YAML text; JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, Some(&format!("{value}\n")));
    message
}

fn extensions(target: &mut Message, field: u64, value: &Value) {
    for (key, extension) in value.as_object().into_iter().flatten() {
        if key.starts_with("x-") {
            target.message(field, &named(key, &any(extension)));
        }
    }
}

/// The whole document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, str_of(document, "swagger"));
    let mut info = Message::default();
    info.text(1, document.get("info").and_then(|info| str_of(info, "title")));
    info.text(2, document.get("info").and_then(|info| str_of(info, "version")));
    message.message(2, &info);
    let mut paths = Message::default();
    for (path, item) in entries(document, "paths") {
        paths.message(2, &named(path, &path_item(item)));
    }
    message.message(8, &paths);
    message.message(9, &schemas(document.get("definitions")));
    message.0
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value
        .get(key)
        .and_then(Value::as_object)
        .map(Map::iter)
        .into_iter()
        .flatten()
}

fn schemas(map: Option<&Value>) -> Message {
    let mut message = Message::default();
    for (name, value) in map.and_then(Value::as_object).into_iter().flatten() {
        message.message(1, &named(name, &schema(value)));
    }
    message
}

fn schema(value: &Value) -> Message {
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    let count = |key: &str| value.get(key).and_then(Value::as_u64);
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let mut message = Message::default();
    message.text(1, str_of(value, "$ref"));
    message.text(2, str_of(value, "format"));
    message.text(3, str_of(value, "title"));
    message.text(4, str_of(value, "description"));
    if let Some(default) = value.get("default") {
        message.message(5, &any(default));
    }
    message.double(6, number("multipleOf"));
    message.double(7, number("maximum"));
    message.flag(8, flag("exclusiveMaximum"));
    message.double(9, number("minimum"));
    message.flag(10, flag("exclusiveMinimum"));
    message.integer(11, count("maxLength"));
    message.integer(12, count("minLength"));
    message.text(13, str_of(value, "pattern"));
    message.integer(14, count("maxItems"));
    message.integer(15, count("minItems"));
    message.flag(16, flag("uniqueItems"));
    message.integer(17, count("maxProperties"));
    message.integer(18, count("minProperties"));
    for required in value.get("required").and_then(Value::as_array).into_iter().flatten() {
        message.text(19, required.as_str());
    }
    for choice in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        message.message(20, &any(choice));
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.varint(2 << 3);
            item.varint(u64::from(*allowed));
            message.message(21, &item);
        }
        Some(below) => {
            let mut item = Message::default();
            item.message(1, &schema(below));
            message.message(21, &item);
        }
        None => {}
    }
    if let Some(kind) = str_of(value, "type") {
        let mut item = Message::default();
        item.text(1, Some(kind));
        message.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        message.message(23, &item);
    }
    for part in value.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        message.message(24, &schema(part));
    }
    if value.get("properties").is_some() {
        message.message(25, &schemas(value.get("properties")));
    }
    extensions(&mut message, 31, value);
    message
}

fn path_item(value: &Value) -> Message {
    let mut message = Message::default();
    for (field, verb) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(value) = value.get(verb) {
            message.message(field, &operation(value));
        }
    }
    parameters(&mut message, 9, value);
    message
}

fn operation(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(3, str_of(value, "description"));
    message.text(5, str_of(value, "operationId"));
    parameters(&mut message, 8, value);
    let mut responses = Message::default();
    for (code, value) in entries(value, "responses") {
        let mut response = Message::default();
        response.text(1, str_of(value, "description"));
        if let Some(value) = value.get("schema") {
            let mut item = Message::default();
            item.message(1, &schema(value));
            response.message(2, &item);
        }
        let mut choice = Message::default();
        choice.message(1, &response);
        responses.message(1, &named(code, &choice));
    }
    message.message(9, &responses);
    extensions(&mut message, 13, value);
    message
}

/// Parameters in the path and in the query; both kinds number the fields used here alike, but for one.
fn parameters(target: &mut Message, field: u64, value: &Value) {
    for parameter in value.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let in_path = str_of(parameter, "in") == Some("path");
        let mut detail = Message::default();
        detail.flag(1, parameter.get("required").and_then(Value::as_bool));
        detail.text(2, str_of(parameter, "in"));
        detail.text(4, str_of(parameter, "name"));
        detail.text(if in_path { 5 } else { 6 }, str_of(parameter, "type"));
        let mut plain = Message::default();
        plain.message(if in_path { 4 } else { 3 }, &detail);
        let mut either = Message::default();
        either.message(2, &plain);
        let mut item = Message::default();
        item.message(1, &either);
        target.message(field, &item);
    }
}
