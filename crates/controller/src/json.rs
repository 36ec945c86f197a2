//! API types as JSON.

use serde::Serialize;
use serde_json::Value;

/// An API type as JSON.
#[expect(
    clippy::expect_used,
    reason = "invariant: our own types have string keys and no failing serializer"
)]
pub(crate) fn json_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("invariant: an API type is JSON")
}
