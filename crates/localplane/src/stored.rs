//! One object as the store keeps it: its JSON text and the facts that lists, watches and clean-up ask for.
//!
//! The text leaves out `apiVersion`, so that any version of the kind is written out by putting its own in front.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use crate::{
    object::{self, Object},
    registry::Resource,
};

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One object of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: usize,
    pub(crate) name: ObjectName,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) blocks: bool,
}

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    pub(crate) revision: u64,
    /// Milliseconds since 1970 of the write.
    pub(crate) written: i64,
    pub(crate) labels: Box<[(String, String)]>,
    /// Values of the resource's selectable fields, in the resource's order.
    pub(crate) fields: Box<[String]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: Box<[String]>,
    pub(crate) deleting: bool,
    /// JSON after the opening brace, without `apiVersion`.
    tail: Bytes,
}

impl Stored {
    /// Takes `object` apart. Its `metadata.resourceVersion` must already be `revision`.
    pub(crate) fn new(resource: &Resource, mut object: Object, revision: u64, written: i64) -> Self {
        object.remove("apiVersion");
        let mut text = Vec::new();
        // Writing JSON into memory has no way to fail: all keys are strings.
        if serde_json::to_writer(&mut text, &object).is_err() {
            text.clear();
        }
        let tail = Bytes::from(text).slice(1..);
        Self::with_tail(resource, &object, revision, written, tail)
    }

    /// An object as it was written to disk.
    pub(crate) fn from_tail(resource: &Resource, tail: Bytes, written: i64) -> Result<Self, serde_json::Error> {
        let mut object: Object = serde_json::from_slice(&with_brace(&tail))?;
        let revision = object::meta_str(&object, "resourceVersion").parse().unwrap_or_default();
        if let Some(schema) = &resource.versions[resource.storage].schema {
            // An older program may have known fewer defaults.
            let before = object.clone();
            schema.default(&mut object);
            if object != before {
                return Ok(Self::new(resource, object, revision, written));
            }
        }
        Ok(Self::with_tail(resource, &object, revision, written, tail))
    }

    fn with_tail(resource: &Resource, object: &Object, revision: u64, written: i64, tail: Bytes) -> Self {
        let labels = object::meta(object, "labels")
            .and_then(Value::as_object)
            .map(|labels| {
                labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                    .collect()
            })
            .unwrap_or_default();
        let owners = object::meta(object, "ownerReferences")
            .and_then(Value::as_array)
            .map(|owners| owners.iter().map(owner).collect())
            .unwrap_or_default();
        Self {
            name: ObjectName {
                namespace: object::meta_str(object, "namespace").to_owned(),
                name: object::meta_str(object, "name").to_owned(),
            },
            uid: object::meta_str(object, "uid").to_owned(),
            revision,
            written,
            labels,
            fields: resource.selectable.iter().map(|field| field.value(object)).collect(),
            owners,
            finalizers: object::meta_strings(object, "finalizers")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            deleting: object::is_deleting(object),
            tail,
        }
    }

    /// The object as JSON values, with `apiVersion`.
    pub(crate) fn object(&self, api_version: &str) -> Object {
        let mut object: Object = serde_json::from_slice(&with_brace(&self.tail)).unwrap_or_default();
        object.insert("apiVersion".into(), api_version.into());
        object
    }

    /// The object as JSON text, with `apiVersion`.
    pub(crate) fn json(&self, api_version: &str) -> Bytes {
        let mut text = BytesMut::with_capacity(self.tail.len() + api_version.len() + 20);
        self.write_json(api_version, &mut text);
        text.freeze()
    }

    fn write_json(&self, api_version: &str, text: &mut BytesMut) {
        text.put_slice(br#"{"apiVersion":""#);
        text.put_slice(api_version.as_bytes());
        text.put_slice(br#"","#);
        text.put_slice(&self.tail);
    }

    /// One line of a watch: `event` with this object.
    pub(crate) fn frame(&self, event: &str, api_version: &str) -> Bytes {
        let mut text = BytesMut::with_capacity(self.tail.len() + api_version.len() + 60);
        text.put_slice(br#"{"type":""#);
        text.put_slice(event.as_bytes());
        text.put_slice(br#"","object":"#);
        self.write_json(api_version, &mut text);
        text.put_slice(b"}\n");
        text.freeze()
    }

    /// What goes to disk.
    pub(crate) fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// Bytes this object holds in memory, roughly.
    pub(crate) fn size(&self) -> usize {
        self.tail.len() + 400
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }
}

fn with_brace(tail: &Bytes) -> Vec<u8> {
    let mut text = Vec::with_capacity(tail.len() + 1);
    text.push(b'{');
    text.extend_from_slice(tail);
    text
}

fn owner(reference: &Value) -> Owner {
    let text = |field: &str| {
        reference
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let api_version = text("apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    Owner {
        uid: text("uid"),
        group,
        kind: text("kind"),
        name: text("name"),
        blocks: reference
            .get("blockOwnerDeletion")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
    }
}

/// Stored objects are shared between the map, the recent events and requests under way.
pub(crate) type Shared = Arc<Stored>;
