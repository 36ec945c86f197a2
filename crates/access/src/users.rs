//! What people may do with jobs: the cluster's own roles `view`, `edit` and `admin` grow by this.
//!
//! NodeImages are cluster-wide work orders and stay read-only: write access controls what that node pulls.

use larder_api::names::{KRUISE_GROUP, KUBEEDGE_GROUP};
use serde_json::{Value, json};

use crate::object::{self, Rule};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

pub(crate) fn objects() -> Vec<Value> {
    vec![
        aggregated(
            "larder-view",
            &["view"],
            &[
                Rule::new(
                    KRUISE_GROUP,
                    &["imagepulljobs", "imagelistpulljobs", "nodeimages"],
                    READ,
                ),
                Rule::new(KUBEEDGE_GROUP, &["imageprepulljobs"], READ),
            ],
        ),
        aggregated(
            "larder-edit",
            &["edit", "admin"],
            &[
                Rule::new(KRUISE_GROUP, &["imagepulljobs", "imagelistpulljobs"], WRITE),
                Rule::new(KUBEEDGE_GROUP, &["imageprepulljobs"], WRITE),
            ],
        ),
    ]
}

fn aggregated(name: &str, into: &[&str], rules: &[Rule]) -> Value {
    let mut role = object::cluster_role(name, rules);
    for one in into {
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{one}")] = json!("true");
    }
    role
}
