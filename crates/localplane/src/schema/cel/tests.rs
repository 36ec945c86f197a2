use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn check(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let node = Node::compile(schema, "").unwrap();
    let rules = Rules::compile(schema, &node).unwrap();
    let old = old.and_then(Value::as_object);
    rules
        .check(&node, new.as_object().unwrap(), old)
        .into_iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

fn schema(field: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": field}}}})
}

fn with_rule(mut field: Value, rule: &str) -> Value {
    field[RULES] = json!([{"rule": rule, "message": "no"}]);
    schema(&field)
}

#[rstest]
#[case::int_or_string_int(json!({"x-kubernetes-int-or-string": true}), "type(self) == string ? self.endsWith('%') : self >= 0", json!(1), true)]
#[case::int_or_string_text(json!({"x-kubernetes-int-or-string": true}), "type(self) == string ? self.endsWith('%') : self >= 0", json!("5%"), true)]
#[case::int_or_string_refused(json!({"x-kubernetes-int-or-string": true}), "type(self) == string ? self.endsWith('%') : self >= 0", json!("5"), false)]
#[case::conversion(json!({"type": "string"}), "int(self) <= 5", json!("5"), true)]
#[case::number_is_double(json!({"type": "number"}), "self > 0.5", json!(1), true)]
#[case::time(json!({"type": "string", "format": "date-time"}), "self > timestamp('2020-01-01T00:00:00Z')", json!("2021-01-01T00:00:00Z"), true)]
#[case::map_keys_are_data(json!({"type": "object", "additionalProperties": {"type": "string"}}), "'a-b' in self", json!({"a-b": "c"}), true)]
#[case::field_names_are_escaped(json!({"type": "object", "properties": {"a-b": {"type": "string"}}}), "self.a__dash__b == 'c'", json!({"a-b": "c"}), true)]
#[case::list(json!({"type": "array", "items": {"type": "string"}}), "self.all(x, x.size() < 3)", json!(["a", "bbb"]), false)]
#[case::presence(json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}), "has(self.a) != has(self.b)", json!({"a": "x", "b": "y"}), false)]
fn rules_hold_or_refuse(#[case] field: Value, #[case] rule: &str, #[case] value: Value, #[case] holds: bool) {
    let problems = check(&with_rule(field, rule), &json!({"spec": {"f": value}}), None);
    assert_eq!(problems.is_empty(), holds, "{problems:?}");
}

#[test]
fn messages_name_the_field_and_the_value_as_the_cluster_does() {
    let scalar = check(
        &with_rule(json!({"type": "integer"}), "self > 1"),
        &json!({"spec": {"f": 1}}),
        None,
    );
    assert_eq!(scalar, ["spec.f: Invalid value: 1: no"]);
    let object = check(
        &with_rule(json!({"type": "object"}), "false"),
        &json!({"spec": {"f": {}}}),
        None,
    );
    assert_eq!(object, ["spec.f: Invalid value: no"]);
}

#[test]
fn transition_rules_need_a_past_and_others_a_change() {
    let frozen = with_rule(json!({"type": "integer"}), "self == oldSelf");
    assert!(check(&frozen, &json!({"spec": {"f": 1}}), None).is_empty());
    assert!(check(&frozen, &json!({"spec": {"f": 1}}), Some(&json!({"spec": {"f": 1}}))).is_empty());
    assert_eq!(
        check(&frozen, &json!({"spec": {"f": 2}}), Some(&json!({"spec": {"f": 1}}))).len(),
        1
    );
    let never = with_rule(json!({"type": "integer"}), "false");
    assert!(check(&never, &json!({"spec": {"f": 1}}), Some(&json!({"spec": {"f": 1}}))).is_empty());
    assert_eq!(
        check(&never, &json!({"spec": {"f": 2}}), Some(&json!({"spec": {"f": 1}}))).len(),
        1
    );
}

#[test]
fn items_of_map_lists_have_a_past_and_items_of_other_lists_have_none() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        RULES: [{"rule": "self.v >= oldSelf.v", "message": "shrinks"}]});
    let map = schema(
        &json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
    );
    let list = schema(&json!({"type": "array", "items": item}));
    let old = json!({"spec": {"f": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}});
    let new = json!({"spec": {"f": [{"k": "b", "v": 1}, {"k": "a", "v": 4}]}});
    assert_eq!(check(&map, &new, Some(&old)), ["spec.f[1]: Invalid value: shrinks"]);
    assert!(check(&list, &new, Some(&old)).is_empty());
}

#[test]
fn a_rule_that_cannot_be_evaluated_refuses() {
    let problems = check(
        &with_rule(json!({"type": "string"}), "nobody(self)"),
        &json!({"spec": {"f": "a"}}),
        None,
    );
    assert_eq!(problems.len(), 1);
}

#[test]
fn a_rule_that_does_not_parse_refuses_the_schema() {
    let schema = with_rule(json!({"type": "string"}), "self ==");
    let node = Node::compile(&schema, "").unwrap();
    assert!(matches!(Rules::compile(&schema, &node), Err(SchemaError::Rule { path, .. }) if path == "spec.f"));
}
