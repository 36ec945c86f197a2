//! What the controller may do, and for what it needs each of it.

use larder_api::names::{
    KRUISE_DAEMON, KRUISE_GROUP, KRUISE_MUTATING_WEBHOOKS, KRUISE_VALIDATING_WEBHOOKS, KUBEEDGE_GROUP,
};
use serde_json::Value;

use crate::object::{self, Rule};
use crate::{AGENT, CONTROLLER, NODE_GATE, POLICY, Settings, WARM_WORKLOADS};

const READ: &[&str] = &["get", "list", "watch"];

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    vec![
        object::service_account(settings, CONTROLLER),
        object::cluster_role(CONTROLLER, &cluster_rules(settings)),
        object::cluster_role_binding(settings, CONTROLLER),
        object::role(settings, CONTROLLER, &own_namespace_rules(settings)),
        object::role_binding(settings, CONTROLLER),
    ]
}

fn cluster_rules(settings: &Settings) -> Vec<Rule> {
    let mut rules = vec![
        // Which nodes there are, and on which of them the pods of a podSelector run.
        Rule::new("", &["nodes", "pods"], READ),
        // Events stand in the namespace of their job, those of a NodeImage in `default`; a repeated one is counted up.
        Rule::new("events.k8s.io", &["events"], &["create", "patch"]),
        // Whether the CRDs are ours. By name: other people's schemas are large, and no business of ours.
        Rule::new("apiextensions.k8s.io", &["customresourcedefinitions"], READ).only(crd_names()),
        // A job loses the finalizer of the software it was written for, and is deleted when its TTL is over.
        Rule::new(
            KRUISE_GROUP,
            &["imagelistpulljobs"],
            &["get", "list", "watch", "patch", "delete"],
        ),
        Rule::new(
            KUBEEDGE_GROUP,
            &["imageprepulljobs"],
            &["get", "list", "watch", "patch", "delete"],
        ),
        // The same, and a list job creates its children.
        Rule::new(
            KRUISE_GROUP,
            &["imagepulljobs"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        // Where OwnerReferencesPermissionEnforcement is on, a child may block its parent's deletion only with this.
        Rule::new(KRUISE_GROUP, &["imagelistpulljobs/finalizers"], &["update"]),
        Rule::new(
            KRUISE_GROUP,
            &["imagepulljobs/status", "imagelistpulljobs/status"],
            &["patch"],
        ),
        Rule::new(KUBEEDGE_GROUP, &["imageprepulljobs/status"], &["patch"]),
        // One NodeImage per Node. Not its status: that is the agent's.
        Rule::new(
            KRUISE_GROUP,
            &["nodeimages"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
    ];
    rules.extend(rival_rules(READ));
    if settings.image_pull_jobs {
        // Pull secrets, in whatever namespace a job names them; by name only, never listed.
        rules.push(Rule::new("", &["secrets"], &["get"]));
        // A change of the policy, on which it depends whether logins are sent to nodes.
        let policy = &["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        rules.push(Rule::new("admissionregistration.k8s.io", policy, READ).only(vec![POLICY.to_owned()]));
    }
    rules
}

/// What the controller may do beside that if it keeps jobs for labelled workloads.
pub(crate) fn warm_workloads(settings: &Settings) -> Vec<Value> {
    let rules = [
        // Their pod templates.
        Rule::new("", &["namespaces"], READ),
        Rule::new("apps", &["deployments", "statefulsets", "daemonsets"], READ),
        Rule::new("batch", &["cronjobs"], READ),
        // The pull secrets that pods get from their account. By name only.
        Rule::new("", &["serviceaccounts"], &["get"]),
        // The other verbs are granted for every list job.
        Rule::new(KRUISE_GROUP, &["imagelistpulljobs"], &["create"]),
    ];
    let controller = object::account(settings, CONTROLLER);
    vec![
        object::cluster_role(WARM_WORKLOADS, &rules),
        object::cluster_role_binding_to(WARM_WORKLOADS, WARM_WORKLOADS, &controller),
    ]
}

/// What the controller may do beside that if new nodes wait for images.
pub(crate) fn node_gate(settings: &Settings) -> Vec<Value> {
    // The start-up taint, and the condition that says what is waited for. RBAC cannot grant less of a Node.
    let rules = [Rule::new("", &["nodes", "nodes/status"], &["patch"])];
    let controller = object::account(settings, CONTROLLER);
    vec![
        object::cluster_role(NODE_GATE, &rules),
        object::cluster_role_binding_to(NODE_GATE, NODE_GATE, &controller),
    ]
}

/// Whether OpenKruise serves these kinds, too. By name.
pub(crate) fn rival_rules(verbs: &'static [&'static str]) -> [Rule; 2] {
    let webhooks = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let of_kruise = [KRUISE_MUTATING_WEBHOOKS, KRUISE_VALIDATING_WEBHOOKS];
    [
        Rule::new("apps", &["daemonsets"], verbs).only(vec![KRUISE_DAEMON.to_owned()]),
        Rule::new("admissionregistration.k8s.io", webhooks, verbs).only(of_kruise.map(str::to_owned).into()),
    ]
}

fn own_namespace_rules(settings: &Settings) -> Vec<Rule> {
    let mut rules = vec![
        // The Lease. `create` cannot be narrowed to a name, because an object to be created has none yet when RBAC looks.
        Rule::new("coordination.k8s.io", &["leases"], &["create"]),
        Rule::new("coordination.k8s.io", &["leases"], &["get", "update"]).only(vec![CONTROLLER.to_owned()]),
    ];
    if settings.image_pull_jobs {
        // To try, as an agent without a node, whether the policy is enforced. An agent can read NodeImages and write statuses;
        // the controller can do the former anyway, and the policy refuses the latter.
        rules.push(Rule::new("", &["serviceaccounts"], &["impersonate"]).only(vec![AGENT.to_owned()]));
    }
    rules
}

pub(crate) fn crd_names() -> Vec<String> {
    larder_api::crds()
        .into_iter()
        .filter_map(|crd| crd.metadata.name)
        .collect()
}
