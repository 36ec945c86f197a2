//! Windows of the whole fleet, as the controller is given them.

use larder_api::window::{Window, WindowEnd};
use serde::Deserialize;
use thiserror::Error;

use super::{WindowError, Windows};

/// A window as in a job's spec. What is misspelt is refused here, as the API server refuses it there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FleetWindow {
    #[serde(default)]
    days: Vec<String>,
    from: String,
    to: String,
    time_zone: Option<String>,
}

/// Why windows of the fleet cannot be used.
#[derive(Debug, Error)]
pub enum FleetWindowsError {
    /// It is not the JSON that it should be.
    #[error("give a JSON list of objects with days, from, to and timeZone, as in a job's windows: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// One of them.
    #[error(transparent)]
    Window(#[from] WindowError),
}

impl Windows {
    /// Reads the windows of the fleet: a JSON list in the form of a job's `windows`.
    pub fn parse_fleet(json: &str) -> Result<Self, FleetWindowsError> {
        let windows: Vec<FleetWindow> = serde_json::from_str(json)?;
        let window = |window: FleetWindow| Window {
            days: window.days,
            from: window.from,
            to: window.to,
            time_zone: window.time_zone,
        };
        let windows: Vec<Window> = windows.into_iter().map(window).collect();
        Ok(Self::parse(&windows, None)?)
    }

    /// The same windows with another rule for work that is under way when they close.
    #[must_use]
    pub fn ending(self, end: WindowEnd) -> Self {
        Self { end, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn they_are_those_of_a_job() {
        let json = r#"[{"days":["Mon"],"from":"22:00","to":"06:00","timeZone":"Europe/Berlin"},{"from":"12:00","to":"13:00"}]"#;
        let job: Vec<Window> = serde_json::from_str(json).unwrap();
        let fleet = Windows::parse_fleet(json).unwrap();
        assert_eq!(fleet, Windows::parse(&job, None).unwrap());
        assert_eq!(
            fleet.ending(WindowEnd::Stop),
            Windows::parse(&job, Some(WindowEnd::Stop)).unwrap()
        );
        assert_eq!(Windows::parse_fleet("[]").unwrap(), Windows::default());
    }

    #[rstest]
    #[case::not_json("22:00-06:00", "give a JSON list")]
    #[case::not_a_list(r#"{"from":"22:00","to":"06:00"}"#, "give a JSON list")]
    #[case::misspelt(r#"[{"from":"22:00","to":"06:00","timezone":"UTC"}]"#, "unknown field `timezone`")]
    #[case::half(r#"[{"from":"22:00"}]"#, "missing field `to`")]
    #[case::time(r#"[{"from":"22:00","to":"25:00"}]"#, "\"25:00\" is no time of day")]
    #[case::day(r#"[{"days":["Monday"],"from":"22:00","to":"06:00"}]"#, "\"Monday\" is no day")]
    #[case::zone(r#"[{"from":"22:00","to":"06:00","timeZone":"Europe/Atlantis"}]"#, "Europe/Atlantis")]
    fn what_cannot_be_meant_is_named(#[case] json: &str, #[case] why: &str) {
        let error = Windows::parse_fleet(json).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
