//! One version's schema: fills in defaults, drops unknown fields, and judges objects, as the cluster's API server does.
//!
//! Compiled once when the server starts. Pure.

mod cel;
mod defaults;
mod prune;
mod structural;
mod validate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use structural::{ListType, Node};

use crate::{error::Cause, object::Object};

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// There is none.
    #[error("there is no openAPIV3Schema; give one")]
    Missing,
    /// It cannot be turned into JSON.
    #[error("turning the schema into JSON")]
    Json(#[source] serde_json::Error),
    /// A pattern is no regular expression.
    #[error("compiling the pattern at {path}")]
    Pattern {
        /// Where in the schema.
        path: String,
        /// What is wrong with it.
        #[source]
        source: Box<regex::Error>,
    },
    /// A CEL rule does not compile.
    #[error("compiling a validation rule at {path}: {detail}")]
    Rule {
        /// Where in the schema.
        path: String,
        /// The compiler's words.
        detail: String,
    },
}

/// A compiled schema.
pub(crate) struct Schema {
    root: Node,
    rules: cel::Rules,
    json: Value,
}

impl Schema {
    pub(crate) fn compile(schema: &JSONSchemaProps) -> Result<Self, SchemaError> {
        let json = serde_json::to_value(schema).map_err(SchemaError::Json)?;
        let root = Node::compile(&json, "")?;
        let rules = cel::Rules::compile(&json, &root)?;
        Ok(Self { root, rules, json })
    }

    /// The schema as it stands in the definition.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }

    /// Drops fields the schema does not know and tells their paths.
    pub(crate) fn prune(&self, object: &mut Object) -> Vec<String> {
        prune::object(&self.root, object)
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, object: &mut Object) {
        defaults::object(&self.root, object);
    }

    /// Everything that is wrong with `object`. Parts that are as they were in `old` are not judged again, so that a
    /// tightened schema does not stop other edits.
    pub(crate) fn validate(&self, object: &Object, old: Option<&Object>) -> Vec<Cause> {
        let mut causes = validate::object(&self.root, object, old);
        if causes.iter().any(is_blocking) {
            causes.push(Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: null: some validation rules were not checked because the object was invalid; \
                          correct the existing errors to complete validation"
                    .into(),
                field: "<nil>".into(),
            });
        } else {
            causes.extend(self.rules.check(&self.root, object, old));
        }
        causes
    }
}

/// Whether rules could stumble over what is wrong.
fn is_blocking(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

#[cfg(test)]
mod tests;
