//! The simulated API server: objects with uid, resource version and generation, patches with preconditions, deletion with
//! finalizers. Every change is kept until the world has shown it to the watches and the checks.

mod patch;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use jiff::Timestamp;
use larder_api::NodeImage;
use serde::Deserialize as _;
use serde_json::{Value, json};

pub(crate) use self::patch::Refusal;

/// The kinds that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    NodeImage,
    PullJob,
    ListJob,
    PrePullJob,
    Pod,
    Secret,
}

impl Kind {
    /// Whether the API server counts generations and keeps status apart.
    fn is_custom(self) -> bool {
        !matches!(self, Self::Node | Self::Pod | Self::Secret)
    }
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn cluster(kind: Kind, name: &str) -> Self {
        Self::new(kind, "", name)
    }
}

/// One state of one object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) value: Value,
    /// The object as the agents and the checks read it, if it is a NodeImage.
    pub(crate) node_image: Option<NodeImage>,
}

impl Object {
    pub(crate) fn is_leaving(&self) -> bool {
        self.value["metadata"]["deletionTimestamp"].is_string()
    }
}

/// A state that watches, agents and checks share.
pub(crate) type Shared = Rc<Object>;

/// A request to the API server.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Get(Key),
    Create(Kind, Value),
    /// A JSON patch of the object without its status.
    JsonPatch(Key, Value),
    /// A JSON patch of the status alone.
    JsonPatchStatus(Key, Value),
    /// A merge patch of the object without its status.
    Merge(Key, Value),
    /// A strategic merge patch of a Node's conditions.
    Conditions(Key, Value),
    Delete {
        key: Key,
        uid: Option<String>,
    },
    /// An Event, which nobody reads.
    Event,
}

impl Call {
    /// The object that is to be written; None for one that only reads or has no object of its own.
    pub(crate) fn writes(&self) -> Option<&Key> {
        match self {
            Self::JsonPatch(key, _)
            | Self::JsonPatchStatus(key, _)
            | Self::Merge(key, _)
            | Self::Conditions(key, _)
            | Self::Delete { key, .. } => Some(key),
            Self::Get(_) | Self::Create(..) | Self::Event => None,
        }
    }
}

/// How a request ended, as its sender learns it.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Object(Shared),
    /// Deleted, or an Event that was written.
    Done,
    NotFound,
    /// A conflict, a failed test of a patch, or an object that is refused.
    Refused(String),
    /// Nothing came back, or an error that says nothing about the request.
    Unknown,
}

/// Who changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A replica of the controller. `late`: its sender has given the request up, or does not lead any more.
    Controller {
        late: bool,
    },
    Agent,
    /// A person, the kubelet or the garbage collector.
    Other,
}

/// One change, for the watches and the checks.
pub(crate) struct Change {
    pub(crate) before: Option<Shared>,
    pub(crate) after: Option<Shared>,
    pub(crate) writer: Writer,
}

impl Change {
    /// The newer of both states.
    pub(crate) fn object(&self) -> Option<&Shared> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// The API server.
#[derive(Default)]
pub(crate) struct Api {
    objects: BTreeMap<Key, Shared>,
    version: u64,
    uids: u64,
    changes: VecDeque<Change>,
}

impl Api {
    pub(crate) fn get(&self, key: &Key) -> Option<&Shared> {
        self.objects.get(key)
    }

    /// Everything of a kind, in order.
    pub(crate) fn list(&self, kind: Kind) -> impl Iterator<Item = &Shared> {
        let from = Key::cluster(kind, "");
        self.objects
            .range(from..)
            .take_while(move |(key, _)| key.kind == kind)
            .map(|(_, object)| object)
    }

