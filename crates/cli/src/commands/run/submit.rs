//! Creates the objects of a file: jobs, and what stands beside them (a Secret, a Namespace).

use kube::api::{DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use larder_api::names::{KRUISE_GROUP, KUBEEDGE_GROUP};
use serde_json::Value;

use crate::failure::Failure;
use crate::manifest::Document;

/// A job that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// Creates everything, in the order of the file, and returns the jobs.
pub(crate) async fn all(client: &Client, documents: &[Document]) -> Result<Vec<Submitted>, Failure> {
    let mut jobs = Vec::new();
    for document in documents {
        let created = one(client, document).await?;
        jobs.extend(is_job(document).then_some(created));
    }
    Ok(jobs)
}

fn is_job(document: &Document) -> bool {
    let group = document.text("/apiVersion").split('/').next().unwrap_or_default();
    matches!(
        (group, document.text("/kind")),
        (KRUISE_GROUP, "ImagePullJob" | "ImageListPullJob") | (KUBEEDGE_GROUP, "ImagePrePullJob")
    )
}

/// What the API server would make of a job: its defaults and its refusals, without creating it.
pub(crate) async fn try_out(client: &Client, document: &Document) -> Result<Value, Failure> {
    let mut nameless = document.clone();
    // Whether a job of that name exists makes no difference to what it would do.
    if let Some(metadata) = nameless.object["metadata"].as_object_mut() {
        metadata.remove("name");
        metadata.insert("generateName".to_owned(), "larder-plan-".into());
    }
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = create(client, &nameless, &document.title(), &parameters).await?;
    serde_json::to_value(created).map_err(|error| Failure::wrong(format!("{}: {error}", document.place)))
}

async fn one(client: &Client, document: &Document) -> Result<Submitted, Failure> {
    let created = create(client, document, &document.title(), &PostParams::default()).await?;
    Ok(Submitted {
        kind: document.text("/kind").to_owned(),
        namespace: created.namespace(),
        name: created.name_any(),
    })
}

async fn create(
    client: &Client,
    document: &Document,
    title: &str,
    parameters: &PostParams,
) -> Result<DynamicObject, Failure> {
    let doing = format!("{}: creating {title}", document.place);
    let object: DynamicObject = serde_json::from_value(document.object.clone())
        .map_err(|error| Failure::wrong(format!("{}: {error}", document.place)))?;
    let (group, version) = match document.text("/apiVersion").split_once('/') {
        Some(parts) => parts,
        None => ("", document.text("/apiVersion")),
    };
    let kind = GroupVersionKind::gvk(group, version, document.text("/kind"));
    let found = discovery::pinned_kind(client, &kind).await;
    let (resource, capabilities) = found.map_err(|error| Failure::from_api(&doing, &error))?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    match api.create(parameters, &object).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::wrong(format!(
            "{doing}: it exists already; delete it, or give the job another name"
        ))),
        Err(error) => Err(Failure::from_api(&doing, &error)),
    }
}
