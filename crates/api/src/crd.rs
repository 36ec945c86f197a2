//! The CustomResourceDefinitions of all four kinds, as they are installed.
//!
//! Both versions of a kind carry the same schema, made from the one Rust type; they differ in printer columns alone. With
//! conversion strategy `None` the API server prunes by the schema of the version that was used, so anything that only one
//! of them knew would be erased by a write through the other.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use crate::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage, schema};

/// All CRDs, in the order in which they are written to files and applied.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        image_pull_job(),
        image_list_pull_job(),
        node_image(),
        image_pre_pull_job(),
    ]
}

fn image_pull_job() -> CustomResourceDefinition {
    let columns = [
        column("TOTAL", "integer", ".status.desired"),
        column("ACTIVE", "integer", ".status.active"),
        column("SUCCEED", "integer", ".status.succeeded"),
        column("FAILED", "integer", ".status.failed"),
        age(),
        column("MESSAGE", "string", ".status.message"),
        wide("IMAGE", "string", ".spec.image"),
        wide("BYTES", "integer", ".status.bytesTotal"),
        wide("DONE", "integer", ".status.bytesDone"),
        wide("ETA", "integer", ".status.etaSeconds"),
        wide("PRIORITY", "integer", ".spec.priority"),
    ];
    with_versions(ImagePullJob::crd(), &[("v1beta1", &columns), ("v1alpha1", &columns)])
}

fn image_list_pull_job() -> CustomResourceDefinition {
    let columns = [
        column("TOTAL", "integer", ".status.desired"),
        column("SUCCEEDED", "integer", ".status.succeeded"),
        column("COMPLETED", "integer", ".status.completed"),
        age(),
        wide("ACTIVE", "integer", ".status.active"),
        wide("BYTES", "integer", ".status.bytesTotal"),
        wide("DONE", "integer", ".status.bytesDone"),
        wide("ETA", "integer", ".status.etaSeconds"),
        wide("PRIORITY", "integer", ".spec.priority"),
    ];
    with_versions(
        ImageListPullJob::crd(),
        &[("v1beta1", &columns), ("v1alpha1", &columns)],
    )
}

fn node_image() -> CustomResourceDefinition {
    let columns = [
        column("DESIRED", "integer", ".status.desired"),
        column("PULLING", "integer", ".status.pulling"),
        column("SUCCEED", "integer", ".status.succeeded"),
        column("FAILED", "integer", ".status.failed"),
        age(),
        wide("WAITING", "integer", ".status.waiting"),
        wide("RUNTIME", "string", ".status.agent.runtime"),
        wide("AGENT", "string", ".status.agent.version"),
    ];
    let mut crd = NodeImage::crd();
    // A NodeImage is born empty: an object without a spec is one with an empty spec.
    edit_schema(&mut crd, |root| {
        root["required"] = json!([]);
        root["properties"]["spec"]["default"] = json!({});
    });
    with_versions(crd, &[("v1beta1", &columns), ("v1alpha1", &columns)])
}

fn image_pre_pull_job() -> CustomResourceDefinition {
    let columns = |name: &str, path: &str| {
        [
            column(name, "string", path),
            column("NODES", "integer", ".status.desired"),
            column("DONE", "integer", ".status.succeeded"),
            column("FAILED", "integer", ".status.failed"),
            age(),
            wide("REASON", "string", ".status.reason"),
            wide("ETA", "integer", ".status.etaSeconds"),
            wide("PRIORITY", "integer", ".spec.imagePrePullTemplate.priority"),
        ]
    };
    with_versions(
        ImagePrePullJob::crd(),
        &[
            ("v1alpha2", &columns("PHASE", ".status.phase")),
            ("v1alpha1", &columns("STATE", ".status.state")),
        ],
    )
}

/// Serves one schema under several versions; the first is the stored one.
fn with_versions(
    mut crd: CustomResourceDefinition,
    versions: &[(&str, &[CustomResourceColumnDefinition])],
) -> CustomResourceDefinition {
    edit_schema(&mut crd, |root| {
        schema::without_nullable(root);
        schema::bound_int32(root);
    });
    let derived = crd.spec.versions.remove(0);
    crd.spec.versions = versions
        .iter()
        .enumerate()
        .map(|(position, (name, columns))| CustomResourceDefinitionVersion {
            name: (*name).to_owned(),
            served: true,
            storage: position == 0,
            additional_printer_columns: Some(columns.to_vec()),
            ..derived.clone()
        })
        .collect();
    crd
}

/// Changes the schema of the one derived version, as JSON.
#[expect(clippy::expect_used, reason = "invariant: a schema that serde wrote, serde reads")]
fn edit_schema(crd: &mut CustomResourceDefinition, edit: impl FnOnce(&mut Value)) {
    let derived = crd
        .spec
        .versions
        .first_mut()
        .and_then(|version| version.schema.as_mut());
    let validation = derived.expect("invariant: the derive macro writes one version with a schema");
    let mut json = serde_json::to_value(&validation.open_api_v3_schema).expect("invariant: a schema is JSON");
    edit(&mut json);
    let schema: JSONSchemaProps = serde_json::from_value(json).expect("invariant: an edited schema is a schema");
    validation.open_api_v3_schema = Some(schema);
}

fn column(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// A column that only `kubectl get -o wide` shows.
fn wide(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        priority: Some(1),
        ..column(name, type_, json_path)
    }
}

fn age() -> CustomResourceColumnDefinition {
    column("AGE", "date", ".metadata.creationTimestamp")
}
