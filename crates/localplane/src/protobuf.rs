//! Reading the protobuf form of the built-in kinds, which typed Go clients write by default. Answers are always JSON, which
//! every such client accepts too.
//!
//! The messages are described in `proto/kubernetes.proto`. Like kube-apiserver, this drops fields that it does not know.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use jiff::Timestamp;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage, Value as Field};
use serde_json::{Map, Value, json};

use crate::memory::Content;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every such body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// The deepest nesting of messages, as in the library that decodes them.
const MAX_DEPTH: usize = 100;

/// Fields whose own fields stand directly in the object that contains them, in JSON.
const INLINE: [&str; 4] = [
    "ephemeralContainerCommon",
    "handler",
    "localObjectReference",
    "volumeSource",
];

/// The compiled `proto/kubernetes.proto`, written by `cargo xtask codegen`.
static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(include_bytes!("protobuf/kubernetes.binpb").as_slice()).unwrap_or_default()
});

/// What a body says about the object in it.
struct Envelope {
    api_version: String,
    kind: String,
    /// The name of the message.
    message: String,
    object: Bytes,
}

impl Envelope {
    fn open(body: &Bytes) -> Option<Self> {
        let envelope = message("Unknown", after_magic(body)?)?;
        let text = |message: &DynamicMessage, field: &str| Some(message.get_field_by_name(field)?.as_str()?.to_owned());
        let meta = envelope.get_field_by_name("typeMeta")?;
        let meta = meta.as_message()?;
        let (api_version, kind) = (text(meta, "apiVersion")?, text(meta, "kind")?);
        let message = match (api_version.as_str(), kind.as_str()) {
            ("v1", "ConfigMap" | "Event" | "Namespace" | "Node" | "Pod" | "Secret" | "ServiceAccount")
            | ("coordination.k8s.io/v1", "Lease")
            | (_, "DeleteOptions") => kind.clone(),
            ("events.k8s.io/v1", "Event") => "EventsV1Event".to_owned(),
            _ => return None,
        };
        let object = envelope.get_field_by_name("raw")?.as_bytes()?.clone();
        Some(Self {
            api_version,
            kind,
            message,
            object,
        })
    }
}

fn after_magic(body: &Bytes) -> Option<Bytes> {
    body.starts_with(MAGIC).then(|| body.slice(MAGIC.len()..))
}

/// The object in `body` as JSON, or `None` if its kind has no protobuf form, or it is damaged.
pub(crate) fn decode(body: &Bytes) -> Option<Value> {
    let envelope = Envelope::open(body)?;
    let mut object = object(&message(&envelope.message, envelope.object)?)?;
    object["apiVersion"] = envelope.api_version.into();
    object["kind"] = envelope.kind.into();
    Some(object)
}

/// What is in `body`, without reading more of it than is allowed; `None` if [`decode`] refuses it.
pub(crate) fn content(body: &Bytes) -> Option<Content> {
    let mut content = Content {
        bytes: body.len(),
        ..Content::default()
    };
    count(&descriptor("Unknown")?, &after_magic(body)?, MAX_DEPTH, &mut content)?;
    if content.check().is_ok() {
        let envelope = Envelope::open(body)?;
        count(
            &descriptor(&envelope.message)?,
            &envelope.object,
            MAX_DEPTH,
            &mut content,
        )?;
    }
    Some(content)
}

/// Adds the messages and fields in `bytes`; `None` if they are damaged or nested deeper than `depth`.
fn count(message: &MessageDescriptor, mut bytes: &[u8], depth: usize, content: &mut Content) -> Option<()> {
    content.structures += 1;
    while !bytes.is_empty() {
        // The name that a field has in JSON, and its value.
        content.values += 2;
        let (number, wire_type) = decode_key(&mut bytes).ok()?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
        let (inside, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        if let Some(Kind::Message(inner)) = message.get_field(number).map(|field| field.kind()) {
            count(&inner, inside, depth.checked_sub(1)?, content)?;
        }
    }
    Some(())
}

fn descriptor(name: &str) -> Option<MessageDescriptor> {
    DESCRIPTORS.get_message_by_name(&format!("kubernetes.{name}"))
}

fn message(name: &str, bytes: Bytes) -> Option<DynamicMessage> {
    DynamicMessage::decode(descriptor(name)?, bytes).ok()
}

/// The message in the JSON form of its type.
fn object(message: &DynamicMessage) -> Option<Value> {
    let integer = |field: &str| match *message.get_field_by_name(field)? {
        Field::I32(number) => Some(i64::from(number)),
        Field::I64(number) => Some(number),
        _ => None,
    };
    let text = |field: &str| Some(message.get_field_by_name(field)?.as_str()?.to_owned());
    let time = || {
        let nanos = i32::try_from(integer("nanos")?).ok()?;
        Timestamp::new(integer("seconds")?, nanos).ok()
    };
    match message.descriptor().name() {
        // An empty message is a time that is not set.
        "Time" | "MicroTime" if message.fields().next().is_none() => Some(Value::Null),
        "Time" => Some(format!("{:.0}", time()?).into()),
        "MicroTime" => Some(format!("{:.6}", time()?).into()),
        "Quantity" => Some(text("string")?.into()),
        "IntOrString" if integer("type")? == 0 => Some(integer("intVal")?.into()),
        "IntOrString" => Some(text("strVal")?.into()),
        _ => fields(message).map(Value::Object),
    }
}

fn fields(message: &DynamicMessage) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for (field, value) in message.fields() {
        match (value, field.name()) {
            (Field::Message(inner), name) if INLINE.contains(&name) => object.extend(fields(inner)?),
            (value, name) => {
                let value = json(value)?;
                if !value.is_null() {
                    object.insert(name.to_owned(), value);
                }
            }
        }
    }
    Some(object)
}

