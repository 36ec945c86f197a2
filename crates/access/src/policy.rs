//! Who may write the status of a NodeImage: the node it belongs to, the controller, and administrators.
//!
//! An administrator is a subject to whom RBAC grants the verb [`BYPASS_VERB`], which agents do not have; `cluster-admin` has
//! all verbs. Administrators can read every Secret, so that refusing them would protect nothing. An identity that CloudCore
//! uses for edge nodes never counts as one: whatever rights it has, an edge node could make use of them.
//!
//! Below Kubernetes 1.30 tokens have no node claim and the policy is left out.

use larder_api::names::KRUISE_GROUP;
use serde_json::{Value, json};

use crate::{BYPASS_VERB, CLOUD_CORE_USER, CONTROLLER, KubeEdge, NODE_CLAIM, POLICY, Settings, object};

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    vec![policy(settings), binding()]
}

fn policy(settings: &Settings) -> Value {
    let claim = format!(
        "has(request.userInfo.extra) && '{NODE_CLAIM}' in request.userInfo.extra ? request.userInfo.extra['{NODE_CLAIM}'] : []"
    );
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": object::cluster_wide(POLICY),
        "spec": {
            // A rule that cannot be evaluated refuses: a status that is late does less harm than one that is forged.
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [KRUISE_GROUP],
                    "apiVersions": ["*"],
                    // A patch, too, is an UPDATE here; a status cannot be created, for that the object must be there.
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["nodeimages/status"],
                    "scope": "Cluster",
                }],
            },
            "variables": [
                { "name": "user", "expression": "request.userInfo.username" },
                { "name": "node", "expression": "object.metadata.name" },
                { "name": "boundTo", "expression": claim },
                { "name": "isController", "expression": format!("variables.user == '{}'", controller_user(settings)) },
                { "name": "isCloudCore", "expression": format!("variables.user == '{CLOUD_CORE_USER}'") },
                { "name": "isAdministrator", "expression": administrator() },
            ],
            "validations": [{
                "expression": allowed(settings),
                "messageExpression": refusal(),
                "reason": "Forbidden",
            }],
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": object::cluster_wide(POLICY),
        "spec": { "policyName": POLICY, "validationActions": ["Deny"] },
    })
}

fn allowed(settings: &Settings) -> String {
    let mut writers = vec![
        "variables.isController",
        "variables.boundTo == [variables.node]",
        "variables.user == 'system:node:' + variables.node",
    ];
    if settings.kube_edge == KubeEdge::CloudCore {
        writers.push("variables.isCloudCore");
    }
    // The last one, so that RBAC is asked for none of the agents' writes.
    writers.push("variables.isAdministrator");
    writers.join(" || ")
}

fn administrator() -> String {
    format!(
        "!variables.isCloudCore && !variables.user.startsWith('system:node:') && \
         authorizer.group('{KRUISE_GROUP}').resource('nodeimages').subresource('status').name(variables.node)\
         .check('{BYPASS_VERB}').allowed()"
    )
}

/// Which sentence the refused writer reads. Each says what to change.
fn refusal() -> String {
    let bound_elsewhere = "'the token of ' + variables.user + ' is bound to node ' + variables.boundTo[0] + \
                           ' and may write only the status of that NodeImage, not of ' + variables.node";
    let cloud_core = "'CloudCore uses its own identity, so the node that writes is unknown: turn on the authorization of \
                      CloudHub, or accept CloudCore for all edge nodes in the settings of Larder, which then sends them no \
                      credentials'";
    let other_node = "variables.user + ' may write only the status of its own NodeImage, not of ' + variables.node";
    let unbound = format!(
        "'the token of ' + variables.user + ' names no node. Only the agent on node ' + variables.node + \
         ' may write the status of its NodeImage: run the agent in a pod, whose token names the node from Kubernetes 1.30 on, \
         or, to repair it by hand, use an account to which RBAC grants the verb {BYPASS_VERB} on nodeimages/status, \
         or make a token with: kubectl create token SERVICEACCOUNT --bound-object-kind Node --bound-object-name ' + \
         variables.node"
    );
    format!(
        "variables.boundTo.size() > 0 ? {bound_elsewhere} \
         : variables.isCloudCore ? {cloud_core} \
         : variables.user.startsWith('system:node:') ? {other_node} \
         : {unbound}"
    )
}

fn controller_user(settings: &Settings) -> String {
    format!("system:serviceaccount:{}:{CONTROLLER}", settings.namespace)
}