    /// The next change that nobody was shown yet.
    pub(crate) fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Carries out a request.
    pub(crate) fn call(&mut self, call: &Call, writer: Writer, now: Timestamp) -> Response {
        let done = match call {
            Call::Event => return Response::Done,
            Call::Get(key) => self.objects.get(key).cloned().ok_or(Refusal::NotFound),
            Call::Create(kind, value) => self.create(*kind, value, writer, now),
            Call::Delete { key, uid } => return self.delete(key, uid.as_deref(), writer, now),
            Call::JsonPatch(key, operations) => self.change(key, writer, |object| {
                patch::json(object, operations, key.kind.is_custom())
            }),
            Call::JsonPatchStatus(key, operations) => {
                self.change(key, writer, |object| patch::json_status(object, operations))
            }
            Call::Merge(key, changes) => self.change(key, writer, |object| {
                patch::merge(object, changes, key.kind.is_custom())
            }),
            Call::Conditions(key, changes) => self.change(key, writer, |object| patch::conditions(object, changes)),
        };
        match done {
            Ok(object) => Response::Object(object),
            Err(Refusal::NotFound) => Response::NotFound,
            Err(Refusal::Invalid(why)) => Response::Refused(why),
        }
    }

    fn create(&mut self, kind: Kind, value: &Value, writer: Writer, now: Timestamp) -> Result<Shared, Refusal> {
        let mut value = value.clone();
        self.uids += 1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &value["metadata"];
        let mut name = text(&metadata["name"]);
        if name.is_empty() {
            name = format!("{}{}", text(&metadata["generateName"]), self.uids);
        }
        let key = Key::new(kind, &text(&metadata["namespace"]), &name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::Invalid(format!("{name} already exists")));
        }
        let metadata = &mut value["metadata"];
        metadata["name"] = json!(name);
        metadata["uid"] = json!(format!("uid-{}", self.uids));
        metadata["creationTimestamp"] = json!(seconds(now).to_string());
        if kind.is_custom() {
            metadata["generation"] = json!(1);
            if let Some(object) = value.as_object_mut() {
                object.remove("status");
            }
        }
        self.store(key, value, writer)
    }

    fn change(
        &mut self,
        key: &Key,
        writer: Writer,
        patched: impl FnOnce(&Value) -> Result<Value, Refusal>,
    ) -> Result<Shared, Refusal> {
        let before = self.objects.get(key).ok_or(Refusal::NotFound)?;
        let value = patched(&before.value)?;
        // A write that changes nothing makes no new version.
        if value == before.value {
            return Ok(Rc::clone(before));
        }
        let leaves = value["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&value);
        let object = self.store(key.clone(), value, writer)?;
        if leaves {
            self.remove(key, writer);
        }
        Ok(object)
    }

    fn delete(&mut self, key: &Key, uid: Option<&str>, writer: Writer, now: Timestamp) -> Response {
        let Some(before) = self.objects.get(key).cloned() else {
            return Response::NotFound;
        };
        if uid.is_some_and(|uid| uid != before.uid) {
            return Response::Refused(format!("the uid of {} is another one", key.name));
        }
        if !has_finalizers(&before.value) {
            self.remove(key, writer);
            return Response::Done;
        }
        if before.is_leaving() {
            return Response::Done;
        }
        let mut value = before.value.clone();
        value["metadata"]["deletionTimestamp"] = json!(seconds(now).to_string());
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        value["metadata"]["generation"] = json!(generation + 1);
        match self.store(key.clone(), value, writer) {
            Ok(_) => Response::Done,
            Err(_) => Response::Unknown,
        }
    }

    fn store(&mut self, key: Key, mut value: Value, writer: Writer) -> Result<Shared, Refusal> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let node_image = match key.kind {
            Kind::NodeImage => {
                let read = NodeImage::deserialize(&value);
                Some(read.map_err(|error| Refusal::Invalid(error.to_string()))?)
            }
            _ => None,
        };
        let object = Rc::new(Object {
            uid: value["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            version: self.version,
            key: key.clone(),
            value,
            node_image,
        });
        let before = self.objects.insert(key, Rc::clone(&object));
        self.changes.push_back(Change {
            before,
            after: Some(Rc::clone(&object)),
            writer,
        });
        Ok(object)
    }

    fn remove(&mut self, key: &Key, writer: Writer) {
        self.version += 1;
        let before = self.objects.remove(key);
        self.changes.push_back(Change {
            before,
            after: None,
            writer,
        });
    }
}

fn has_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}

fn seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

#[cfg(test)]
mod tests;