fn json(value: &Field) -> Option<Value> {
    match value {
        Field::Bool(flag) => Some((*flag).into()),
        Field::I32(number) => Some((*number).into()),
        Field::I64(number) => Some((*number).into()),
        Field::String(text) => Some(text.as_str().into()),
        Field::Bytes(bytes) => Some(STANDARD.encode(bytes).into()),
        Field::Message(message) => object(message),
        Field::List(items) => items.iter().map(json).collect(),
        Field::Map(entries) => {
            let mut object = json!({});
            for (key, value) in entries {
                let MapKey::String(key) = key else { return None };
                object[key] = json(value)?;
            }
            Some(object)
        }
        // No field of the kinds above has one of these types.
        Field::U32(_) | Field::U64(_) | Field::F32(_) | Field::F64(_) | Field::EnumNumber(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Bytes {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat().into()
    }

    #[test]
    fn a_secret_is_read() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let meta = [field(1, b"s"), field(2, b""), field(8, b""), field(11, &label)].concat();
        let entry = [field(1, b"key"), field(2, b"\0\x01")].concat();
        let raw = [field(1, &meta), field(2, &entry), field(3, b"Opaque"), vec![5 << 3, 0]].concat();
        let want = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "data": {"key": "AAE="},
            "type": "Opaque",
            "immutable": false,
        });
        assert_eq!(decode(&envelope("v1", "Secret", &raw)), Some(want));
    }

    #[test]
    fn a_lease_is_read_to_the_microsecond() {
        // 2026-01-01T00:00:00.000001Z
        let time = [vec![8], varint(1_767_225_600), vec![16], varint(1_000)].concat();
        let spec = [field(1, b"me"), vec![16, 15], field(4, &time), vec![40, 0]].concat();
        let want = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000001Z",
                "leaseTransitions": 0,
            },
        });
        assert_eq!(
            decode(&envelope("coordination.k8s.io/v1", "Lease", &field(2, &spec))),
            Some(want)
        );
    }

    fn varint(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(number, &mut bytes);
        bytes
    }

    #[test]
    fn messages_and_fields_are_counted() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let raw = [field(1, &[field(1, b"s"), field(11, &label)].concat()), vec![5 << 3, 0]].concat();
        let body = envelope("v1", "Secret", &raw);
        let want = Content {
            // The envelope and its type, the object, its metadata and one label.
            structures: 5,
            values: 2 * (4 + 2 + 2 + 2),
            bytes: body.len(),
        };
        assert_eq!(content(&body), Some(want));
    }

    /// Three megabytes of containers without content.
    #[test]
    fn very_many_small_messages_are_refused() {
        let containers = [2 << 3 | 2, 0].repeat(3 << 19);
        let long = |number: u8, content: &[u8]| {
            let length = varint(content.len() as u64);
            [vec![number << 3 | 2], length, content.to_vec()].concat()
        };
        let meta = [field(1, b"v1"), field(2, b"Pod")].concat();
        let raw = long(2, &containers);
        let body = Bytes::from([MAGIC.to_vec(), field(1, &meta), long(2, &raw)].concat());
        assert!(content(&body).unwrap().check().is_err());

        let unknown_fields = [15 << 3, 0].repeat(3 << 19);
        let body = Bytes::from([MAGIC.to_vec(), unknown_fields].concat());
        assert!(content(&body).unwrap().check().is_err());
    }

    #[test]
    fn an_unknown_kind_is_not_guessed_at() {
        assert_eq!(decode(&envelope("apps/v1", "Deployment", b"")), None);
        assert_eq!(decode(&envelope("v2", "Secret", b"")), None);
        assert_eq!(decode(&Bytes::from_static(b"{}")), None);
    }

    /// Every message can be written empty, so every description of one can be read.
    #[test]
    fn every_message_has_a_json_form() {
        assert!(100 < DESCRIPTORS.all_messages().len());
        for descriptor in DESCRIPTORS
            .all_messages()
            .filter(|descriptor| !descriptor.is_map_entry())
        {
            let empty = DynamicMessage::new(descriptor.clone()).encode_to_vec();
            let read = DynamicMessage::decode(descriptor.clone(), empty.as_slice()).unwrap();
            assert!(object(&read).is_some(), "{}", descriptor.name());
        }
    }

    proptest! {
        #[test]
        fn damaged_bodies_are_refused_or_read_but_never_break_the_server(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for body in [envelope("v1", "Secret", &bytes), envelope("v1", "Pod", &bytes), Bytes::from(bytes)] {
                prop_assert!(decode(&body).is_none() || content(&body).is_some());
            }
        }
    }
}
