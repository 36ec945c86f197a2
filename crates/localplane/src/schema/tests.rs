use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn schema(field: &Value) -> Schema {
    let json = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": field}}}});
    Schema::compile(&serde_json::from_value(json).unwrap()).unwrap()
}

fn object(value: Value) -> Object {
    let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "spec": {}});
    object["spec"]["f"] = value;
    object.as_object().unwrap().clone()
}

fn problems(field: &Value, value: Value) -> Vec<String> {
    let causes = schema(field).validate(&object(value), None);
    causes
        .into_iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

#[rstest]
#[case::text(json!({"type": "string"}), json!(1), r#"spec.f: Invalid value: "integer": spec.f in body must be of type string: "integer""#)]
#[case::integer(json!({"type": "integer"}), json!("1"), r#"spec.f: Invalid value: "string": spec.f in body must be of type integer: "string""#)]
#[case::fraction(json!({"type": "integer"}), json!(1.5), r#"spec.f: Invalid value: "number": spec.f in body must be of type integer: "number""#)]
#[case::list(json!({"type": "array", "items": {"type": "string"}}), json!({}), r#"spec.f: Invalid value: "object": spec.f in body must be of type array: "object""#)]
#[case::item(json!({"type": "array", "items": {"type": "string"}}), json!(["a", true]), r#"spec.f[1]: Invalid value: "boolean": spec.f[1] in body must be of type string: "boolean""#)]
#[case::int_or_string(json!({"x-kubernetes-int-or-string": true}), json!([]), "spec.f: Invalid value: \"array\": spec.f in body must be of type [integer string]: \"array\"")]
#[case::choice(json!({"type": "string", "enum": ["a", "b"]}), json!("c"), r#"spec.f: Unsupported value: "c": supported values: "a", "b""#)]
#[case::minimum(json!({"type": "integer", "minimum": 1}), json!(0), "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1")]
#[case::maximum(json!({"type": "integer", "maximum": 1}), json!(2), "spec.f: Invalid value: 2: spec.f in body should be less than or equal to 1")]
#[case::exclusive(json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}), json!(1), "spec.f: Invalid value: 1: spec.f in body should be greater than 1")]
#[case::int32(json!({"type": "integer", "format": "int32"}), json!(2_147_483_648_i64), "spec.f: Invalid value: 2147483648: Checked value must be of type integer with format int32 in spec.f")]
#[case::too_short(json!({"type": "string", "minLength": 1}), json!(""), r#"spec.f: Invalid value: "": spec.f in body should be at least 1 chars long"#)]
#[case::too_long(json!({"type": "string", "maxLength": 1}), json!("ab"), "spec.f: Too long: may not be more than 1 bytes")]
#[case::pattern(json!({"type": "string", "pattern": "^a+$"}), json!("b"), r#"spec.f: Invalid value: "b": spec.f in body should match '^a+$'"#)]
#[case::too_few_items(json!({"type": "array", "minItems": 1, "items": {"type": "string"}}), json!([]), "spec.f: Invalid value: 0: spec.f in body should have at least 1 items")]
#[case::too_many_items(json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}), json!(["a", "b"]), "spec.f: Too many: 2: must have at most 1 item")]
#[case::set(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), json!(["a", "b", "a"]), r#"spec.f[2]: Duplicate value: "a""#)]
#[case::map(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}), json!([{"k": "a"}, {"k": "a"}]), r#"spec.f[1]: Duplicate value: {"k":"a"}"#)]
#[case::required(json!({"type": "object", "required": ["g"], "properties": {"g": {"type": "string"}}}), json!({}), "spec.f.g: Required value")]
#[case::map_value(json!({"type": "object", "additionalProperties": {"type": "integer"}}), json!({"k": "v"}), r#"spec.f.k: Invalid value: "string": spec.f.k in body must be of type integer: "string""#)]
#[case::time(json!({"type": "string", "format": "date-time"}), json!("noon"), r#"spec.f: Invalid value: "noon": spec.f in body must be of type date-time: "noon""#)]
#[case::time_without_offset(json!({"type": "string", "format": "date-time"}), json!("2026-11-15T10:00:00"), r#"spec.f: Invalid value: "2026-11-15T10:00:00": spec.f in body must be of type date-time: "2026-11-15T10:00:00""#)]
#[case::second_60(json!({"type": "string", "format": "date-time"}), json!("2026-11-15T10:00:60Z"), r#"spec.f: Invalid value: "2026-11-15T10:00:60Z": spec.f in body must be of type date-time: "2026-11-15T10:00:60Z""#)]
#[case::empty_fraction(json!({"type": "string", "format": "date-time"}), json!("2026-11-15T10:00:00.Z"), r#"spec.f: Invalid value: "2026-11-15T10:00:00.Z": spec.f in body must be of type date-time: "2026-11-15T10:00:00.Z""#)]
fn refuses_in_the_words_of_the_cluster(#[case] field: Value, #[case] value: Value, #[case] want: &str) {
    let found = problems(&field, value);
    assert_eq!(found.first().map(String::as_str), Some(want), "{found:?}");
}

#[rstest]
#[case::nullable(json!({"type": "string", "nullable": true}), json!(null))]
#[case::end_of_time(json!({"type": "string", "format": "date-time"}), json!("9999-12-31T23:59:59.9999999999Z"))]
#[case::odd_offset(json!({"type": "string", "format": "date-time"}), json!("2026-11-15t10:00:00-99:99"))]
#[case::whole_float(json!({"type": "integer"}), json!(2.0))]
#[case::anything(json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"a": 1}, "b"]))]
#[case::one_of(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"a": 1}))]
fn accepts(#[case] field: Value, #[case] value: Value) {
    assert_eq!(problems(&field, value), Vec::<String>::new());
}

#[test]
fn what_was_wrong_before_does_not_stop_other_edits() {
    let strict = schema(
        &json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 1}, "b": {"type": "string"}}}),
    );
    let old = object(json!({"a": 5, "b": "x"}));
    assert!(
        strict
            .validate(&object(json!({"a": 5, "b": "y"})), Some(&old))
            .is_empty()
    );
    assert_eq!(strict.validate(&object(json!({"a": 6, "b": "y"})), Some(&old)).len(), 1);
}

