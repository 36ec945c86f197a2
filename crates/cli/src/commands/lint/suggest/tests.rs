use super::*;
use rstest::rstest;
use serde_json::json;

/// The schema of a kind in its newest version.
fn schema(kind: &str) -> Value {
    let crds = larder_api::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let version = crd.spec.versions.first().unwrap();
    serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

#[rstest]
#[case::indentation(
    json!({"metadata": null, "name": "a", "spec": null, "image": "nginx", "parallelism": 1, "names": ["a"], "matchLabels": null}),
    &["image", "matchLabels", "name", "names", "parallelism"],
    &[
        "unknown field \"name\": it belongs below metadata; correct its indentation",
        "unknown fields \"image\", \"parallelism\": they belong below spec; correct their indentation",
        "unknown field \"matchLabels\": it belongs below spec.podSelector or spec.selector; correct its indentation",
        "unknown field \"names\": it belongs below spec.selector; correct its indentation",
    ]
)]
#[case::too_far_in(
    json!({"spec": {"selector": {"pullPolicy": {}}}}),
    &["spec.selector.pullPolicy"],
    &["unknown field \"spec.selector.pullPolicy\": it belongs below spec; correct its indentation"]
)]
#[case::bare_pod_selector(
    json!({"spec": {"podSelector": {"pod-label": "xxx"}}}),
    &["spec.podSelector.pod-label"],
    &["unknown field \"spec.podSelector.pod-label\": labels belong below matchLabels; write podSelector: {matchLabels: {pod-label: \"xxx\"}}"]
)]
#[case::label_with_dots(
    json!({"spec": {"selector": {"node-role.kubernetes.io/edge": ""}}}),
    &["spec.selector.node-role.kubernetes.io/edge"],
    &["unknown field \"spec.selector.node-role.kubernetes.io/edge\": labels belong below matchLabels; write selector: {matchLabels: {node-role.kubernetes.io/edge: \"\"}}"]
)]
#[case::misspelled(json!({"spec": {"pulSecrets": []}}), &["spec.pulSecrets"], &["unknown field \"spec.pulSecrets\"; did you mean pullSecrets?"])]
#[case::other(json!({"spec": {"colour": "blue"}}), &["spec.colour"], &["unknown field \"spec.colour\""])]
#[case::in_a_list(
    json!({"spec": {"tolerations": [{"efect": "x"}]}}),
    &["spec.tolerations[0].efect"],
    &["unknown field \"spec.tolerations[0].efect\"; did you mean effect?"]
)]
fn unknown(#[case] object: Value, #[case] paths: &[&str], #[case] want: &[&str]) {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(unknown_fields(&schema("ImagePullJob"), &object, &paths), want);
}

#[rstest]
#[case::camels("ImagePrepullExample", "image-prepull-example")]
#[case::underscore("my_job", "my-job")]
#[case::abbreviation("pullHTTPImage", "pull-httpimage")]
#[case::fine("job-1.x", "job-1.x")]
#[case::nothing("镜像", "")]
fn names(#[case] name: &str, #[case] want: &str) {
    assert_eq!(name_like(name), want);
}

#[rstest]
#[case::name(
    "metadata.name: Invalid value: \"MyJob\": no",
    "metadata.name: Invalid value: \"MyJob\": no; write name: my-job"
)]
#[case::other("spec.image: Required value", "spec.image: Required value")]
fn suggestions(#[case] fault: &str, #[case] want: &str) {
    let object = json!({"metadata": {"name": "MyJob"}});
    assert_eq!(with_suggestion(fault.to_owned(), &object), want);
}

#[rstest]
#[case::label(
    json!({"metadata": {"labels": "description:ImagePrePullLabel"}}),
    json!({"metadata": {"labels": {"description": "ImagePrePullLabel"}}}),
    &["metadata.labels: \"description:ImagePrePullLabel\" is one text; put a space after the colon: `description: ImagePrePullLabel`"]
)]
#[case::field(
    json!({"metadata": {}, "spec": {"image": "nginx:1", "pullPolicy": "backoffLimit:1"}}),
    json!({"metadata": {}, "spec": {"image": "nginx:1", "pullPolicy": {"backoffLimit": 1}}}),
    &["spec.pullPolicy: \"backoffLimit:1\" is one text; put a space after the colon: `backoffLimit: 1`"]
)]
#[case::list(
    json!({"metadata": {}, "spec": {"tolerations": {"key": "a"}}}),
    json!({"metadata": {}, "spec": {"tolerations": [{"key": "a"}]}}),
    &["spec.tolerations: it has to be a list; begin each item with `- `, and indent its other lines below the first"]
)]
#[case::something_else(
    json!({"metadata": {"labels": "a b:c"}, "spec": {"pullPolicy": "x"}}),
    json!({"metadata": {"labels": "a b:c"}, "spec": {"pullPolicy": "x"}}),
    &[]
)]
fn types(#[case] mut object: Value, #[case] corrected: Value, #[case] want: &[&str]) {
    let said = correct_types(&schema("ImagePullJob"), &mut object);
    assert_eq!(said, want);
    assert_eq!(object, corrected);
}

#[rstest]
#[case::respo(json!({"imagePrePullTemplate": {"images": ["a", {"respo": "b"}]}}), &["images[1].respo is read as repo; write repo"])]
#[case::node(
    json!({"selector": {"names": ["Node-1", "node-2"]}}),
    &["no node can be named \"Node-1\", since names have no capital letters; write node-1"]
)]
#[case::nothing(json!({"image": "a"}), &[])]
fn hint(#[case] spec: Value, #[case] want: &[&str]) {
    assert_eq!(hints(&json!({ "spec": spec })), want);
}
