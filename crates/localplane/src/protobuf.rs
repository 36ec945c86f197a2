//! Reading the protobuf form of the few kinds that kubectl creates with it: `kubectl create namespace`, `secret`,
//! `configmap` and `serviceaccount`. Answers are always JSON, which every such client accepts too.
//!
//! Driven by tables of field numbers. A field that is not in its table makes the body unreadable: nothing is dropped in
//! silence.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every such body starts with.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Flag,
    Bytes,
    Time,
    Message(&'static [Field]),
    /// A map from text to text or bytes.
    Map(&'static [Field]),
    /// Read over on purpose.
    Skipped,
}

struct Field {
    number: u64,
    name: &'static str,
    kind: Kind,
    repeated: bool,
}

const fn one(number: u64, name: &'static str, kind: Kind) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: false,
    }
}

const fn many(number: u64, name: &'static str, kind: Kind) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: true,
    }
}

const TEXT_ENTRY: &[Field] = &[one(1, "key", Kind::Text), one(2, "value", Kind::Text)];
const BYTES_ENTRY: &[Field] = &[one(1, "key", Kind::Text), one(2, "value", Kind::Bytes)];

const OWNER: &[Field] = &[
    one(1, "kind", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "uid", Kind::Text),
    one(5, "apiVersion", Kind::Text),
    one(6, "controller", Kind::Flag),
    one(7, "blockOwnerDeletion", Kind::Flag),
];

const METADATA: &[Field] = &[
    one(1, "name", Kind::Text),
    one(2, "generateName", Kind::Text),
    one(3, "namespace", Kind::Text),
    one(4, "selfLink", Kind::Text),
    one(5, "uid", Kind::Text),
    one(6, "resourceVersion", Kind::Text),
    one(7, "generation", Kind::Integer),
    one(8, "creationTimestamp", Kind::Time),
    one(9, "deletionTimestamp", Kind::Time),
    one(10, "deletionGracePeriodSeconds", Kind::Integer),
    one(11, "labels", Kind::Map(TEXT_ENTRY)),
    one(12, "annotations", Kind::Map(TEXT_ENTRY)),
    many(13, "ownerReferences", Kind::Message(OWNER)),
    many(14, "finalizers", Kind::Text),
    one(17, "managedFields", Kind::Skipped),
];

const REFERENCE: &[Field] = &[
    one(1, "kind", Kind::Text),
    one(2, "namespace", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "uid", Kind::Text),
    one(5, "apiVersion", Kind::Text),
    one(6, "resourceVersion", Kind::Text),
    one(7, "fieldPath", Kind::Text),
];

const NAMESPACE: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(2, "spec", Kind::Message(&[many(1, "finalizers", Kind::Text)])),
    one(3, "status", Kind::Message(&[one(1, "phase", Kind::Text)])),
];

const SECRET: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(2, "data", Kind::Map(BYTES_ENTRY)),
    one(3, "type", Kind::Text),
    one(4, "stringData", Kind::Map(TEXT_ENTRY)),
    one(5, "immutable", Kind::Flag),
];

const CONFIG_MAP: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(2, "data", Kind::Map(TEXT_ENTRY)),
    one(3, "binaryData", Kind::Map(BYTES_ENTRY)),
    one(4, "immutable", Kind::Flag),
];

const SERVICE_ACCOUNT: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    many(2, "secrets", Kind::Message(REFERENCE)),
    many(3, "imagePullSecrets", Kind::Message(&[one(1, "name", Kind::Text)])),
    one(4, "automountServiceAccountToken", Kind::Flag),
];

const DELETE_OPTIONS: &[Field] = &[
    one(1, "gracePeriodSeconds", Kind::Integer),
    one(
        2,
        "preconditions",
        Kind::Message(&[one(1, "uid", Kind::Text), one(2, "resourceVersion", Kind::Text)]),
    ),
    one(3, "orphanDependents", Kind::Flag),
    one(4, "propagationPolicy", Kind::Text),
    many(5, "dryRun", Kind::Text),
];