#[rstest]
#[case::missing(json!({"type": "string", "default": "d"}), None, Some(json!("d")))]
#[case::given(json!({"type": "string", "default": "d"}), Some(json!("g")), Some(json!("g")))]
#[case::null_counts_as_missing(json!({"type": "string", "default": "d"}), Some(json!(null)), Some(json!("d")))]
#[case::null_that_may_stand(json!({"type": "string", "default": "d", "nullable": true}), Some(json!(null)), Some(json!(null)))]
#[case::null_without_default_vanishes(json!({"type": "string"}), Some(json!(null)), None)]
#[case::default_inside_a_default(json!({"type": "object", "default": {}, "properties": {"g": {"type": "integer", "default": 3}}}), None, Some(json!({"g": 3})))]
#[case::in_items(json!({"type": "array", "items": {"type": "object", "properties": {"g": {"type": "integer", "default": 3}}}}), Some(json!([{}, {"g": 1}])), Some(json!([{"g": 3}, {"g": 1}])))]
#[case::in_map_values(json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"g": {"type": "integer", "default": 3}}}}), Some(json!({"k": {}})), Some(json!({"k": {"g": 3}})))]
fn fills_in(#[case] field: Value, #[case] value: Option<Value>, #[case] want: Option<Value>) {
    let mut object = object(Value::Null);
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.remove("f");
        spec.extend(value.map(|value| ("f".to_owned(), value)));
    }
    schema(&field).default(&mut object);
    assert_eq!(object["spec"].get("f").cloned(), want);
}

#[rstest]
#[case::unknown_field(json!({"type": "object", "properties": {"g": {"type": "string"}}}), json!({"g": "x", "h": 1}), json!({"g": "x"}), &["spec.f.h"])]
#[case::in_items(json!({"type": "array", "items": {"type": "object", "properties": {"g": {"type": "string"}}}}), json!([{"h": 1}]), json!([{}]), &["spec.f[0].h"])]
#[case::kept_on_purpose(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"h": {"i": 1}}), json!({"h": {"i": 1}}), &[])]
#[case::map_keys_are_data(json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"h": "x"}), json!({"h": "x"}), &[])]
#[case::embedded_object(json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}), json!({"kind": "K", "metadata": {}, "status": 1}), json!({"kind": "K", "metadata": {}}), &["spec.f.status"])]
fn prunes(#[case] field: Value, #[case] value: Value, #[case] want: Value, #[case] dropped: &[&str]) {
    let mut object = object(value);
    assert_eq!(schema(&field).prune(&mut object), dropped);
    assert_eq!(object["spec"]["f"], want);
    assert_eq!(object["metadata"]["name"], "a");
}
