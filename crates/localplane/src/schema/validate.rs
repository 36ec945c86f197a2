//! Types, required fields, bounds and duplicates, in the words of the cluster's API server.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    ListType, Node,
    structural::{Bounds, Type},
};
use crate::{
    error::{Cause, MAX_CAUSES},
    object::Object,
};

/// Judges a whole object. `apiVersion`, `kind` and `metadata` are judged elsewhere.
pub(super) fn object(schema: &Node, object: &Object, old: Option<&Object>) -> Vec<Cause> {
    let mut judge = Judge {
        causes: Vec::new(),
        ratchet: false,
    };
    judge.root(schema, object, None);
    if let (false, Some(old)) = (judge.causes.is_empty(), old) {
        // Only a refusal is worth the comparison with what was there before.
        judge = Judge {
            causes: Vec::new(),
            ratchet: true,
        };
        judge.root(schema, object, Some(old));
    }
    judge.causes
}

struct Judge {
    causes: Vec<Cause>,
    ratchet: bool,
}

impl Judge {
    fn root(&mut self, schema: &Node, object: &Object, old: Option<&Object>) {
        self.required(schema, object, "");
        for (key, value) in object {
            if let Some(child) = schema.properties.get(key).filter(|_| key != "metadata") {
                self.value(child, value, old.and_then(|old| old.get(key)), key);
            }
        }
    }