const ENVELOPE: &[Field] = &[
    one(
        1,
        "typeMeta",
        Kind::Message(&[one(1, "apiVersion", Kind::Text), one(2, "kind", Kind::Text)]),
    ),
    one(2, "raw", Kind::Bytes),
    one(3, "contentEncoding", Kind::Text),
    one(4, "contentType", Kind::Text),
];

/// The object in `body` as JSON, or `None` if it is of a kind that is not read here, or damaged.
pub(crate) fn decode(body: &[u8]) -> Option<Value> {
    let envelope = message(ENVELOPE, body.strip_prefix(MAGIC)?)?;
    let meta = &envelope["typeMeta"];
    let fields = match meta["kind"].as_str()? {
        "Namespace" => NAMESPACE,
        "Secret" => SECRET,
        "ConfigMap" => CONFIG_MAP,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return None,
    };
    let raw = STANDARD.decode(envelope["raw"].as_str().unwrap_or_default()).ok()?;
    let mut object = message(fields, &raw)?;
    object["apiVersion"] = meta["apiVersion"].clone();
    object["kind"] = meta["kind"].clone();
    Some(object)
}

fn message(fields: &[Field], mut bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = fields.iter().find(|field| field.number == tag >> 3)?;
        let value = match (tag & 7, field.kind) {
            (0, Kind::Integer) => Value::from(varint(&mut bytes)?.cast_signed()),
            (0, Kind::Flag) => Value::from(varint(&mut bytes)? != 0),
            (2, kind) => delimited(kind, chunk(&mut bytes)?)?,
            _ => return None,
        };
        match field.kind {
            Kind::Skipped => {}
            Kind::Map(_) => {
                let entries = object.entry(field.name).or_insert_with(|| json!({}));
                let key = value["key"].as_str().unwrap_or_default().to_owned();
                entries[key] = value.get("value").cloned().unwrap_or_else(|| "".into());
            }
            _ if field.repeated => {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(value);
            }
            // Text that is empty, and a time before there was one, mean that nothing is set.
            Kind::Text if value == "" => {}
            Kind::Time if value.is_null() => {}
            _ => {
                object.insert(field.name.into(), value);
            }
        }
    }
    Some(Value::Object(object))
}

fn delimited(kind: Kind, bytes: &[u8]) -> Option<Value> {
    match kind {
        Kind::Text => Some(std::str::from_utf8(bytes).ok()?.into()),
        Kind::Bytes => Some(STANDARD.encode(bytes).into()),
        Kind::Message(fields) | Kind::Map(fields) => message(fields, bytes),
        Kind::Time => {
            let time = message(
                &[one(1, "seconds", Kind::Integer), one(2, "nanos", Kind::Integer)],
                bytes,
            )?;
            Some(match time["seconds"].as_i64() {
                None => Value::Null,
                Some(seconds) => jiff::Timestamp::from_second(seconds).ok()?.to_string().into(),
            })
        }
        Kind::Skipped => Some(Value::Null),
        Kind::Integer | Kind::Flag => None,
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn chunk<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    let (chunk, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(chunk)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_secret_is_read() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let meta = [field(1, b"s"), field(11, &label)].concat();
        let entry = [field(1, b"key"), field(2, b"\0\x01")].concat();
        let raw = [field(1, &meta), field(2, &entry), field(3, b"Opaque"), vec![5 << 3, 1]].concat();
        let want = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "data": {"key": "AAE="},
            "type": "Opaque",
            "immutable": true,
        });
        assert_eq!(decode(&envelope("Secret", &raw)), Some(want));
    }

    #[test]
    fn an_unknown_kind_or_field_is_not_guessed_at() {
        assert_eq!(decode(&envelope("Pod", b"")), None);
        assert_eq!(decode(&envelope("Secret", &field(9, b"?"))), None);
        assert_eq!(decode(b"{}"), None);
    }

    proptest! {
        #[test]
        fn damaged_bodies_are_refused_or_read_but_never_break_the_server(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            drop(decode(&envelope("Secret", &bytes)));
            drop(decode(&bytes));
        }
    }
}
