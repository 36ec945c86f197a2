//! Logs go to standard error: standard output belongs to what a program is asked for. A program whose terminal belongs to
//! a person writes them to a file.

use std::fs::File;
use std::str::FromStr;
use std::sync::Mutex;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("`{other}` is no log format; use text or json")),
        }
    }
}

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("`{filter}` is no log filter; write a level such as info, or target=level pairs with commas between them")]
    Filter {
        /// What was given.
        filter: String,
        /// Where reading stopped.
        source: ParseError,
    },
    /// Somebody has begun before.
    #[error("logging has been set up already")]
    Twice,
}

/// Begins to log, for the whole process.
pub fn init(format: LogFormat, filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(parse(filter)?));
    subscriber.try_init().map_err(|_| LogError::Twice)
}

/// Begins to log to a file, as text, for the whole process.
pub fn init_file(file: File, filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Mutex::new(file))
        .with_ansi(false);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(parse(filter)?));
    subscriber.try_init().map_err(|_| LogError::Twice)
}

/// Levels by target, and nothing more: filters by span fields would bring regular expressions, a megabyte of them.
fn parse(filter: &str) -> Result<Targets, LogError> {
    filter.parse().map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert!("xml".parse::<LogFormat>().unwrap_err().contains("use text or json"));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = init(LogFormat::Text, "larder=loud").unwrap_err();
        assert!(
            error.to_string().starts_with("`larder=loud` is no log filter"),
            "{error}"
        );
    }
}
