//! Logs go to standard error: standard output belongs to what a program is asked for.

use std::str::FromStr;

use tracing_subscriber::{EnvFilter, filter::ParseError};

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
    let parsed = EnvFilter::try_new(filter).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr);
    let begun = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    begun.map_err(|_| LogError::Twice)
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
