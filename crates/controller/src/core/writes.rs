//! The calls to the API server: each with a time limit, a bounded number of each class at a time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, ResourceExt as _};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_planner::NodeKey;
use larder_registry::docker_config::DockerConfig;
use serde_json::Value;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tracing::{debug, error, warn};

use super::metrics::{Metrics, Outcome};
use crate::error_chain::chain;
use crate::index::{JobKey, NodeAction, NodeAnswer, Note, ObjectAction, ObjectAnswer, SecretAnswer, SecretKey, Target};

/// No call takes longer; what became of a write that does is found out by reading.
const CALL: Duration = Duration::from_secs(5);

/// Who writes Events.
const REPORTER: &str = "larder-controller";

/// A class of calls.
pub(super) type Class = usize;

/// Something to be read or written.
pub(super) enum Request {
    Node(NodeKey, NodeAction),
    Object(Target, ObjectAction),
    Secret(SecretKey),
    Note(Note),
}

impl Request {
    pub(super) const NODE: Class = 0;
    pub(super) const OBJECT: Class = 1;
    pub(super) const SECRET: Class = 2;
    pub(super) const NOTE: Class = 3;

    fn class(&self) -> Class {
        match self {
            Request::Node(..) => Self::NODE,
            Request::Object(..) => Self::OBJECT,
            Request::Secret(_) => Self::SECRET,
            Request::Note(_) => Self::NOTE,
        }
    }

    /// What is answered if the call ends without an answer.
    fn lost(&self) -> Answer {
        match self {
            Request::Node(node, _) => Answer::Node(node.clone(), NodeAnswer::Unknown),
            Request::Object(target, _) => {
                let why = "the call ended abnormally; the controller's log has the details".to_owned();
                Answer::Object(target.clone(), ObjectAnswer::Failed(why))
            }
            Request::Secret(key) => Answer::Secret(key.clone(), SecretAnswer::Failed),
            Request::Note(_) => Answer::Note,
        }
    }
}

/// Calls of each class at a time. NodeImages are the bulk of the work; Events must never stand in its way.
const ROOM: [usize; 4] = [64, 16, 8, 4];

/// How a request ended.
pub(super) enum Answer {
    Node(NodeKey, NodeAnswer),
    Object(Target, ObjectAnswer),
    Secret(SecretKey, SecretAnswer),
    Note,
}

/// The calls that are under way.
pub(super) struct Writes {
    client: Client,
    tasks: JoinSet<Answer>,
    /// Which class each call is of, and what is answered in its place if it panics: whoever asked waits for an answer.
    under_way: HashMap<Id, (Class, Answer)>,
    counts: [usize; 4],
    metrics: Metrics,
}

impl Writes {
    pub(super) fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            client,
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            counts: [0; 4],
            metrics,
        }
    }

    pub(super) fn has_room(&self, class: Class) -> bool {
        self.counts[class] < ROOM[class]
    }

    pub(super) fn send(&mut self, request: Request) {
        let (class, lost) = (request.class(), request.lost());
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let task = match request {
            Request::Node(node, action) => self.tasks.spawn(async move {
                let answer = node_image(client, &node, action, &metrics).await;
                Answer::Node(node, answer)
            }),
            Request::Object(target, action) => self.tasks.spawn(async move {
                let answer = object(client, &target, action, &metrics).await;
                Answer::Object(target, answer)
            }),
            Request::Secret(key) => self.tasks.spawn(async move {
                let answer = secret(client, &key, &metrics).await;
                Answer::Secret(key, answer)
            }),
            Request::Note(note) => self.tasks.spawn(async move {
                write_note(client, note, &metrics).await;
                Answer::Note
            }),
        };
        self.counts[class] += 1;
        self.under_way.insert(task.id(), (class, lost));
    }

    /// The next answer; None while nothing is under way.
    pub(super) async fn answered(&mut self) -> Option<Answer> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(answer) = self.ended(ended) {
                return Some(answer);
            }
        }
    }

    /// An answer that is there.
    pub(super) fn answered_already(&mut self) -> Option<Answer> {
        loop {
            let ended = self.tasks.try_join_next_with_id()?;
            if let Some(answer) = self.ended(ended) {
                return Some(answer);
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, Answer), JoinError>) -> Option<Answer> {
        let (id, answer) = match ended {
            Ok((id, answer)) => (id, Some(answer)),
            Err(error) => {
                error!(error = %error, "a call ended abnormally; this is a bug");
                (error.id(), None)
            }
        };
        let (class, lost) = self.under_way.remove(&id)?;
        self.counts[class] -= 1;
        Some(answer.unwrap_or(lost))
    }

    /// Waits for what is under way; each call has its own limit.
    pub(super) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// How a call to the API server ended.
enum Called<T> {
    Done(T),
    Absent,
    Refused(String),
    /// Right after its start an API server does not know its own roles yet: this passes, or a person has to act.
    Forbidden(String),
    Unknown(String),
}

async fn call<T>(what: &'static str, metrics: &Metrics, future: impl Future<Output = kube::Result<T>>) -> Called<T> {
    let called = match timeout(CALL, future).await {
        Err(_) => Called::Unknown("no answer within five seconds".to_owned()),
        Ok(Ok(value)) => Called::Done(value),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Called::Absent,
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
            warn!(
                call = what,
                message = status.message,
                "the API server does not let the controller do this"
            );
            Called::Forbidden(status.message.clone())
        }
        Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
            Called::Refused(status.message.clone())
        }
        Ok(Err(error)) => Called::Unknown(chain(&error)),
    };
    metrics.count(
        what,
        match &called {
            Called::Done(_) => Outcome::Done,
            Called::Absent => Outcome::Absent,
            Called::Refused(_) => Outcome::Refused,
            Called::Forbidden(_) | Called::Unknown(_) => Outcome::Unknown,
        },
    );
    called
}

