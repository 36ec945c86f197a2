//! Tables for people: what `kubectl get` shows. Pure.

pub(crate) mod builtin;
mod jsonpath;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

use self::jsonpath::JsonPath;
use crate::object::{self, Object};

/// How a cell is made from an object.
#[derive(Clone, Debug)]
enum Cell {
    /// The value at a path, shown as the column's type says.
    Path(JsonPath),
    /// Whatever a built-in kind shows.
    Made(fn(&Object, Timestamp) -> Value),
}

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i32,
    cell: Cell,
}

impl Column {
    /// The columns of a custom kind: the name first, then those of its definition, or the age if it has none.
    pub(crate) fn of_definition(columns: &[CustomResourceColumnDefinition]) -> Vec<Self> {
        let mut all = vec![Self::name()];
        for column in columns {
            all.push(Self {
                name: column.name.clone(),
                kind: column.type_.clone(),
                format: column.format.clone().unwrap_or_default(),
                description: column.description.clone().unwrap_or_else(|| {
                    format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        column.json_path
                    )
                }),
                priority: column.priority.unwrap_or_default(),
                cell: Cell::Path(JsonPath::parse(&column.json_path)),
            });
        }
        if columns.is_empty() {
            all.push(Self::age());
        }
        all
    }

    fn name() -> Self {
        let mut column = Self::made("Name", "string", 0, |object, _| object::meta_str(object, "name").into());
        column.format = "name".into();
        column.description = "Name must be unique within a namespace.".into();
        column
    }

    fn age() -> Self {
        Self {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: "Time since the object was created.".into(),
            priority: 0,
            cell: Cell::Path(JsonPath::parse(".metadata.creationTimestamp")),
        }
    }

    fn made(name: &str, kind: &str, priority: i32, cell: fn(&Object, Timestamp) -> Value) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            format: String::new(),
            description: String::new(),
            priority,
            cell: Cell::Made(cell),
        }
    }

    /// The entry in `columnDefinitions`.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// The cell of one object.
    pub(crate) fn cell(&self, object: &Object, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Made(make) => make(object, now),
            Cell::Path(path) => path
                .first(object)
                .map_or(Value::Null, |value| show(&self.kind, value, now)),
        }
    }
}

fn show(kind: &str, value: &Value, now: Timestamp) -> Value {
    match kind {
        "integer" => value
            .as_i64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
            .map_or(Value::Null, Value::from),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "date" => age(value, now),
        "string" => match value {
            Value::String(text) => text.clone().into(),
            Value::Null => Value::Null,
            other => other.to_string().into(),
        },
        _ => Value::Null,
    }
}

/// How long ago a timestamp was, as kubectl writes it.
pub(crate) fn age(value: &Value, now: Timestamp) -> Value {
    match value.as_str() {
        None => Value::Null,
        Some(text) => match text.parse::<Timestamp>() {
            Ok(then) => human(now.as_second() - then.as_second()).into(),
            Err(_) => "<invalid>".into(),
        },
    }
}

/// A length of time in at most two units: fine at first, coarse later.
fn human(seconds: i64) -> String {
    if seconds < 0 {
        return if seconds < -1 { "<invalid>".into() } else { "0s".into() };
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, "d", hours % 24, "h")
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        two(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(150, "2m30s")]
    #[case(3599, "59m")]
    #[case(3 * 3600 + 900, "3h15m")]
    #[case(47 * 3600, "47h")]
    #[case(50 * 3600, "2d2h")]
    #[case(30 * 86400, "30d")]
    #[case(3 * 365 * 86400, "3y")]
    #[case(-5, "<invalid>")]
    fn ages_read_like_kubectl(#[case] seconds: i64, #[case] want: &str) {
        assert_eq!(human(seconds), want);
    }

    #[rstest]
    #[case::integer("integer", json!(3), json!(3))]
    #[case::integer_in_text("integer", json!("3"), json!(3))]
    #[case::text("string", json!("a"), json!("a"))]
    #[case::object_as_text("string", json!({"a": 1}), json!("{\"a\":1}"))]
    #[case::boolean("boolean", json!(true), json!(true))]
    #[case::date("date", json!("2026-01-01T00:00:00Z"), json!("60s"))]
    #[case::no_date("date", json!("yesterday"), json!("<invalid>"))]
    #[case::wrong_type("integer", json!("many"), Value::Null)]
    fn shows_by_type(#[case] kind: &str, #[case] value: Value, #[case] want: Value) {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(show(kind, &value, now), want);
    }
}
