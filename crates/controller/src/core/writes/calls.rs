//! The single calls to the API server, each with a time limit, and what counts as their result.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt as _};
use larder_api::{ImageListPullJob, ImagePullJob, NodeImage};
use larder_planner::dialect::Dialect;
use larder_planner::node_gate::GateStep;
use larder_planner::{NodeKey, SecretRef};
use larder_registry::docker_config::DockerConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::super::metrics::{CallOutcome, Metrics};
use crate::engine::{
    GateWrite, GateWriteResult, JobTarget, JobWrite, JobWriteResult, NewEvent, NodeWrite, NodeWriteResult, SecretRead,
    TypedJob,
};
use crate::error_chain::chain;
use crate::facts::GateFacts;
use crate::lists::{ListTarget, ListWrite, ListWriteResult};
use crate::policy_probe::{Probe, try_policy};

/// No call takes longer; what became of a write that does is found out by reading.
const CALL: Duration = Duration::from_secs(5);

/// Who writes Events.
const REPORTER: &str = "larder-controller";

/// How a call to the API server ended.
enum CallResult<T> {
    Done(T),
    Absent,
    Refused(String),
    /// Right after its start an API server does not know its own roles yet: this passes, or a person has to act.
    Forbidden(String),
    Unknown(String),
}

async fn call<T>(
    what: &'static str,
    metrics: &Metrics,
    future: impl Future<Output = kube::Result<T>>,
) -> CallResult<T> {
    let called = match timeout(CALL, future).await {
        Err(_) => CallResult::Unknown("no answer within five seconds".to_owned()),
        Ok(Ok(value)) => CallResult::Done(value),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => CallResult::Absent,
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
            if let Some(calls) = metrics.forbidden.warning_due(what, Instant::now()) {
                warn!(
                    call = what,
                    calls,
                    message = status.message,
                    "the API server does not let the controller do this"
                );
            }
            CallResult::Forbidden(status.message.clone())
        }
        Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
            CallResult::Refused(status.message.clone())
        }
        Ok(Err(error)) => CallResult::Unknown(chain(&error)),
    };
    metrics.count(
        what,
        match &called {
            CallResult::Done(_) => CallOutcome::Done,
            CallResult::Absent => CallOutcome::Absent,
            CallResult::Refused(_) => CallOutcome::Refused,
            CallResult::Forbidden(_) | CallResult::Unknown(_) => CallOutcome::Unknown,
        },
    );
    called
}

pub(super) async fn write_node_image(
    client: Client,
    node: &NodeKey,
    write: NodeWrite,
    metrics: &Metrics,
) -> NodeWriteResult {
    let api = Api::<NodeImage>::all(client);
    let called = match write {
        NodeWrite::Create(object) => {
            match call("nodeimage_create", metrics, api.create(&PostParams::default(), &object)).await {
                // Another writer may have been faster.
                CallResult::Refused(refusal) => match call("nodeimage_get", metrics, api.get(node)).await {
                    CallResult::Absent => CallResult::Refused(refusal),
                    called => called,
                },
                called => called,
            }
        }
        NodeWrite::Delete { uid } => {
            let deleted = call("nodeimage_delete", metrics, api.delete(node, &delete(uid))).await;
            return match deleted {
                CallResult::Done(_) | CallResult::Absent => NodeWriteResult::Absent,
                CallResult::Refused(message) => NodeWriteResult::Refused(message),
                CallResult::Forbidden(error) | CallResult::Unknown(error) => unknown(node, &error),
            };
        }
        NodeWrite::Patch(patch) => match json_patch::<NodeImage>(patch) {
            Ok(patch) => {
                let params = PatchParams::default();
                call("nodeimage_patch", metrics, api.patch(node, &params, &patch)).await
            }
            Err(refusal) => CallResult::Refused(refusal),
        },
        NodeWrite::Read => call("nodeimage_get", metrics, api.get(node)).await,
    };
    match called {
        CallResult::Done(object) => NodeWriteResult::Object(Box::new(object)),
        CallResult::Absent => NodeWriteResult::Absent,
        CallResult::Refused(message) => NodeWriteResult::Refused(message),
        CallResult::Forbidden(error) | CallResult::Unknown(error) => unknown(node, &error),
    }
}

