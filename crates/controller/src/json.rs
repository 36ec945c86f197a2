//! API types as JSON, and how long that is.

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

/// How long an API type is as JSON.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut count = Count(0);
    // Counting cannot fail, and our own types have no failing serializer.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Counts what is written, and keeps none of it.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_are_those_of_the_text() {
        let value = json!({"a": "ü\n", "b": [1, null, {"c": true}]});
        assert_eq!(json_bytes(&value), value.to_string().len());
    }
}
