//! What must hold for every CRD, whatever its fields are.

use kube_cel::compile_schema;
use serde_json::{Value, json};

use crate::schema::{self, Node, nodes, rules};

/// Calls `check` with the kind and each node of its schema.
fn for_every_node(check: impl Fn(&str, &Node<'_>)) {
    for crd in larder_api::crds() {
        let schema = schema::of(&crd);
        for node in nodes(&schema) {
            check(&crd.spec.names.kind, &node);
        }
    }
}

#[test]
fn both_versions_are_served_with_one_schema_and_the_first_is_stored() {
    for crd in larder_api::crds() {
        let kind = &crd.spec.names.kind;
        let [stored, other] = &crd.spec.versions[..] else {
            panic!("{kind} has {} versions", crd.spec.versions.len());
        };
        assert!(stored.served && other.served, "{kind}");
        assert!(stored.storage && !other.storage, "{kind}");
        assert_eq!(schema::of_version(stored), schema::of_version(other), "{kind}");
        for version in [stored, other] {
            let subresources = version.subresources.as_ref().unwrap();
            assert!(subresources.status.is_some() && subresources.scale.is_none(), "{kind}");
        }
        // A conversion of another kind than None would need a webhook.
        assert_eq!(crd.spec.conversion, None, "{kind}");
    }
}

/// An agent or controller of another version must be able to write what it knows.
#[test]
fn nothing_in_a_status_is_required_but_the_type_of_a_condition() {
    for_every_node(|kind, node| {
        if node.path.starts_with("status") {
            let is_key = node.path == "status.conditions[].type";
            assert_eq!(node.required, is_key, "{kind} {}", node.path);
        }
    });
}

/// Nobody can fill an object with one message. The bound is far beyond what OpenKruise's agents leave there: that must not
/// keep the object from being written.
#[test]
fn every_message_in_a_status_has_the_same_generous_bound() {
    for_every_node(|kind, node| {
        if node.path.starts_with("status") && node.path.ends_with(".message") {
            assert_eq!(
                node.schema.get("maxLength"),
                Some(&32_768.into()),
                "{kind} {}",
                node.path
            );
        }
    });
}

#[test]
fn no_field_may_be_null() {
    for_every_node(|kind, node| {
        assert_eq!(node.schema.get("nullable"), None, "{kind} {}", node.path);
    });
}

/// What an API server that does not look at formats stores beyond them, nobody could read.
#[test]
fn every_int32_has_bounds_that_fit() {
    for_every_node(|kind, node| {
        if node.schema.get("format").is_some_and(|format| format == "int32") {
            for bound in ["minimum", "maximum"] {
                let bound = node.schema.get(bound).and_then(Value::as_f64);
                let fits = bound.is_some_and(|bound| f64::from(i32::MIN) <= bound && bound <= f64::from(i32::MAX));
                assert!(fits, "{kind} {}", node.path);
            }
        }
    });
}

#[test]
fn every_counter_that_a_column_shows_is_zero_by_default() {
    for crd in larder_api::crds() {
        let schema = schema::of(&crd);
        for version in &crd.spec.versions {
            let shown = version.additional_printer_columns.iter().flatten();
            for column in shown.filter(|column| column.type_ == "integer" && column.priority.is_none()) {
                let path = column.json_path.trim_start_matches('.');
                let node = nodes(&schema).into_iter().find(|node| node.path == path).unwrap();
                assert_eq!(node.schema["default"], 0, "{} {path}", crd.spec.names.kind);
                assert_eq!(node.schema["type"], "integer", "{} {path}", crd.spec.names.kind);
            }
        }
    }
}

#[test]
fn every_column_shows_a_field_of_its_type() {
    for crd in larder_api::crds() {
        let schema = schema::of(&crd);
        for column in crd
            .spec
            .versions
            .iter()
            .flat_map(|version| version.additional_printer_columns.iter().flatten())
        {
            if column.json_path == ".metadata.creationTimestamp" {
                continue;
            }
            let path = column.json_path.trim_start_matches('.');
            let found = nodes(&schema).into_iter().find(|node| node.path == path);
            let node = found.unwrap_or_else(|| panic!("{} has no {path}", crd.spec.names.kind));
            assert_eq!(node.schema["type"], column.type_, "{} {path}", crd.spec.names.kind);
        }
    }
}

/// The API server refuses rules that could cost too much at the largest size that the schema allows. A rule runs once for
/// every item of the lists and maps around it, and looks at the fields that it names.
#[test]
fn whatever_a_rule_looks_at_is_bounded() {
    for_every_node(|kind, node| {
        if rules(node.schema).is_empty() {
            return;
        }
        for above in &node.above {
            assert!(
                is_counted(above),
                "{kind} {}: a list or map around it is not bounded",
                node.path
            );
        }
        for (rule, _) in rules(node.schema) {
            for named in named_fields(rule) {
                let field = named
                    .iter()
                    .fold(node.schema, |schema, name| &schema["properties"][name]);
                assert!(
                    is_bounded(field),
                    "{kind} {}: {named:?} in {rule} is not bounded",
                    node.path
                );
            }
        }
    });
}

/// A list or map of which there can be only so many items.
fn is_counted(schema: &Value) -> bool {
    let list_is_counted = schema["type"] != "array" || schema["maxItems"].is_u64();
    let map_is_counted = !schema["additionalProperties"].is_object() || schema["maxProperties"].is_u64();
    list_is_counted && map_is_counted
}

/// Bounded itself, and all items in it too. An object is looked at field by field.
fn is_bounded(schema: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return schema["maxLength"].is_u64();
    }
    match schema["type"].as_str() {
        Some("string") => schema["maxLength"].is_u64() || schema["enum"].is_array(),
        Some("array") => is_counted(schema) && is_bounded(&schema["items"]),
        Some("object") if schema["additionalProperties"].is_object() => is_counted(schema),
        Some("object" | "integer" | "boolean") => true,
        _ => false,
    }
}

