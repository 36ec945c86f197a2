//! A cluster with Larder's RBAC and policy applied, and the identities that knock at it.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use larder_access::{AGENT, Settings, manifests};
use larder_api::NodeImage;
use larder_testkit::{Access, ControlPlane, KubernetesVersion, unique_name, wait_for};
use serde_json::json;

/// Namespace of the ServiceAccounts.
pub(crate) const NAMESPACE: &str = "larder-system";

/// Which only a cluster with Kubernetes 1.30 or newer takes.
pub(crate) const POLICY_FILE: &str = "30-agent-own-node.yaml";

/// A group that has the agents' role.
const WRITERS: &str = "writers-of-status";

/// A control plane that all tests of this crate share and no other crate does: its policy refuses what others do.
pub(crate) async fn shared() -> Access {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    install(&access, &Settings::default()).await;
    access
}

/// Our CRDs, marked so that the control plane is not shared with tests that know no policy.
fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = larder_api::crds();
    let mark = ("tests".to_owned(), "access".to_owned());
    crds[0].metadata.annotations.get_or_insert_default().extend([mark]);
    crds
}

/// Applies everything that this version of Kubernetes serves, and waits until the policy is in force if it is one of it.
pub(crate) async fn install(access: &Access, settings: &Settings) {
    let client = access.client().unwrap();
    let has_policy = KubernetesVersion::tested().enforces_node_policy();
    let manifests = manifests(settings).into_iter();
    let manifests = manifests.filter(|manifest| has_policy || manifest.file != POLICY_FILE);
    for object in manifests.flat_map(|manifest| manifest.objects) {
        apply(&client, serde_json::from_value(object).unwrap()).await;
    }
    bind(&client, WRITERS, "Group", WRITERS, AGENT).await;
    if !has_policy {
        return;
    }
    let probe = writer(access, "probe");
    let node = node(&client, &unique_name("probe")).await;
    wait_for(
        Duration::from_secs(30),
        "the policy to be in force",
        async || match write_status(&probe, &node).await {
            Ok(()) => Err("a user who is no node may still write a status".to_owned()),
            Err(kube::Error::Api(status)) if status.message.contains("names no node") => Ok(()),
            Err(error) => Err(error.to_string()),
        },
    )
    .await
    .unwrap();
}

/// A user who may do what an agent may, without a node in the token.
pub(crate) fn writer(access: &Access, user: &str) -> Client {
    access.client_as(user, &[WRITERS]).unwrap()
}

/// Binds a ClusterRole to a user or a group.
pub(crate) async fn bind(client: &Client, name: &str, kind: &str, subject: &str, role: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject }],
    });
    apply(client, serde_json::from_value(binding).unwrap()).await;
}

pub(crate) async fn apply(client: &Client, object: DynamicObject) {
    let types: &TypeMeta = object.types.as_ref().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural(&kind.kind));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply("access-tests").force();
    api.patch(&object.name_any(), &parameters, &Patch::Apply(&object))
        .await
        .unwrap_or_else(|error| panic!("{} {}: {error}", kind.kind, object.name_any()));
}

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{lower}s"),
    }
}

/// Creates a Node and its NodeImage; gives back the name.
pub(crate) async fn node(client: &Client, name: &str) -> String {
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let order: NodeImage = serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "NodeImage",
        "metadata": { "name": name },
        "spec": {},
    }))
    .unwrap();
    let orders = Api::<NodeImage>::all(client.clone());
    orders.create(&PostParams::default(), &order).await.unwrap();
    name.to_owned()
}

/// What an agent does: a merge patch of the status.
pub(crate) async fn write_status(client: &Client, node: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "status": { "agent": { "version": unique_name("v") } } }));
    let orders = Api::<NodeImage>::all(client.clone());
    orders
        .patch_status(node, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// The agent of this node, with a token bound to the Node.
pub(crate) async fn agent_of(access: &Access, node: &str) -> Client {
    let token = access
        .service_account_token(NAMESPACE, AGENT, Some(node))
        .await
        .unwrap();
    access.client_with_token(&token).unwrap()
}

/// The agent of this node, with the token that its Pod gets.
pub(crate) async fn agent_in_pod_on(access: &Access, node: &str) -> Client {
    let client = access.client().unwrap();
    let name = unique_name("agent");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "serviceAccountName": AGENT,
            "containers": [{ "name": "agent", "image": "agent" }],
        },
    }))
    .unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(name),
                uid: pod.metadata.uid,
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client, NAMESPACE);
    let answer = accounts
        .create_token_request(AGENT, &PostParams::default(), &request)
        .await
        .unwrap();
    access.client_with_token(&answer.status.unwrap().token).unwrap()
}

/// The sentence of a refusal; panics if it was none.
pub(crate) fn forbidden<T>(answer: Result<T, kube::Error>) -> String {
    match answer {
        Ok(_) => panic!("this should have been refused"),
        Err(kube::Error::Api(status)) if status.code == 403 => status.message.clone(),
        Err(error) => panic!("this should have been forbidden: {error}"),
    }
}
