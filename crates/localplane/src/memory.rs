//! How much memory requests may take: a bound on each body and object, and on all that are parsed at the same time.
//!
//! The length of a JSON text does not tell it. `{"":{}}` has seven bytes and takes a kilobyte as a value; `{"name":""}` in a
//! list of volumes takes four more as the Rust type of a volume. So it is estimated from what the text holds, before it is
//! parsed.

use std::{ops::Add, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// The most that one body or object may take. An object of 1.5 MB, the largest that is stored, has room for about
/// 40,000 objects in it, one every 40 bytes.
pub(crate) const MAX_MEMORY: usize = 192 << 20;

/// The most that all bodies may take that are parsed at the same time, with the stored objects that they change.
const MAX_MEMORY_AT_ONCE: usize = 2 * MAX_MEMORY;

/// Memory of one object or list: as a value, and as the largest type of the built-in kinds.
const OF_A_STRUCTURE: usize = 4 << 10;

/// Memory of one value or key: most as a key of a large map.
const OF_A_VALUE: usize = 256;

/// How often the text is in memory: as it came, as values, as types, as the text that is stored.
const COPIES: usize = 4;

/// What a text holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Objects and lists.
    pub(crate) structures: usize,
    /// Keys and values.
    pub(crate) values: usize,
    pub(crate) bytes: usize,
}

impl Content {
    /// What is in a JSON text. For what is no JSON, at least as much as a parser reads before it stops.
    pub(crate) fn of_json(text: &[u8]) -> Self {
        let mut content = Self {
            values: 1,
            bytes: text.len(),
            ..Self::default()
        };
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => skip_string(&mut bytes),
                b'{' | b'[' => {
                    content.structures += 1;
                    content.values += 1;
                }
                b',' | b':' => content.values += 1,
                _ => {}
            }
        }
        content
    }

    /// The memory that it takes once it is parsed.
    fn memory(self) -> usize {
        COPIES * self.bytes + OF_A_VALUE * self.values + OF_A_STRUCTURE * self.structures
    }

    /// Refuses what takes more than one request may.
    pub(crate) fn check(self) -> Result<Self, ApiError> {
        if MAX_MEMORY < self.memory() {
            return Err(ApiError::too_many_values(self.structures, self.values));
        }
        Ok(self)
    }
}

impl Add for Content {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            structures: self.structures + other.structures,
            values: self.values + other.values,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Moves behind the closing quote.
fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// The memory of all requests. Those that do not find enough of it wait for their turn.
pub(crate) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(kilobytes(MAX_MEMORY_AT_ONCE) as usize)))
    }
}

impl Memory {
    /// Waits until there is room for `content`, and keeps it until the permit is dropped.
    pub(crate) async fn reserve(&self, content: Content) -> Option<OwnedSemaphorePermit> {
        let needed = kilobytes(content.memory().min(MAX_MEMORY_AT_ONCE));
        // Never closed.
        Arc::clone(&self.0).acquire_many_owned(needed).await.ok()
    }
}

fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nothing("", 0, 1)]
    #[case::number("1", 0, 1)]
    #[case::object(r#"{"a":1}"#, 1, 3)]
    #[case::list("[1,2,3]", 1, 4)]
    #[case::nested(r#"{"":{}}"#, 2, 4)]
    #[case::text_is_no_structure(r#""{[,:\"{[\\""#, 0, 1)]
    #[case::open_string(r#"["{{{{"#, 1, 2)]
    fn counts(#[case] text: &str, #[case] structures: usize, #[case] values: usize) {
        let want = Content {
            structures,
            values,
            bytes: text.len(),
        };
        assert_eq!(Content::of_json(text.as_bytes()), want);
    }

    /// 3 MB, the most that a body may have, of one small thing.
    fn full_of(thing: &str) -> String {
        let list = vec![thing; (3 << 20) / (thing.len() + 1)];
        format!("[{}]", list.join(","))
    }

    #[rstest]
    #[case::objects(&full_of(r#"{"":{}}"#))]
    #[case::empty_objects(&full_of("{}"))]
    #[case::empty_lists(&full_of("[]"))]
    #[case::volumes(&full_of(r#"{"name":""}"#))]
    #[case::numbers(&full_of("1"))]
    #[case::keys(&full_of(r#""k":0"#))]
    fn bodies_of_tiny_parts_are_refused(#[case] text: &str) {
        let error = Content::of_json(text.as_bytes()).check().unwrap_err();
        assert_eq!(error.reason(), "RequestEntityTooLarge");
    }

    #[test]
    fn a_body_of_text_may_have_any_size() {
        let text = full_of(&format!("\"{}\"", "x".repeat(100)));
        Content::of_json(text.as_bytes()).check().unwrap();
    }

    /// Two structures in about a hundred bytes: few objects of our kinds have more.
    #[test]
    fn an_object_of_our_kinds_may_have_the_size_that_can_be_stored() {
        let node = |number: usize| {
            json!({"nodeName": format!("node-{number}"), "state": "Successful",
                   "imageStatus": [{"image": format!("registry.example/app:{number}"), "state": "Successful"}]})
        };
        let status: Vec<Value> = (0..10_000).map(node).collect();
        let text = json!({"kind": "ImagePrePullJob", "status": {"status": status}}).to_string();
        assert!((1 << 20) < text.len(), "{}", text.len());
        Content::of_json(text.as_bytes()).check().unwrap();
    }

    #[test]
    fn what_does_not_fit_waits_until_there_is_room() {
        let half = Content {
            bytes: MAX_MEMORY / COPIES,
            ..Content::default()
        };
        let memory = Memory::default();
        let first = memory.reserve(half).now_or_never().unwrap();
        let second = memory.reserve(half).now_or_never().unwrap();
        let mut third = Box::pin(memory.reserve(half));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(third.now_or_never().unwrap().is_some());
        drop(second);
    }

    #[test]
    fn what_would_never_fit_has_its_turn_alone() {
        let memory = Memory::default();
        let huge = Content {
            bytes: usize::MAX / COPIES,
            ..Content::default()
        };
        assert!(memory.reserve(huge).now_or_never().unwrap().is_some());
    }

    /// Structures and values of a value, keys included.
    fn really(value: &Value) -> (usize, usize) {
        let inside: Vec<(usize, usize)> = match value {
            Value::Array(items) => items.iter().map(really).collect(),
            Value::Object(fields) => fields
                .values()
                .map(|value| {
                    let (structures, values) = really(value);
                    (structures, values + 1)
                })
                .collect(),
            _ => return (0, 1),
        };
        inside.iter().fold((1, 1), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i32>().prop_map(Value::from), ".*".prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::hash_map(".*", inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_value_is_overlooked(value in any_value()) {
            let (structures, values) = really(&value);
            let content = Content::of_json(value.to_string().as_bytes());
            prop_assert_eq!(content.structures, structures);
            prop_assert!(values <= content.values);
        }
    }
}
