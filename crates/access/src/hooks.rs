//! What the two jobs may do that a chart runs around Larder's life: one brings the CRDs, one cleans up before Larder goes.
//! Their rights are there only as long as they run.

use larder_api::names::{KRUISE_GROUP, KUBEEDGE_GROUP};
use serde_json::Value;

use crate::object::{self, Rule};
use crate::{CONTROLLER, INSTALLER, Settings, UNINSTALLER, controller};

/// Before an install or upgrade.
pub(crate) fn installer(settings: &Settings) -> Vec<Value> {
    let crds = &["customresourcedefinitions"];
    let rules = [
        // Server-side apply is a patch that also needs `create`, here with the name of the object.
        Rule::new("apiextensions.k8s.io", crds, &["get", "create", "patch"]).only(controller::crd_names()),
    ];
    // While OpenKruise serves these kinds, its CRDs stay.
    let rules = rules.into_iter().chain(controller::rival_rules(&["get"]));
    let rules: Vec<Rule> = rules.collect();
    vec![
        object::service_account(settings, INSTALLER),
        object::cluster_role(INSTALLER, &rules),
        object::cluster_role_binding(settings, INSTALLER),
    ]
}

/// Before an uninstall.
pub(crate) fn uninstaller(settings: &Settings) -> Vec<Value> {
    let cluster = [
        // All orders are withdrawn; then the objects go.
        Rule::new(KRUISE_GROUP, &["nodeimages"], &["list", "patch", "delete"]),
        // Finalizers are taken off, and jobs under way say that nobody serves them any more.
        Rule::new(
            KRUISE_GROUP,
            &["imagepulljobs", "imagelistpulljobs"],
            &["list", "patch"],
        ),
        Rule::new(KUBEEDGE_GROUP, &["imageprepulljobs"], &["list", "patch"]),
        Rule::new(
            KRUISE_GROUP,
            &["imagepulljobs/status", "imagelistpulljobs/status"],
            &["patch"],
        ),
        Rule::new(KUBEEDGE_GROUP, &["imageprepulljobs/status"], &["patch"]),
    ];
    // While OpenKruise serves these kinds, they are not ours to clean up.
    let cluster = cluster.into_iter().chain(controller::rival_rules(&["get"]));
    let cluster: Vec<Rule> = cluster.collect();
    let only_controller = || vec![CONTROLLER.to_owned()];
    let own_namespace = [
        // The controller is stopped first, and its Lease held, so that it does not hand out anew.
        Rule::new("apps", &["deployments/scale"], &["patch"]).only(only_controller()),
        Rule::new("coordination.k8s.io", &["leases"], &["create"]),
        Rule::new("coordination.k8s.io", &["leases"], &["get", "update", "delete"]).only(only_controller()),
    ];
    vec![
        object::service_account(settings, UNINSTALLER),
        object::cluster_role(UNINSTALLER, &cluster),
        object::cluster_role_binding(settings, UNINSTALLER),
        object::role(settings, UNINSTALLER, &own_namespace),
        object::role_binding(settings, UNINSTALLER),
    ]
}