    fn value(&mut self, schema: &Node, value: &Value, old: Option<&Value>, path: &str) {
        if MAX_CAUSES <= self.causes.len() || self.ratchet && old == Some(value) {
            return;
        }
        if value.is_null() && schema.nullable {
            return;
        }
        if let Some(expected) = type_mismatch(schema, value) {
            let found = type_word(value);
            self.causes.push(Cause::wrong_type(
                path,
                &format!("{found:?}"),
                format!("{path} in body must be of type {expected}: {found:?}"),
            ));
            return;
        }
        self.choices(schema, value, path);
        match value {
            Value::String(text) => self.string(schema, text, path),
            Value::Number(number) => {
                self.range(schema, value, path);
                self.number(&schema.bounds, number.as_f64().unwrap_or_default(), value, path);
            }
            Value::Array(items) => self.array(schema, items, old, path),
            Value::Object(map) => self.map(schema, map, old, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.combined(schema, value, path);
    }

    fn choices(&mut self, schema: &Node, value: &Value, path: &str) {
        if !schema.choices.is_empty() && !schema.choices.contains(value) {
            let allowed: Vec<String> = schema.choices.iter().map(Value::to_string).collect();
            self.causes.push(Cause::unsupported(path, &value.to_string(), &allowed));
        }
    }

    fn string(&mut self, schema: &Node, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        let bounds = &schema.bounds;
        if bounds.max_length.is_some_and(|max| max < length) {
            self.causes.push(Cause {
                reason: "FieldValueTooLong",
                message: format!(
                    "Too long: may not be more than {} bytes",
                    bounds.max_length.unwrap_or_default()
                ),
                field: path.to_owned(),
            });
        }
        if let Some(min) = bounds.min_length.filter(|min| length < *min) {
            self.invalid(
                path,
                &format!("{text:?}"),
                &format!("should be at least {min} chars long"),
            );
        }
        if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.invalid(path, &format!("{text:?}"), &format!("should match '{pattern}'"));
        }
        if let Some(format) = schema.format.as_deref().filter(|_| !schema.int_or_string)
            && !fits_format(format, text)
        {
            self.invalid(
                path,
                &format!("{text:?}"),
                &format!("must be of type {format}: {text:?}"),
            );
        }
    }

    /// Whether the number fits into what its format names.
    fn range(&mut self, schema: &Node, value: &Value, path: &str) {
        let small = schema.kind == Type::Integer && schema.format.as_deref() == Some("int32");
        let fits = value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
        if small && !fits {
            let detail = format!("Checked value must be of type integer with format int32 in {path}");
            self.causes.push(Cause::invalid(path, &value.to_string(), detail));
        }
    }

    fn number(&mut self, bounds: &Bounds, number: f64, value: &Value, path: &str) {
        let shown = value.to_string();
        if let Some(max) = bounds.maximum {
            if bounds.exclusive_maximum && max <= number {
                self.invalid(path, &shown, &format!("should be less than {max}"));
            } else if max < number {
                self.invalid(path, &shown, &format!("should be less than or equal to {max}"));
            }
        }
        if let Some(min) = bounds.minimum {
            if bounds.exclusive_minimum && number <= min {
                self.invalid(path, &shown, &format!("should be greater than {min}"));
            } else if number < min {
                self.invalid(path, &shown, &format!("should be greater than or equal to {min}"));
            }
        }
        if let Some(factor) = bounds
            .multiple_of
            .filter(|factor| 1e-9 < (number / factor - (number / factor).round()).abs())
        {
            self.invalid(path, &shown, &format!("should be a multiple of {factor}"));
        }
    }

    fn array(&mut self, schema: &Node, items: &[Value], old: Option<&Value>, path: &str) {
        let count = items.len() as u64;
        self.too_many(path, count, schema.bounds.max_items);
        if let Some(min) = schema.bounds.min_items.filter(|min| count < *min) {
            self.invalid(path, &count.to_string(), &format!("should have at least {min} items"));
        }
        if schema.unique && repeated(items.iter().map(Value::to_string)).next().is_some() {
            let shown = Value::Array(items.to_vec()).to_string();
            self.invalid(path, &shown, "shouldn't contain duplicates");
        }
        self.duplicates(schema, items, path);
        let Some(child) = &schema.items else { return };
        for (index, item) in items.iter().enumerate() {
            let old = old.and_then(|old| correlated(&schema.list, old, item));
            self.value(child, item, old, &format!("{path}[{index}]"));
        }
    }

    fn duplicates(&mut self, schema: &Node, items: &[Value], path: &str) {
        match &schema.list {
            ListType::Atomic => {}
            ListType::Set => {
                for index in repeated(items.iter().map(Value::to_string)) {
                    self.causes
                        .push(Cause::duplicate(format!("{path}[{index}]"), &items[index].to_string()));
                }
            }
            ListType::Map(keys) => {
                for index in repeated(items.iter().map(|item| map_key(keys, item).to_string())) {
                    self.causes.push(Cause::duplicate(
                        format!("{path}[{index}]"),
                        &map_key(keys, &items[index]).to_string(),
                    ));
                }
            }
        }
    }

    fn map(&mut self, schema: &Node, map: &Object, old: Option<&Value>, path: &str) {
        self.required(schema, map, path);
        let count = map.len() as u64;
        self.too_many(path, count, schema.bounds.max_properties);
        if let Some(min) = schema.bounds.min_properties.filter(|min| count < *min) {
            self.invalid(
                path,
                &count.to_string(),
                &format!("should have at least {min} properties"),
            );
        }
        for (key, value) in map {
            let child = schema.properties.get(key).or(schema.additional.as_deref());
            if let Some(child) = child {
                let old = old.and_then(|old| old.get(key));
                self.value(child, value, old, &format!("{path}.{key}"));
            }
        }
    }

    fn required(&mut self, schema: &Node, map: &Object, path: &str) {
        for name in &schema.required {
            if !map.contains_key(name) {
                let field = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                self.causes.push(Cause::required(field, ""));
            }
        }
    }

    fn too_many(&mut self, path: &str, count: u64, max: Option<u64>) {
        if let Some(max) = max.filter(|max| *max < count) {
            let noun = if max == 1 { "item" } else { "items" };
            self.causes.push(Cause {
                reason: "FieldValueTooMany",
                message: format!("Too many: {count}: must have at most {max} {noun}"),
                field: path.to_owned(),
            });
        }
    }

    fn combined(&mut self, schema: &Node, value: &Value, path: &str) {
        for branch in &schema.all_of {
            self.value(branch, value, None, path);
        }
        let fits = |branch: &Node| {
            let mut judge = Judge {
                causes: Vec::new(),
                ratchet: false,
            };
            judge.value(branch, value, None, path);
            judge.causes.is_empty()
        };
        if !schema.any_of.is_empty() && !schema.any_of.iter().any(fits) {
            self.invalid(path, &value.to_string(), "must validate at least one schema (anyOf)");
        }
        if !schema.one_of.is_empty() && schema.one_of.iter().filter(|branch| fits(branch)).count() != 1 {
            self.invalid(
                path,
                &value.to_string(),
                "must validate one and only one schema (oneOf)",
            );
        }
        if schema.not.as_deref().is_some_and(fits) {
            self.invalid(path, &value.to_string(), "must not validate the schema (not)");
        }
    }

    fn invalid(&mut self, path: &str, value: &str, detail: &str) {
        self.causes
            .push(Cause::invalid(path, value, format!("{path} in body {detail}")));
    }
}

fn type_mismatch(schema: &Node, value: &Value) -> Option<String> {
    if schema.int_or_string {
        let fits = value.is_string() || is_integer(value);
        return (!fits).then(|| "[integer string]".to_owned());
    }
    let fits = match schema.kind {
        Type::Any => !value.is_null() || schema.preserve_unknown,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => is_integer(value),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
    };
    (!fits).then(|| schema.kind.word().to_owned())
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The places at which something stands for the second time.
fn repeated(items: impl Iterator<Item = String>) -> impl Iterator<Item = usize> {
    let mut seen = HashSet::new();
    let mut told = HashSet::new();
    items
        .enumerate()
        .filter_map(move |(index, item)| (!seen.insert(item.clone()) && told.insert(item)).then_some(index))
}

/// The part of an item of a map list that tells it from the others.
pub(super) fn map_key(keys: &[String], item: &Value) -> Value {
    keys.iter()
        .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())))
        .collect::<Object>()
        .into()
}

