//! Workloads, ServiceAccounts and nodes as the cluster has them.

use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, ObjectList};
use kube::{Api, Client, ResourceExt};
use larder_planner::workload::WorkloadNodes;
use larder_planner::workload::kinds::{KINDS, WorkloadKind};
use larder_planner::workload::own::has_pods_of_its_own;
use serde_json::Value;

use crate::failure::Failure;
use crate::manifest::Document;
use crate::output;

/// Objects in one answer.
const PAGE: u32 = 500;

/// One object of the namespace in use.
pub(super) async fn object(client: &Client, kind: &WorkloadKind, name: &str) -> Result<Document, Failure> {
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource(kind));
    let word = kind.word();
    match api.get(name).await {
        Ok(object) => document(kind, object),
        Err(error) if is_missing(&error) => Err(Failure::wrong(format!(
            "there is no {word} {name} in the namespace {}; give --namespace for another one",
            client.default_namespace()
        ))),
        Err(error) => Err(Failure::from_api(&format!("reading {word} {name}"), &error)),
    }
}

/// All objects of a namespace that have pods of their own.
pub(super) async fn namespace(client: &Client, name: &str) -> Result<Vec<Document>, Failure> {
    let mut found = Vec::new();
    for kind in &KINDS {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), name, &resource(kind));
        let objects = match all(&api).await {
            Ok(objects) => objects,
            // Embedded mode has no kinds but Pod.
            Err(error) if is_missing(&error) => Vec::new(),
            Err(error) => {
                let doing = format!("listing the {} of the namespace {name}", kind.plural);
                return Err(Failure::from_api(&doing, &error));
            }
        };
        for object in objects {
            let document = document(kind, object)?;
            found.extend(has_pods_of_its_own(&document.object).then_some(document));
        }
    }
    if found.is_empty() {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        if matches!(namespaces.get(name).await, Err(error) if is_missing(&error)) {
            return Err(Failure::wrong(format!("there is no namespace {name}")));
        }
    }
    Ok(found)
}

/// A ServiceAccount; None if there is none. One that may not be read is said.
pub(super) async fn service_account(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ServiceAccount>, Failure> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    match api.get(name).await {
        Ok(account) => Ok(Some(account)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            output::note(&format!(
                "the pull secrets of the ServiceAccount {namespace}/{name} are not used: {}",
                status.message
            ));
            Ok(None)
        }
        Err(error) => Err(Failure::from_api(
            &format!("reading the ServiceAccount {namespace}/{name}"),
            &error,
        )),
    }
}

/// The names of the matching nodes; None if they may not be listed.
pub(super) async fn node_names(client: &Client, matching: &WorkloadNodes) -> Result<Option<Vec<String>>, Failure> {
    let nodes = match all(&Api::<Node>::all(client.clone())).await {
        Ok(nodes) => nodes,
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        Err(error) => return Err(Failure::from_api("listing the nodes", &error)),
    };
    let matches = |node: &&Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        matching.contain(&node.name_any(), node.labels(), taints.unwrap_or_default())
    };
    Ok(Some(nodes.iter().filter(matches).map(ResourceExt::name_any).collect()))
}

async fn all<K>(api: &Api<K>) -> kube::Result<Vec<K>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut found = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let ObjectList { metadata, items, .. } = api.list(&parameters).await?;
        found.extend(items);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn resource(kind: &WorkloadKind) -> ApiResource {
    let named = GroupVersionKind::gvk(kind.group, "v1", kind.name);
    ApiResource::from_gvk_with_plural(&named, kind.plural)
}

/// The object with its kind, which objects in lists do not have.
fn document(kind: &WorkloadKind, object: DynamicObject) -> Result<Document, Failure> {
    let place = format!("{}/{}", kind.word(), object.name_any());
    let failed = |error: serde_json::Error| Failure::wrong(format!("{place}: {error}"));
    let mut object = serde_json::to_value(object).map_err(failed)?;
    object["apiVersion"] = Value::String(kind.api_version());
    object["kind"] = Value::String(kind.name.to_owned());
    Ok(Document { place, object })
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
