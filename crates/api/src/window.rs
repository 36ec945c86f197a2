//! When pulls of a job may start: fields that all jobs have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hours of a day.
const TIME: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]$";

/// Days in the order of the week, as [`Window::days`] names them.
pub const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What [`Window::time_zone`] is when it is not given.
pub const DEFAULT_TIME_ZONE: &str = "UTC";

/// Hours of some days, by the clocks of one time zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The days on which the window opens: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Every day if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "maxItems" = 7,
        "x-kubernetes-list-type" = "set",
        "items" = { "type": "string", "enum": DAYS },
    ))]
    pub days: Vec<String>,

    /// When it opens, as HH:MM.
    #[schemars(extend("pattern" = TIME, "maxLength" = 5))]
    pub from: String,

    /// When it closes, as HH:MM. A time that is not after `from` is one of the next day.
    #[schemars(extend("pattern" = TIME, "maxLength" = 5))]
    pub to: String,

    /// The time zone of both, such as Europe/Berlin; UTC if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = 64))]
    pub time_zone: Option<String>,
}

/// What happens to pulls that run when the last window closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WindowEnd {
    /// They finish.
    #[default]
    Finish,
    /// They are stopped, and go on when a window opens.
    Stop,
}
