//! YAML that is safe to show: what would change how a terminal displays the text is written as an escape, which a YAML
//! reader turns back into the same character.

use larder_model::escape_yaml;
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

use crate::failure::{Failure, chain};

pub(crate) fn to_string(value: &impl Serialize) -> Result<String, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::wrong(chain(error));
    let text = serde_saphyr::to_string(value).map_err(|error| failed(&error))?;
    if is_safe(&text) {
        return Ok(text);
    }
    // The writer escapes control characters but not all others, and only double-quoted strings can have escapes.
    let value = serde_json::to_value(value).map_err(|error| failed(&error))?;
    let text = serde_saphyr::to_string(&Quoted(&value)).map_err(|error| failed(&error))?;
    Ok(escape_yaml(&text).into_owned())
}

fn is_safe(text: &str) -> bool {
    escape_yaml(text) == text
}

/// A value whose unsafe strings are double-quoted.
struct Quoted<'a>(&'a Value);

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if !is_safe(text) => DoubleQuoted(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Quoted)),
            // Keys are this program's own field names.
            Value::Object(fields) => serializer.collect_map(fields.iter().map(|(key, value)| (key, Quoted(value)))),
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::plain(json!({"message": "fine"}))]
    #[case::escape_sequence(json!({"message": "\u{1b}[2J\u{9b}m"}))]
    #[case::bidirectional(json!({"message": "\u{202e}gnp.exe", "nodes": [{"node": "a\u{2066}b"}, 7, null]}))]
    #[case::beyond_sixteen_bits(json!({"message": "a\u{e0061}\u{feff}b"}))]
    #[case::several_lines(json!({"message": format!("{}\n\u{202e}it's \"that\"\n", "long ".repeat(40))}))]
    fn the_meaning_stays(#[case] value: Value) {
        let text = to_string(&value).unwrap();
        assert!(is_safe(&text), "{text:?}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
    }
}