fn unknown(node: &NodeKey, error: &str) -> NodeWriteResult {
    debug!(
        node = &**node,
        error, "nobody knows whether a NodeImage was written; it is read again"
    );
    NodeWriteResult::Unknown
}

fn json_patch<T: Serialize>(patch: Value) -> Result<Patch<T>, String> {
    let patch = serde_json::from_value(patch).map_err(|error| format!("the patch cannot be read: {error}"))?;
    Ok(Patch::Json(patch))
}

fn delete(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// Writes a job's own object.
pub(crate) async fn write_job<D>(client: Client, target: JobTarget, write: JobWrite, metrics: Metrics) -> JobWriteResult
where
    D: Dialect,
    D::Object: DeserializeOwned,
{
    let JobTarget { key, uid } = target;
    let api = api_of::<D::Object>(client, &key.namespace);
    let params = PatchParams::default();
    let called = match write {
        JobWrite::Status(patch) => match json_patch::<DynamicObject>(patch) {
            Ok(patch) => call("job_status", &metrics, api.patch_status(&key.name, &params, &patch)).await,
            Err(refusal) => CallResult::Refused(refusal),
        },
        JobWrite::Patch(patch) => match json_patch::<DynamicObject>(patch) {
            Ok(patch) => call("job_patch", &metrics, api.patch(&key.name, &params, &patch)).await,
            Err(refusal) => CallResult::Refused(refusal),
        },
        JobWrite::Delete => {
            let deleted = call("job_delete", &metrics, api.delete(&key.name, &delete(Some(uid)))).await;
            return match deleted {
                CallResult::Done(_) | CallResult::Absent => JobWriteResult::Absent,
                CallResult::Refused(error) | CallResult::Forbidden(error) | CallResult::Unknown(error) => {
                    JobWriteResult::Failed(error)
                }
            };
        }
    };
    match called {
        CallResult::Done(object) => match object.try_parse::<D::Object>() {
            Ok(object) => JobWriteResult::Object(TypedJob::<D>::boxed(key.kind, object)),
            Err(error) => JobWriteResult::Failed(error.to_string()),
        },
        CallResult::Absent => JobWriteResult::Absent,
        CallResult::Refused(error) | CallResult::Forbidden(error) | CallResult::Unknown(error) => {
            JobWriteResult::Failed(error)
        }
    }
}

/// The objects of a kind, in a namespace if the kind has one. Whether it does is known by the job alone, not by its type.
fn api_of<K: Resource<DynamicType = ()>>(client: Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    if namespace.is_empty() {
        Api::all_with(client, &resource)
    } else {
        Api::namespaced_with(client, namespace, &resource)
    }
}

/// Writes a list job or one of its children.
pub(super) async fn write_list(
    client: Client,
    target: &ListTarget,
    write: ListWrite,
    metrics: &Metrics,
) -> ListWriteResult {
    let ListTarget { key, uid } = target;
    let lists = Api::<ImageListPullJob>::namespaced(client.clone(), &key.namespace);
    let jobs = Api::<ImagePullJob>::namespaced(client, &key.namespace);
    match write {
        ListWrite::Status(patch) => {
            let params = PatchParams::default();
            let called = match json_patch::<ImageListPullJob>(patch) {
                Ok(patch) => call("list_status", metrics, lists.patch_status(&key.name, &params, &patch)).await,
                Err(refusal) => CallResult::Refused(refusal),
            };
            match called {
                CallResult::Done(list) => ListWriteResult::List(Box::new(list)),
                other => list_result(other, ListWriteResult::Absent),
            }
        }
        ListWrite::CreateChild(child) => {
            match call("child_create", metrics, jobs.create(&PostParams::default(), &child)).await {
                CallResult::Done(child) => ListWriteResult::Child(Box::new(child)),
                CallResult::Unknown(error) => ListWriteResult::CreationUnknown(error),
                other => list_result(other, ListWriteResult::Failed("the namespace is gone".to_owned())),
            }
        }
        ListWrite::DeleteChild { child, uid } => {
            let params = delete(Some(uid));
            match call("child_delete", metrics, jobs.delete(&child.name, &params)).await {
                CallResult::Done(_) => ListWriteResult::ChildGone(child),
                other => list_result(other, ListWriteResult::ChildGone(child)),
            }
        }
        ListWrite::Delete => {
            let params = delete(Some(uid.clone()));
            match call("job_delete", metrics, lists.delete(&key.name, &params)).await {
                CallResult::Done(_) => ListWriteResult::Absent,
                other => list_result(other, ListWriteResult::Absent),
            }
        }
    }
}

fn list_result<T>(called: CallResult<T>, absent: ListWriteResult) -> ListWriteResult {
    match called {
        CallResult::Done(_) | CallResult::Absent => absent,
        CallResult::Refused(error) | CallResult::Forbidden(error) | CallResult::Unknown(error) => {
            ListWriteResult::Failed(error)
        }
    }
}

/// Writes a Node: a condition, or its taints.
pub(super) async fn write_node(
    client: Client,
    node: &NodeKey,
    write: &GateWrite,
    metrics: &Metrics,
) -> GateWriteResult {
    let api = Api::<Node>::all(client);
    let params = PatchParams::default();
    let called = match &write.what {
        GateStep::Condition(_) => {
            let patch = Patch::Strategic(&write.patch);
            call("node_status", metrics, api.patch_status(node, &params, &patch)).await
        }
        GateStep::RemoveTaint => match json_patch::<Node>(write.patch.clone()) {
            Ok(patch) => call("node_patch", metrics, api.patch(node, &params, &patch)).await,
            Err(refusal) => CallResult::Refused(refusal),
        },
    };
    match called {
        CallResult::Done(node) => Ok(GateFacts::of(&node)),
        CallResult::Absent => Err("there is no such Node".to_owned()),
        CallResult::Refused(error) | CallResult::Forbidden(error) | CallResult::Unknown(error) => Err(error),
    }
}

/// A refusal is what is hoped for, so this is not counted as other calls are.
pub(super) async fn probe_policy(client: Client, node: &NodeKey, agent: &str, metrics: &Metrics) -> (Probe, String) {
    let tried = timeout(CALL, try_policy(&client, node, agent)).await;
    let (probe, answer) = tried.unwrap_or((Probe::NoAnswer, "no answer within five seconds".to_owned()));
    let outcome = match probe {
        Probe::Refused | Probe::Accepted => CallOutcome::Done,
        Probe::Inconclusive => CallOutcome::Refused,
        Probe::NoAnswer => CallOutcome::Unknown,
    };
    metrics.count("policy_probe", outcome);
    (probe, answer)
}

pub(super) async fn get_secret(client: Client, secret: &SecretRef, metrics: &Metrics) -> SecretRead {
    let api = Api::<Secret>::namespaced(client, &secret.namespace);
    match call("secret_get", metrics, api.get(&secret.name)).await {
        CallResult::Done(secret) => read_secret(&secret),
        CallResult::Absent => SecretRead::Missing,
        CallResult::Forbidden(_) => SecretRead::Forbidden,
        CallResult::Refused(error) | CallResult::Unknown(error) => {
            warn!(%secret, error, "a pull secret could not be read");
            SecretRead::Failed
        }
    }
}

/// Credentials of a Secret of either docker type, and which state of it they come from.
pub fn read_secret(secret: &Secret) -> SecretRead {
    let data = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.as_slice());
    let Some(config) = DockerConfig::from_secret(data) else {
        return SecretRead::Unreadable;
    };
    for broken in &config.broken {
        warn!(
            secret = secret.name_any(),
            error = chain(broken),
            "an entry of a pull secret cannot be used"
        );
    }
    let version = secret.resource_version().unwrap_or_default();
    let uid = secret.uid().unwrap_or_default();
    SecretRead::Present {
        source: format!("{uid}@{version}"),
        entries: config.entries,
    }
}

/// Each Event is one of its own: a Recorder that lives longer would count those of one reason on one object as the same,
/// and show the text of the first alone. Their number is bounded before they come here.
pub(super) async fn write_event(client: Client, event: NewEvent, metrics: &Metrics) {
    let reporter = Reporter {
        controller: REPORTER.to_owned(),
        instance: None,
    };
    let recorder = Recorder::new(client, reporter);
    let written = Event {
        type_: if event.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_owned(),
        note: Some(event.text.chars().take(1_000).collect()),
        action: "Pull".to_owned(),
        secondary: None,
    };
    let published = call("event", metrics, recorder.publish(&written, &event.subject)).await;
    if let CallResult::Refused(error) | CallResult::Forbidden(error) | CallResult::Unknown(error) = published {
        debug!(error, "an Event could not be written");
    }
}

#[cfg(test)]
mod tests;