async fn node_image(client: Client, node: &NodeKey, action: NodeAction, metrics: &Metrics) -> NodeAnswer {
    let api = Api::<NodeImage>::all(client);
    let called = match action {
        NodeAction::Create(object) => {
            match call("nodeimage_create", metrics, api.create(&PostParams::default(), &object)).await {
                // Somebody was faster.
                Called::Refused(_) => call("nodeimage_get", metrics, api.get(node)).await,
                called => called,
            }
        }
        NodeAction::Delete { uid } => {
            let deleted = call("nodeimage_delete", metrics, api.delete(node, &delete(uid))).await;
            return match deleted {
                Called::Done(_) | Called::Absent => NodeAnswer::Absent,
                Called::Refused(message) => NodeAnswer::Refused(message),
                Called::Forbidden(error) | Called::Unknown(error) => unknown(node, &error),
            };
        }
        NodeAction::Patch(patch) => match json_patch(patch) {
            Some(patch) => {
                call(
                    "nodeimage_patch",
                    metrics,
                    api.patch(node, &PatchParams::default(), &patch),
                )
                .await
            }
            None => Called::Refused("the patch cannot be read".to_owned()),
        },
        NodeAction::Look => call("nodeimage_get", metrics, api.get(node)).await,
    };
    match called {
        Called::Done(object) => NodeAnswer::Object(Box::new(object)),
        Called::Absent => NodeAnswer::Absent,
        Called::Refused(message) => NodeAnswer::Refused(message),
        Called::Forbidden(error) | Called::Unknown(error) => unknown(node, &error),
    }
}

fn unknown(node: &NodeKey, error: &str) -> NodeAnswer {
    debug!(
        node = &**node,
        error, "nobody knows whether a NodeImage was written; it is read again"
    );
    NodeAnswer::Unknown
}

fn json_patch(patch: Value) -> Option<Patch<NodeImage>> {
    serde_json::from_value(patch).ok().map(Patch::Json)
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

async fn object(client: Client, target: &Target, action: ObjectAction, metrics: &Metrics) -> ObjectAnswer {
    let params = PatchParams::default();
    match target {
        Target::Job(key) => {
            let api = Api::<ImagePullJob>::namespaced(client, &key.namespace);
            job(api, &key.name, action, metrics, ObjectAnswer::Job).await
        }
        Target::PrePull(key) => {
            let api = Api::<ImagePrePullJob>::all(client);
            job(api, &key.name, action, metrics, ObjectAnswer::PrePull).await
        }
        Target::List(key) => {
            let lists = Api::<ImageListPullJob>::namespaced(client.clone(), &key.namespace);
            let jobs = Api::<ImagePullJob>::namespaced(client, &key.namespace);
            match action {
                ObjectAction::Status(patch) => {
                    let patch = Patch::Merge(patch);
                    answer(
                        call("list_status", metrics, lists.patch_status(&key.name, &params, &patch)).await,
                        ObjectAnswer::List,
                    )
                }
                ObjectAction::CreateChild(child) => {
                    let created = call("child_create", metrics, jobs.create(&PostParams::default(), &child)).await;
                    match created {
                        Called::Absent => ObjectAnswer::Failed("the namespace is gone".to_owned()),
                        created => answer(created, ObjectAnswer::Job),
                    }
                }
                ObjectAction::DeleteChild { child, uid } => delete_child(jobs, child, uid, metrics).await,
                ObjectAction::Delete { uid } => deleted(lists, &key.name, uid, metrics).await,
                ObjectAction::Patch(_) => ObjectAnswer::Failed("a list is not patched".to_owned()),
            }
        }
    }
}

/// Writes a job that pulls by itself.
async fn job<K>(
    api: Api<K>,
    name: &str,
    action: ObjectAction,
    metrics: &Metrics,
    done: impl FnOnce(Box<K>) -> ObjectAnswer,
) -> ObjectAnswer
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::default();
    let called = match action {
        ObjectAction::Status(patch) => {
            let patch = Patch::Merge(patch);
            call("job_status", metrics, api.patch_status(name, &params, &patch)).await
        }
        ObjectAction::Patch(patch) => match serde_json::from_value(patch) {
            Ok(patch) => call("job_patch", metrics, api.patch(name, &params, &Patch::<K>::Json(patch))).await,
            Err(error) => Called::Refused(error.to_string()),
        },
        ObjectAction::Delete { uid } => return deleted(api, name, uid, metrics).await,
        ObjectAction::CreateChild(_) | ObjectAction::DeleteChild { .. } => {
            Called::Refused("a job has no children".to_owned())
        }
    };
    answer(called, done)
}

