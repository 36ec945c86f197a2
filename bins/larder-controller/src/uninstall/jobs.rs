//! Leaves no job behind that cannot be deleted, or that seems to run.
//!
//! Jobs are read without their types: one that nobody can make sense of must not keep the others from being freed.

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use larder_api::conditions::{COMPLETE, FAILED, PROGRESSING};
use larder_api::names::{KRUISE_FINALIZER, KUBEEDGE_FINALIZER};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::errand::{ErrandError, ask};

const REASON: &str = "Uninstalled";

const MESSAGE: &str = "Larder was uninstalled; the job goes on when it is installed again";

/// Frees the jobs of the API groups that are ours to clean up.
pub(super) async fn release(client: &Client, is_ours: fn(&str) -> bool) -> Result<(), ErrandError> {
    let now = now();
    for crd in larder_api::crds() {
        let names = &crd.spec.names;
        let Some(version) = crd.spec.versions.iter().find(|version| version.storage) else {
            continue;
        };
        if names.kind == "NodeImage" || !is_ours(&crd.spec.group) {
            continue;
        }
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
        let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let jobs = match ask(format!("list {}", names.plural), all.list(&ListParams::default())).await {
            Ok(jobs) => jobs.items,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        for job in jobs {
            let namespace = job.namespace().unwrap_or_default();
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
            release_one(&api, &names.kind, &job, &now).await;
        }
    }
    Ok(())
}

/// What fails for one job is said, and the others go on.
async fn release_one(api: &Api<DynamicObject>, kind: &str, job: &DynamicObject, now: &str) {
    let name = job.name_any();
    match free(api, kind, job, now).await {
        Err(error) if !error.is_not_found() => {
            let error = larder_controller::error_chain::chain(&error);
            warn!(kind, job = name, error, "a job could not be freed");
        }
        _ => {}
    }
}

async fn free(api: &Api<DynamicObject>, kind: &str, job: &DynamicObject, now: &str) -> Result<(), ErrandError> {
    let name = job.name_any();
    let parameters = PatchParams::default();
    // Status first: a job that is being deleted is gone without its finalizer.
    let written = match waiting(job, now) {
        Some(patch) => {
            let patch = Patch::Merge(&patch);
            let request = api.patch_status(&name, &parameters, &patch);
            Some(ask(format!("write the status of {kind} {name}"), request).await?)
        }
        None => None,
    };
    if let Some(patch) = without_finalizers(written.as_ref().unwrap_or(job)) {
        let patch = Patch::Merge(&patch);
        let request = api.patch(&name, &parameters, &patch);
        drop(ask(format!("take the finalizer off {kind} {name}"), request).await?);
        info!(kind, job = name, "a finalizer is taken off");
    }
    Ok(())
}

/// The finalizers of the two softwares that our kinds come from, taken off; those of anybody else stay.
fn without_finalizers(job: &DynamicObject) -> Option<Value> {
    let all = job.finalizers();
    let theirs = |finalizer: &&String| [KRUISE_FINALIZER, KUBEEDGE_FINALIZER].contains(&finalizer.as_str());
    let left: Vec<&String> = all.iter().filter(|finalizer| !theirs(finalizer)).collect();
    // Guarded by the version that was read: a list is replaced as a whole.
    let version = job.resource_version();
    (left.len() < all.len()).then(|| json!({ "metadata": { "finalizers": left, "resourceVersion": version } }))
}

/// The status of a job that has not ended: it waits for Larder.
fn waiting(job: &DynamicObject, now: &str) -> Option<Value> {
    let status = job.data.get("status")?;
    let conditions = status.get("conditions")?.as_array()?;
    let is_true = |kind: &str| {
        conditions
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    if is_true(COMPLETE) || is_true(FAILED) {
        return None;
    }
    let mut left: Vec<Value> = conditions
        .iter()
        .filter(|condition| condition["type"] != PROGRESSING)
        .cloned()
        .collect();
    left.push(json!({
        "type": PROGRESSING,
        "status": "False",
        "reason": REASON,
        "message": MESSAGE,
        "lastTransitionTime": now,
    }));
    let mut patch = json!({ "status": { "conditions": left } });
    if status.get("message").is_some() {
        patch["status"]["message"] = json!(MESSAGE);
    }
    Some(patch)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this program that writes a time, for people to read"
)]
fn now() -> String {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())
        .unwrap_or_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn with_condition(kind: &str, status: &str) -> DynamicObject {
        job(json!({
            "metadata": { "name": "a" },
            "status": { "message": "running", "conditions": [{ "type": kind, "status": status }] },
        }))
    }

    #[test]
    fn a_job_under_way_says_that_it_waits() {
        let patch = waiting(&with_condition(PROGRESSING, "True"), "2026-01-01T00:00:00Z").unwrap();
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(conditions[0]["reason"], REASON);
        assert_eq!(patch["status"]["message"], MESSAGE);
    }

    #[test]
    fn a_job_that_ended_keeps_its_result() {
        assert_eq!(waiting(&with_condition(COMPLETE, "True"), "now"), None);
        assert_eq!(waiting(&with_condition(FAILED, "True"), "now"), None);
    }

    #[test]
    fn only_known_finalizers_are_taken_off() {
        let metadata = json!({ "name": "a", "resourceVersion": "7", "finalizers": ["mine/keep", KRUISE_FINALIZER] });
        let patch = without_finalizers(&job(json!({ "metadata": metadata }))).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["mine/keep"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let metadata = json!({ "name": "a", "finalizers": ["mine/keep"] });
        assert_eq!(without_finalizers(&job(json!({ "metadata": metadata }))), None);
    }
}
