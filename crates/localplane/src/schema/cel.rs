//! CEL rules of a schema, compiled once, each evaluated only where it stands.
//!
//! A rule that speaks of `oldSelf` runs only where the old value is known: items of map lists are found by their keys,
//! items of other lists have no past. A rule that does not is skipped where nothing changed.

use std::{collections::BTreeMap, fmt};

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator, compile_schema};
use serde_json::{Value, json};

use super::{ListType, Node, SchemaError, structural::Type, validate::correlated};
use crate::{error::Cause, object::Object};

/// All rules of one schema.
pub(super) struct Rules {
    root: Option<Site>,
    validator: Validator,
}

/// A place that has rules, or has such places below it.
struct Site {
    kind: Type,
    list: ListType,
    now: Option<CompiledSchema>,
    transition: Option<CompiledSchema>,
    properties: BTreeMap<String, Site>,
    additional: Option<Box<Site>>,
    items: Option<Box<Site>>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    pub(super) fn compile(schema: &Value, node: &Node) -> Result<Self, SchemaError> {
        Ok(Self {
            root: Site::compile(schema, node, "")?,
            validator: Validator::new(),
        })
    }

    /// What the rules say about `object`.
    pub(super) fn check(&self, object: &Object, old: Option<&Object>) -> Vec<Cause> {
        let Some(site) = &self.root else {
            return Vec::new();
        };
        let mut causes = Vec::new();
        if site.now.is_some() || site.transition.is_some() {
            let whole = Value::Object(object.clone());
            let old = old.map(|old| Value::Object(old.clone()));
            self.here(site, &whole, old.as_ref(), "", &mut causes);
        }
        for (key, site) in &site.properties {
            if let Some(value) = object.get(key) {
                self.at(site, value, old.and_then(|old| old.get(key)), key, &mut causes);
            }
        }
        causes
    }

    fn at(&self, site: &Site, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
        if value.is_null() {
            return;
        }
        self.here(site, value, old, path, causes);
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(site) = site.properties.get(key).or(site.additional.as_deref()) {
                        let old = old.and_then(|old| old.get(key));
                        self.at(site, value, old, &format!("{path}.{key}"), causes);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(below) = &site.items {
                    for (index, item) in items.iter().enumerate() {
                        let old = old.and_then(|old| correlated(&site.list, old, item));
                        self.at(below, item, old, &format!("{path}[{index}]"), causes);
                    }
                }
            }
            _ => {}
        }
    }

    fn here(&self, site: &Site, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
        let old = old.filter(|old| !old.is_null());
        if let Some(rules) = site.now.as_ref().filter(|_| old != Some(value)) {
            self.evaluate(site, rules, value, None, path, causes);
        }
        if let Some(rules) = &site.transition {
            self.evaluate(site, rules, value, old, path, causes);
        }
    }

    fn evaluate(
        &self,
        site: &Site,
        rules: &CompiledSchema,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        if let Err(errors) = self.validator.validate_compiled(rules, value, old) {
            causes.extend(errors.iter().map(|error| cause(error, site.kind, value, path)));
        }
    }
}

fn cause(error: &ValidationError, kind: Type, value: &Value, path: &str) -> Cause {
    let below = error.field_path.trim_start_matches('.');
    let field = match (path.is_empty(), below.is_empty()) {
        (_, true) => path.to_owned(),
        (true, false) => below.to_owned(),
        (false, false) => format!("{path}.{below}"),
    };
    let detail = error.message.trim();
    if error.kind != ErrorKind::ValidationFailure {
        return Cause::invalid(field, &format!("{:?}", kind.word()), detail);
    }
    match error.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, detail),
        Some("FieldValueRequired") => Cause::required(field, detail),
        Some("FieldValueDuplicate") => Cause::duplicate(field, &value.to_string()),
        _ if matches!(kind, Type::Object | Type::Array) => Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {detail}"),
            field,
        },
        _ => Cause::invalid(field, &value.to_string(), detail),
    }
}

impl Site {
    fn compile(schema: &Value, node: &Node, path: &str) -> Result<Option<Self>, SchemaError> {
        let below = |key: &str, node: Option<&Node>, step: &str| -> Result<Option<Box<Site>>, SchemaError> {
            match (schema.get(key).filter(|below| below.is_object()), node) {
                (Some(below), Some(node)) => {
                    Ok(Self::compile(below, node, &format!("{path}{step}"))?.map(Box::new))
                }
                _ => Ok(None),
            }
        };
        let mut properties = BTreeMap::new();
        for (name, child) in &node.properties {
            if let Some(site) = Self::compile(&schema["properties"][name], child, &format!("{path}.{name}"))? {
                properties.insert(name.clone(), site);
            }
        }
        let (now, transition) = compile_rules(schema, path)?;
        let site = Self {
            kind: node.kind,
            list: node.list.clone(),
            now,
            transition,
            properties,
            additional: below("additionalProperties", node.additional.as_deref(), ".*")?,
            items: below("items", node.items.as_deref(), "[]")?,
        };
        let needed = site.now.is_some()
            || site.transition.is_some()
            || !site.properties.is_empty()
            || site.additional.is_some()
            || site.items.is_some();
        Ok(needed.then_some(site))
    }
}

type Compiled = (Option<CompiledSchema>, Option<CompiledSchema>);

fn compile_rules(schema: &Value, path: &str) -> Result<Compiled, SchemaError> {
    const RULES: &str = "x-kubernetes-validations";
    let Some(rules) = schema.get(RULES).and_then(Value::as_array) else {
        return Ok((None, None));
    };
    let shape = conversion_shape(schema).unwrap_or_else(|| json!({}));
    let mut now = Vec::new();
    let mut transition = Vec::new();
    for rule in rules {
        let compiled = compile_schema(&json!({ RULES: [rule] }));
        if let Some(error) = compiled.compilation_errors().first() {
            return Err(SchemaError::Rule {
                path: path.trim_start_matches('.').to_owned(),
                detail: error.to_string(),
            });
        }
        let speaks_of_old = compiled.validations.iter().flatten().any(|rule| rule.is_transition_rule);
        if speaks_of_old { &mut transition } else { &mut now }.push(rule.clone());
    }
    let build = |rules: Vec<Value>| {
        (!rules.is_empty()).then(|| {
            let mut shape = shape.clone();
            shape[RULES] = Value::Array(rules);
            compile_schema(&shape)
        })
    };
    Ok((build(now), build(transition)))
}

/// As much of a schema as decides how values look to CEL: formats and maps. `None` if nothing does, so that the
/// evaluator does not walk, and convert again, what is below.
fn conversion_shape(schema: &Value) -> Option<Value> {
    let mut shape = serde_json::Map::new();
    for key in ["format", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"] {
        if let Some(value) = schema.get(key) {
            shape.insert(key.into(), value.clone());
        }
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| **value != json!(false)) {
        let below = if additional.is_object() {
            conversion_shape(additional).unwrap_or_else(|| json!({}))
        } else {
            additional.clone()
        };
        shape.insert("additionalProperties".into(), below);
    }
    if let Some(items) = schema.get("items").and_then(conversion_shape) {
        shape.insert("items".into(), items);
    }
    let properties: Object = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| conversion_shape(property).map(|shape| (name.clone(), shape)))
        .collect();
    if !properties.is_empty() {
        shape.insert("properties".into(), Value::Object(properties));
    }
    (!shape.is_empty()).then_some(Value::Object(shape))
}
