//! The JSONPath of printer columns: `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

use crate::object::Object;

/// A parsed path. What cannot be understood finds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    Where { path: Vec<String>, value: String },
    Never,
}

impl JsonPath {
    pub(crate) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text
            .trim()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim_start_matches('$');
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after);
                steps.push(bracket(&after[..end]));
                rest = after.get(end + 1..).unwrap_or_default();
            } else {
                let (field, after) = field(rest.strip_prefix('.').unwrap_or(rest));
                if !field.is_empty() {
                    steps.push(if field == "*" { Step::Every } else { Step::Field(field) });
                }
                rest = after;
            }
        }
        Self { steps }
    }

    /// The first value at this path.
    pub(crate) fn first<'a>(&self, object: &'a Object) -> Option<&'a Value> {
        let Some(Step::Field(name)) = self.steps.first() else {
            return None;
        };
        find(object.get(name)?, &self.steps[1..])
    }
}

fn find<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => find(value.get(name)?, rest),
        Step::Index(index) => {
            let items = value.as_array()?;
            let place = if *index < 0 {
                items.len().checked_add_signed(isize::try_from(*index).ok()?)?
            } else {
                usize::try_from(*index).ok()?
            };
            find(items.get(place)?, rest)
        }
        Step::Every => match value {
            Value::Array(items) => items.iter().find_map(|item| find(item, rest)),
            Value::Object(map) => map.values().find_map(|item| find(item, rest)),
            _ => None,
        },
        Step::Where { path, value: wanted } => value.as_array()?.iter().find_map(|item| {
            let is = path.iter().try_fold(item, |item, field| item.get(field))?;
            let same = match is {
                Value::String(text) => text == wanted,
                other => *wanted == format!("{other}"),
            };
            same.then(|| find(item, rest)).flatten()
        }),
        Step::Never => None,
    }
}

/// A field name up to the next dot or bracket; `\.` is a dot in the name.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// The place of the bracket that closes the one before `text`, quotes respected.
fn closing(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return at,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn bracket(inside: &str) -> Step {
    let inside = inside.trim();
    if inside == "*" {
        return Step::Every;
    }
    if let Ok(index) = inside.parse() {
        return Step::Index(index);
    }
    if let Some(name) = unquoted(inside) {
        return Step::Field(name);
    }
    let condition = inside
        .strip_prefix("?(")
        .and_then(|condition| condition.strip_suffix(')'))
        .and_then(|condition| condition.split_once("=="));
    match condition {
        Some((left, right)) => {
            let right = right.trim();
            let path = left.trim().trim_start_matches('@').trim_start_matches('.');
            Step::Where {
                path: path.split('.').map(str::to_owned).collect(),
                value: unquoted(right).unwrap_or_else(|| right.to_owned()),
            }
        }
        None => Step::Never,
    }
}

fn unquoted(text: &str) -> Option<String> {
    ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::field(".spec.a", Some(json!(1)))]
    #[case::missing(".spec.z", None)]
    #[case::index(".spec.list[1]", Some(json!("y")))]
    #[case::last(".spec.list[-1]", Some(json!("y")))]
    #[case::every(".spec.list[*]", Some(json!("x")))]
    #[case::condition(".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True")))]
    #[case::no_such_condition(".status.conditions[?(@.type=='Gone')].status", None)]
    #[case::escaped_dot(".metadata.labels.a\\.b/c", Some(json!("v")))]
    #[case::quoted_field(".metadata.labels['a.b/c']", Some(json!("v")))]
    #[case::not_understood(".spec[?(1)]", None)]
    fn finds(#[case] path: &str, #[case] want: Option<Value>) {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "v"}},
            "spec": {"a": 1, "list": ["x", "y"]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let found = JsonPath::parse(path).first(object.as_object().unwrap()).cloned();
        assert_eq!(found, want);
    }
}