/// The fields that an expression names: `self.a.b` and `oldSelf.a.b` give `[a, b]`, `self` alone gives `[]`.
fn named_fields(rule: &str) -> Vec<Vec<String>> {
    const FUNCTIONS: [&str; 3] = ["matches", "all", "endsWith"];
    let code: String = rule.split('\'').step_by(2).collect();
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '.');
    let paths = words.filter_map(|word| word.strip_prefix("self").or_else(|| word.strip_prefix("oldSelf")));
    paths
        .map(|path| {
            let names = path.split('.').filter(|name| !name.is_empty());
            names
                .filter(|name| !FUNCTIONS.contains(name))
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

#[test]
fn fields_are_found_in_expressions() {
    let want = [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()], vec![]];
    assert_eq!(
        named_fields("!has(self.a.b) || oldSelf.c.matches('self.d') || size(self) > 0"),
        want
    );
}

/// `larder lint` and the embedded API server evaluate the same rules with another evaluator.
#[test]
fn every_rule_and_every_message_is_usable() {
    for_every_node(|kind, node| {
        for (rule, message) in rules(node.schema) {
            let compiled = compile_schema(&json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]}));
            assert!(
                !compiled.has_errors(),
                "{kind} {}: {:?}",
                node.path,
                compiled.compilation_errors()
            );
            assert!(
                message.len() > 20,
                "{kind} {}: {rule} does not say what to change",
                node.path
            );
        }
    });
}

#[test]
fn no_kind_has_short_names_or_categories() {
    for crd in larder_api::crds() {
        let names = &crd.spec.names;
        assert_eq!(
            (&names.short_names, &names.categories),
            (&None, &None),
            "{}",
            names.kind
        );
        assert_eq!(names.singular.as_deref(), Some(names.kind.to_lowercase().as_str()));
        assert_eq!(
            crd.metadata.name.as_deref().unwrap(),
            format!("{}.{}", names.plural, crd.spec.group)
        );
    }
}