/// The item of the old list that `item` continues; only map lists have one.
pub(super) fn correlated<'a>(list: &ListType, old: &'a Value, item: &Value) -> Option<&'a Value> {
    match list {
        ListType::Map(keys) => {
            let wanted = map_key(keys, item);
            old.as_array()?.iter().find(|old| map_key(keys, old) == wanted)
        }
        ListType::Atomic | ListType::Set => None,
    }
}

/// What the cluster's API server takes for a time. That is more than fits into a timestamp: the end of the year 9999, any
/// number of digits after the second, any offset.
fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let two_digits = |from: usize, most: u8| {
        let number = time
            .get(from..from + 2)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        number
            .and_then(|text| text.parse::<u8>().ok())
            .is_some_and(|number| number <= most)
    };
    let is_at = |place: usize, mark: &str| time.get(place..=place) == Some(mark);
    let clock = two_digits(0, 23) && is_at(2, ":") && two_digits(3, 59) && is_at(5, ":") && two_digits(6, 59);
    clock && date.len() == 10 && date.parse::<jiff::civil::Date>().is_ok() && time.get(8..).is_some_and(ends_time)
}

/// Whether a text is a fraction of a second, or nothing, and then an offset.
fn ends_time(text: &str) -> bool {
    let zone = match text.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => text,
    };
    let mut signs = zone.bytes();
    let offset = matches!(signs.next(), Some(b'+' | b'-'))
        && zone.len() == 6
        && signs.enumerate().all(|(place, sign)| {
            if place == 2 {
                sign == b':'
            } else {
                sign.is_ascii_digit()
            }
        });
    zone == "z" || offset
}

fn fits_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => is_date_time(text),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_ok(),
        "uuid" => text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-'),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        // Formats the cluster's API server does not check either.
        _ => true,
    }
}
