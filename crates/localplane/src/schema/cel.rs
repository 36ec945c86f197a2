//! CEL rules of a schema, compiled once, each evaluated only where it stands.
//!
//! A rule that speaks of `oldSelf` runs only where the old value is known: items of map lists are found by their keys,
//! items of other lists have no past. A rule that does not is skipped where nothing changed. A rule that cannot be
//! evaluated refuses the object.

mod patterns;
mod value;

use std::{collections::BTreeMap, sync::Arc};

use kube_cel::{
    CompilationResult, KubeCelExt,
    cel::{Context, ExecutionError, Value as Cel, extractors::This},
    compile_schema,
};
use serde_json::{Value, json};

use self::patterns::Patterns;
use self::value::{Converter, TYPES, type_name};
use super::{Node, SchemaError, structural::Type, validate::correlated};
use crate::{error::Cause, object::Object};

const RULES: &str = "x-kubernetes-validations";

/// All rules of one schema.
pub(super) struct Rules {
    root: Option<Site>,
    functions: Context<'static>,
    converter: Converter,
}

/// A place that has rules, or has such places below it.
struct Site {
    rules: Vec<CompilationResult>,
    properties: BTreeMap<String, Site>,
    additional: Option<Box<Site>>,
    items: Option<Box<Site>>,
}

impl Rules {
    pub(super) fn compile(schema: &Value, node: &Node) -> Result<Self, SchemaError> {
        let mut functions = Context::default().with_all();
        functions.add_function("type", |value: Cel| Arc::new(type_name(&value).to_owned()));
        let patterns = Patterns::default();
        functions.add_function("matches", move |This(text): This<Arc<String>>, pattern: Arc<String>| {
            patterns
                .is_match(&pattern, &text)
                .map_err(|error| ExecutionError::function_error("matches", error))
        });
        for name in TYPES {
            functions.add_variable_from_value(name, Cel::String(Arc::new(name.to_owned())));
        }
        Ok(Self {
            root: Site::compile(schema, node, "")?,
            functions,
            converter: Converter::new(),
        })
    }

    /// What the rules say about `object`.
    pub(super) fn check(&self, schema: &Node, object: &Object, old: Option<&Object>) -> Vec<Cause> {
        let Some(site) = &self.root else {
            return Vec::new();
        };
        let mut causes = Vec::new();
        if !site.rules.is_empty() {
            let whole = Value::Object(object.clone());
            let old = old.map(|old| Value::Object(old.clone()));
            self.here(site, schema, &whole, old.as_ref(), "", &mut causes);
        }
        for (key, site) in &site.properties {
            if let (Some(schema), Some(value)) = (schema.properties.get(key), object.get(key)) {
                self.at(site, schema, value, old.and_then(|old| old.get(key)), key, &mut causes);
            }
        }
        causes
    }

    fn at(&self, site: &Site, schema: &Node, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
        if value.is_null() {
            return;
        }
        self.here(site, schema, value, old, path, causes);
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let site = site.properties.get(key).or(site.additional.as_deref());
                    let schema = schema.properties.get(key).or(schema.additional.as_deref());
                    if let (Some(site), Some(schema)) = (site, schema) {
                        let old = old.and_then(|old| old.get(key));
                        self.at(site, schema, value, old, &format!("{path}.{key}"), causes);
                    }
                }
            }
            Value::Array(items) => {
                if let (Some(site), Some(below)) = (&site.items, &schema.items) {
                    for (index, item) in items.iter().enumerate() {
                        let old = old.and_then(|old| correlated(&schema.list, old, item));
                        self.at(site, below, item, old, &format!("{path}[{index}]"), causes);
                    }
                }
            }
            _ => {}
        }
    }

    fn here(
        &self,
        site: &Site,
        schema: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        let old = old.filter(|old| !old.is_null());
        let unchanged = old == Some(value);
        let due = |rule: &&CompilationResult| {
            if rule.is_transition_rule {
                old.is_some() || rule.rule.optional_old_self == Some(true)
            } else {
                !unchanged
            }
        };
        let mut due = site.rules.iter().filter(due).peekable();
        if due.peek().is_none() {
            return;
        }
        let mut scope = self.functions.new_inner_scope();
        let convert = |value: &Value| self.converter.convert(Some(schema), value, &self.functions);
        scope.add_variable_from_value("self", convert(value));
        scope.add_variable_from_value("oldSelf", old.map_or(Cel::Null, convert));
        causes.extend(due.filter_map(|rule| broken(rule, &scope, schema, value, path)));
    }
}

