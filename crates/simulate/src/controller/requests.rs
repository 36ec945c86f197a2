//! What the engine asks for as calls, objects as what it observes, and responses as its results.

use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_controller::core::read_secret;
use larder_controller::engine::{
    GateWrite, GateWriteResult, Job, JobTarget, JobWrite, JobWriteResult, NodeWrite, NodeWriteResult, SecretRead,
    WatchEvent, WatchKind,
};
use larder_controller::facts::{GateFacts, NodeFacts, PodFacts};
use larder_controller::kinds::{self, KindId};
use larder_controller::lists::{ListTarget, ListWrite, ListWriteResult};
use larder_planner::kruise::PullJobs;
use larder_planner::kubeedge::PrePullJobs;
use larder_planner::node_gate::GateStep;
use larder_planner::{NodeKey, SecretRef};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Call, Key, Kind, Response, Shared};
use crate::kubernetes;
use crate::stream::Scope;

/// A write or read that the engine asked for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Node(NodeKey, NodeWrite),
    Job(JobTarget, JobWrite),
    List(ListTarget, ListWrite),
    Secret(SecretRef),
    Event,
    /// What a new node waits for, its release, or the end of its taint.
    Gate(NodeKey, GateWrite),
}

impl Request {
    pub(crate) fn class(&self) -> usize {
        match self {
            Self::Node(..) => 0,
            Self::Job(..) | Self::List(..) => 1,
            Self::Secret(_) => 2,
            Self::Event => 3,
            Self::Gate(..) => 4,
        }
    }

    /// The call that carries it out.
    pub(crate) fn call(&self) -> Call {
        match self {
            Self::Event => Call::Event,
            Self::Gate(node, write) => {
                let key = Key::cluster(Kind::Node, node);
                match write.what {
                    GateStep::Condition(_) => Call::Conditions(key, write.patch.clone()),
                    GateStep::RemoveTaint => Call::JsonPatch(key, write.patch.clone()),
                }
            }
            Self::Secret(secret) => Call::Get(Key::new(Kind::Secret, &secret.namespace, &secret.name)),
            Self::Node(node, write) => {
                let key = node_image_key(node);
                match write {
                    NodeWrite::Create(object) => Call::Create(Kind::NodeImage, json_of(object)),
                    NodeWrite::Delete { uid } => Call::Delete { key, uid: uid.clone() },
                    NodeWrite::Patch(patch) => Call::JsonPatch(key, patch.clone()),
                    NodeWrite::Read => Call::Get(key),
                }
            }
            Self::Job(target, write) => {
                let key = job_key(target);
                match write {
                    JobWrite::Status(patch) => Call::JsonPatchStatus(key, patch.clone()),
                    JobWrite::Patch(patch) => Call::JsonPatch(key, patch.clone()),
                    JobWrite::Delete => Call::Delete {
                        key,
                        uid: Some(target.uid.clone()),
                    },
                }
            }
            Self::List(target, write) => {
                let key = Key::new(Kind::ListJob, &target.key.namespace, &target.key.name);
                match write {
                    ListWrite::Status(patch) => Call::JsonPatchStatus(key, patch.clone()),
                    ListWrite::Delete => Call::Delete {
                        key,
                        uid: Some(target.uid.clone()),
                    },
                    ListWrite::CreateChild(child) => Call::Create(Kind::PullJob, json_of(child)),
                    ListWrite::DeleteChild { child, uid } => Call::Delete {
                        key: Key::new(Kind::PullJob, &child.namespace, &child.name),
                        uid: Some(uid.clone()),
                    },
                }
            }
        }
    }
}

pub(super) fn watch_kind(scope: &Scope) -> Option<WatchKind> {
    Some(match scope {
        Scope::All(Kind::Node) => WatchKind::Node,
        Scope::All(Kind::NodeImage) => WatchKind::NodeImage,
        Scope::All(Kind::PullJob) => WatchKind::Job(KindId::of::<PullJobs>()?),
        Scope::All(Kind::PrePullJob) => WatchKind::Job(KindId::of::<PrePullJobs>()?),
        Scope::All(Kind::ListJob) => WatchKind::ParentJob,
        Scope::Namespace(Kind::Pod, namespace) => WatchKind::Pods(namespace.clone()),
        Scope::All(Kind::Pod | Kind::Secret) | Scope::Namespace(..) | Scope::Name(..) => return None,
    })
}

/// A job of either kind, as the engine holds it.
fn job_of(object: &Shared) -> Result<Option<Box<dyn Job>>, serde_json::Error> {
    match object.key.kind {
        Kind::PullJob => ImagePullJob::deserialize(&object.value).map(kinds::job::<PullJobs>),
        Kind::PrePullJob => ImagePrePullJob::deserialize(&object.value).map(kinds::job::<PrePullJobs>),
        Kind::Node | Kind::NodeImage | Kind::ListJob | Kind::Pod | Kind::Secret => Ok(None),
    }
}

