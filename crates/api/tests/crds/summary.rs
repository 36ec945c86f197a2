//! What the CRDs say, in a form that a person reviews: one line per field, without descriptions.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use rstest::rstest;
use serde_json::Value;

use crate::schema::{self, Node};

#[rstest]
#[case::image_pull_job("ImagePullJob")]
#[case::image_list_pull_job("ImageListPullJob")]
#[case::node_image("NodeImage")]
#[case::image_pre_pull_job("ImagePrePullJob")]
fn of_each_kind(#[case] kind: &str) {
    let crds = larder_api::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    insta::assert_snapshot!(kind, summary(crd));
}

fn summary(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let mut text = format!(
        "{} {} {} {}\n\n",
        crd.metadata.name.as_deref().unwrap(),
        crd.spec.scope,
        names.kind,
        names.singular.as_deref().unwrap_or_default()
    );
    for version in &crd.spec.versions {
        columns(version, &mut text);
    }
    let schema = schema::of(crd);
    for node in schema::nodes(&schema).iter().skip(1) {
        field(node, &mut text);
    }
    text
}

fn columns(version: &CustomResourceDefinitionVersion, text: &mut String) {
    let stored = if version.storage { " (stored)" } else { "" };
    writeln!(text, "{}{stored}", version.name).unwrap();
    for column in version.additional_printer_columns.iter().flatten() {
        let wide = if column.priority == Some(1) { " (wide)" } else { "" };
        writeln!(text, "  {} {} {}{wide}", column.name, column.json_path, column.type_).unwrap();
    }
    text.push('\n');
}

fn field(node: &Node<'_>, text: &mut String) {
    let schema = node.schema;
    let mut words = vec![node.path.clone(), kind(schema)];
    if node.required {
        words.push("required".to_owned());
    }
    let told = [
        "format",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "pattern",
        "enum",
        "default",
    ];
    let told = told.iter().filter(|key| !schema[**key].is_null());
    words.extend(told.map(|key| format!("{key}={}", schema[*key])));
    let listed = [
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    ];
    let listed = listed.iter().filter(|key| !schema[**key].is_null());
    words.extend(listed.map(|key| format!("{}={}", key.trim_start_matches("x-kubernetes-"), schema[*key])));
    writeln!(text, "{}", words.join(" ")).unwrap();
    for (rule, message) in schema::rules(schema) {
        writeln!(text, "    \"{message}\"\n      {rule}").unwrap();
    }
}

fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "int-or-string".to_owned();
    }
    match schema["type"].as_str() {
        Some(name) => name.to_owned(),
        None if schema["x-kubernetes-preserve-unknown-fields"] == true => "anything".to_owned(),
        None => panic!("neither a type nor a reason for none: {schema}"),
    }
}