/// What is wrong if the rule does not hold.
fn broken(
    compiled: &CompilationResult,
    scope: &Context<'_>,
    schema: &Node,
    value: &Value,
    path: &str,
) -> Option<Cause> {
    let rule = &compiled.rule;
    let kind = schema.kind;
    let failed = |why: String| {
        let word = format!("{:?}", kind.word());
        Some(Cause::invalid(
            path,
            &word,
            format!("{why} evaluating rule: {}", rule.rule),
        ))
    };
    match compiled.program.execute(scope) {
        Ok(Cel::Bool(true)) => return None,
        Ok(Cel::Bool(false)) => {}
        Ok(_) => return failed("the rule gives no truth value".into()),
        Err(error) => return failed(error.to_string()),
    }
    let told = compiled
        .message_program
        .as_ref()
        .and_then(|program| match program.execute(scope) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
    let detail = told.or_else(|| rule.message.as_ref().map(|message| message.trim().to_owned()));
    let detail = detail.unwrap_or_else(|| format!("failed rule: {}", rule.rule));
    let field = match rule.field_path.as_deref().map(|below| below.trim_start_matches('.')) {
        None | Some("") => path.to_owned(),
        Some(below) if path.is_empty() => below.to_owned(),
        Some(below) => format!("{path}.{below}"),
    };
    Some(match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, detail),
        Some("FieldValueRequired") => Cause::required(field, &detail),
        Some("FieldValueDuplicate") => Cause::duplicate(field, &value.to_string()),
        _ if matches!(kind, Type::Object | Type::Array) => Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {detail}"),
            field,
        },
        _ => Cause::invalid(field, &value.to_string(), detail),
    })
}

impl Site {
    fn compile(schema: &Value, node: &Node, path: &str) -> Result<Option<Self>, SchemaError> {
        let below = |key: &str, node: Option<&Node>, step: &str| -> Result<Option<Box<Site>>, SchemaError> {
            match (schema.get(key).filter(|below| below.is_object()), node) {
                (Some(below), Some(node)) => Ok(Self::compile(below, node, &format!("{path}{step}"))?.map(Box::new)),
                _ => Ok(None),
            }
        };
        let mut properties = BTreeMap::new();
        for (name, child) in &node.properties {
            if let Some(site) = Self::compile(&schema["properties"][name], child, &format!("{path}.{name}"))? {
                properties.insert(name.clone(), site);
            }
        }
        let site = Self {
            rules: compile_rules(schema, path)?,
            properties,
            additional: below("additionalProperties", node.additional.as_deref(), ".*")?,
            items: below("items", node.items.as_deref(), "[]")?,
        };
        let needed =
            !site.rules.is_empty() || !site.properties.is_empty() || site.additional.is_some() || site.items.is_some();
        Ok(needed.then_some(site))
    }
}

fn compile_rules(schema: &Value, path: &str) -> Result<Vec<CompilationResult>, SchemaError> {
    let Some(rules) = schema.get(RULES) else {
        return Ok(Vec::new());
    };
    let compiled = compile_schema(&json!({ RULES: rules }));
    compiled
        .validations
        .into_iter()
        .map(|rule| {
            rule.map_err(|error| SchemaError::Rule {
                path: path.trim_start_matches('.').to_owned(),
                detail: error.to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