async fn delete_child(jobs: Api<ImagePullJob>, child: JobKey, uid: String, metrics: &Metrics) -> ObjectAnswer {
    let params = delete(Some(uid));
    match call("child_delete", metrics, jobs.delete(&child.name, &params)).await {
        Called::Done(_) | Called::Absent => ObjectAnswer::ChildGone(child),
        Called::Refused(error) | Called::Forbidden(error) | Called::Unknown(error) => ObjectAnswer::Failed(error),
    }
}

async fn deleted<K>(api: Api<K>, name: &str, uid: String, metrics: &Metrics) -> ObjectAnswer
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match call("job_delete", metrics, api.delete(name, &delete(Some(uid)))).await {
        Called::Done(_) | Called::Absent => ObjectAnswer::Absent,
        Called::Refused(error) | Called::Forbidden(error) | Called::Unknown(error) => ObjectAnswer::Failed(error),
    }
}

fn answer<K>(called: Called<K>, done: impl FnOnce(Box<K>) -> ObjectAnswer) -> ObjectAnswer {
    match called {
        Called::Done(object) => done(Box::new(object)),
        Called::Absent => ObjectAnswer::Absent,
        Called::Refused(error) | Called::Forbidden(error) | Called::Unknown(error) => ObjectAnswer::Failed(error),
    }
}

async fn secret(client: Client, key: &SecretKey, metrics: &Metrics) -> SecretAnswer {
    let api = Api::<Secret>::namespaced(client, &key.namespace);
    match call("secret_get", metrics, api.get(&key.name)).await {
        Called::Done(secret) => read_secret(&secret),
        Called::Absent => SecretAnswer::Missing,
        Called::Forbidden(_) => SecretAnswer::Forbidden,
        Called::Refused(error) | Called::Unknown(error) => {
            warn!(
                namespace = key.namespace,
                secret = key.name,
                error,
                "a pull secret could not be read"
            );
            SecretAnswer::Failed
        }
    }
}

/// Credentials of a Secret of either docker type, and which state of it they come from.
pub(crate) fn read_secret(secret: &Secret) -> SecretAnswer {
    let data = |name: &str| secret.data.as_ref().and_then(|data: &BTreeMap<_, _>| data.get(name));
    let config = match (data(".dockerconfigjson"), data(".dockercfg")) {
        (Some(json), _) => DockerConfig::from_config_json(&json.0).ok(),
        (None, Some(json)) => DockerConfig::from_legacy_cfg(&json.0).ok(),
        (None, None) => None,
    };
    let Some(config) = config else {
        return SecretAnswer::Unreadable;
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
    SecretAnswer::Present {
        source: format!("{uid}@{version}"),
        entries: config.entries,
    }
}

/// Each Event is one of its own: a Recorder that lives longer would count those of one reason on one object as the same,
/// and show the text of the first alone. Their number is bounded before they come here.
async fn write_note(client: Client, note: Note, metrics: &Metrics) {
    let reporter = Reporter {
        controller: REPORTER.to_owned(),
        instance: None,
    };
    let recorder = Recorder::new(client, reporter);
    let event = Event {
        type_: if note.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: note.reason.to_owned(),
        note: Some(note.text.chars().take(1_000).collect()),
        action: "Pull".to_owned(),
        secondary: None,
    };
    let published = call("event", metrics, recorder.publish(&event, &note.subject.0)).await;
    if let Called::Refused(error) | Called::Forbidden(error) | Called::Unknown(error) = published {
        debug!(error, "an Event could not be written");
    }
}

#[cfg(test)]
mod tests;
