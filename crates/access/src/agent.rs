//! What an agent may do. That the status is its own node's is the policy's part.

use larder_api::names::KRUISE_GROUP;
use serde_json::{Value, json};

use crate::object::{self, Rule};
use crate::{AGENT, KubeEdge, Settings};

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let mut objects = vec![
        object::service_account(settings, AGENT),
        object::cluster_role(AGENT, &rules()),
        object::cluster_role_binding(settings, AGENT),
    ];
    match settings.kube_edge {
        KubeEdge::Absent => {}
        KubeEdge::NodeIdentity => objects.push(object::cluster_role_binding_to(
            "larder-agent-edge-nodes",
            AGENT,
            &object::group("system:nodes"),
        )),
        KubeEdge::CloudCore => objects.push(for_cloud_core()),
    }
    objects
}

fn rules() -> Vec<Rule> {
    vec![
        Rule::new(KRUISE_GROUP, &["nodeimages"], &["get", "list", "watch"]),
        Rule::new(KRUISE_GROUP, &["nodeimages/status"], &["patch"]),
    ]
}

/// CloudCore's role is made of all ClusterRoles with this label.
fn for_cloud_core() -> Value {
    let mut role = object::cluster_role("larder-agent-cloudcore", &rules());
    role["metadata"]["labels"]["rbac/aggregate-to-cloudcore"] = json!("true");
    role
}
