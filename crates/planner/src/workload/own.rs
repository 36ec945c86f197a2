//! Which objects of a namespace count. A ReplicaSet of a Deployment has the Deployment's template or an old one, and a Job
//! that is over starts no pods any more.

use serde_json::Value;

use super::group_of;

/// Whether an object has pods of its own: no other workload of the namespace stands for it, and it may still start pods.
pub fn has_pods_of_its_own(object: &Value) -> bool {
    if !object["metadata"]["deletionTimestamp"].is_null() || is_over(object) {
        return false;
    }
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let Some(owner) = owners.find(|owner| owner["controller"] == true) else {
        return true;
    };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    // Other kinds of owners are not read themselves. Of what they control, that without replicas is history.
    !stands_for_others(group_of(text("apiVersion")), text("kind")) && object["spec"]["replicas"] != 0
}

/// Whether objects that this kind controls are left out: it is read itself, or, as a Node with its static pods, has what it
/// needs.
fn stands_for_others(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "ReplicationController" | "Node"),
        "apps" => matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet"),
        "batch" => matches!(kind, "Job" | "CronJob"),
        _ => false,
    }
}

fn is_over(object: &Value) -> bool {
    let status = &object["status"];
    match object["kind"].as_str() {
        Some("Pod") => matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")),
        Some("Job") => {
            let conditions = status["conditions"].as_array();
            let ends = |condition: &Value| {
                matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
            };
            conditions.into_iter().flatten().any(ends)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn owned(by: (&str, &str), replicas: u32) -> Value {
        let owner = json!({"apiVersion": by.0, "kind": by.1, "name": "x", "uid": "u", "controller": true});
        json!({"kind": "ReplicaSet", "metadata": {"ownerReferences": [owner]}, "spec": {"replicas": replicas}})
    }

    #[rstest]
    #[case::deployment(json!({"kind": "Deployment", "spec": {"replicas": 0}}), true)]
    #[case::of_a_deployment(owned(("apps/v1", "Deployment"), 3), false)]
    #[case::of_a_cron_job(owned(("batch/v1", "CronJob"), 1), false)]
    #[case::static_pod(owned(("v1", "Node"), 1), false)]
    #[case::of_another_project(owned(("argoproj.io/v1alpha1", "Rollout"), 3), true)]
    #[case::history_of_another_project(owned(("argoproj.io/v1alpha1", "Rollout"), 0), false)]
    #[case::owned_but_not_controlled(json!({"kind": "Pod", "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}}), true)]
    #[case::leaving(json!({"kind": "Pod", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false)]
    #[case::running_pod(json!({"kind": "Pod", "status": {"phase": "Running"}}), true)]
    #[case::pod_that_is_over(json!({"kind": "Pod", "status": {"phase": "Succeeded"}}), false)]
    #[case::running_job(json!({"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "False"}]}}), true)]
    #[case::job_that_is_over(json!({"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}}), false)]
    #[case::job_that_failed(json!({"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True"}]}}), false)]
    fn counts(#[case] object: Value, #[case] want: bool) {
        assert_eq!(has_pods_of_its_own(&object), want);
    }
}