pub(super) fn shown(object: &Shared) -> WatchEvent {
    let unreadable = |why: String| {
        let reference = ObjectReference {
            name: Some(object.key.name.clone()),
            namespace: Some(object.key.namespace.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        };
        WatchEvent::Unreadable(Box::new(reference), why)
    };
    match object.key.kind {
        Kind::Node => WatchEvent::Node(NodeFacts::of_gated(kubernetes::node(&object.value))),
        Kind::Pod => WatchEvent::Pod(PodFacts::of(kubernetes::pod(&object.value))),
        Kind::PullJob | Kind::PrePullJob => match job_of(object) {
            Ok(Some(job)) => WatchEvent::Job(job),
            Ok(None) => unreadable("the kind is not served".to_owned()),
            Err(error) => unreadable(error.to_string()),
        },
        Kind::ListJob => match ImageListPullJob::deserialize(&object.value) {
            Ok(list) => WatchEvent::ParentJob(Box::new(list)),
            Err(error) => unreadable(error.to_string()),
        },
        Kind::NodeImage | Kind::Secret => {
            WatchEvent::NodeImage(Box::new(object.node_image.clone().unwrap_or_default()))
        }
    }
}

pub(super) fn node_result(write: &NodeWrite, response: Response) -> NodeWriteResult {
    match (write, response) {
        // The object that a refused creation was followed by a read of.
        (NodeWrite::Create(_), Response::NotFound) => NodeWriteResult::Refused("refused".to_owned()),
        (NodeWrite::Delete { .. }, Response::Done) | (_, Response::NotFound) => NodeWriteResult::Absent,
        (_, Response::Object(object)) => match &object.node_image {
            Some(image) => NodeWriteResult::Object(Box::new(image.clone())),
            None => NodeWriteResult::Unknown,
        },
        (_, Response::Refused(why)) => NodeWriteResult::Refused(why),
        (_, Response::Done | Response::Unknown) => NodeWriteResult::Unknown,
    }
}

pub(super) fn job_result(write: &JobWrite, response: Response) -> JobWriteResult {
    match (response, write) {
        (Response::NotFound, _) | (Response::Done, JobWrite::Delete) => JobWriteResult::Absent,
        (Response::Object(object), _) => match job_of(&object) {
            Ok(Some(job)) => JobWriteResult::Object(job),
            Ok(None) | Err(_) => JobWriteResult::Failed("the response cannot be read".to_owned()),
        },
        (Response::Refused(why), _) => JobWriteResult::Failed(why),
        (Response::Done | Response::Unknown, _) => JobWriteResult::Failed("no response".to_owned()),
    }
}

pub(super) fn list_result(write: &ListWrite, response: Response) -> ListWriteResult {
    let unreadable = || ListWriteResult::Failed("the response cannot be read".to_owned());
    match (write, response) {
        (ListWrite::DeleteChild { child, .. }, Response::Done | Response::NotFound) => {
            ListWriteResult::ChildGone(child.clone())
        }
        (ListWrite::CreateChild(_), Response::NotFound) => ListWriteResult::Failed("the namespace is gone".to_owned()),
        (ListWrite::CreateChild(_), Response::Object(object)) => ImagePullJob::deserialize(&object.value)
            .map_or_else(|_| unreadable(), |child| ListWriteResult::Child(Box::new(child))),
        (ListWrite::CreateChild(_), Response::Unknown | Response::Done) => {
            ListWriteResult::CreationUnknown("no response".to_owned())
        }
        (ListWrite::Delete, Response::Done) | (_, Response::NotFound) => ListWriteResult::Absent,
        (_, Response::Object(object)) => ImageListPullJob::deserialize(&object.value)
            .map_or_else(|_| unreadable(), |list| ListWriteResult::List(Box::new(list))),
        (_, Response::Refused(why)) => ListWriteResult::Failed(why),
        (_, Response::Done | Response::Unknown) => ListWriteResult::Failed("no response".to_owned()),
    }
}

pub(super) fn secret_read(response: &Response) -> SecretRead {
    match response {
        Response::Object(object) => read_secret(&kubernetes::secret(&object.value)),
        Response::NotFound => SecretRead::Missing,
        Response::Refused(_) | Response::Done | Response::Unknown => SecretRead::Failed,
    }
}

pub(super) fn job_key(target: &JobTarget) -> Key {
    let kind = if Some(target.key.kind) == KindId::of::<PrePullJobs>() {
        Kind::PrePullJob
    } else {
        Kind::PullJob
    };
    Key::new(kind, &target.key.namespace, &target.key.name)
}

pub(super) fn gate_result(response: &Response) -> GateWriteResult {
    match response {
        Response::Object(object) => Ok(GateFacts::of(&kubernetes::node(&object.value))),
        Response::Refused(why) => Err(why.clone()),
        Response::NotFound => Err("there is no such Node".to_owned()),
        Response::Done | Response::Unknown => Err("no response".to_owned()),
    }
}

pub(super) fn node_image_key(node: &NodeKey) -> Key {
    Key::cluster(Kind::NodeImage, node)
}

fn json_of(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|_| json!({}))
}
