//! Logs go to standard error: standard output belongs to what a program is asked for. `larder up`, whose terminal is
//! interactive, writes them to a file. Foreign text in them is escaped, in both formats.

mod escaping;

use std::fs::File;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::Mutex;

use larder_model::escape_line;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::escaping::Escaping;

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
    /// The process has a subscriber already.
    #[error("logging has been set up already")]
    Twice,
}

/// Begins to log, for the whole process.
pub fn init(format: LogFormat, filter: &str) -> Result<(), LogError> {
    let lines = lines(format, std::io::stderr);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(parse(filter)?));
    subscriber.try_init().map_err(|_| LogError::Twice)
}

/// Begins to log to a file, as text, for the whole process.
pub fn init_file(file: File, filter: &str) -> Result<(), LogError> {
    let lines = lines(LogFormat::Text, Mutex::new(file));
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(parse(filter)?));
    subscriber.try_init().map_err(|_| LogError::Twice)
}

/// Prints why a program ends, to standard error: logging may not have begun.
pub fn report(program: &str, sentence: &str) {
    // Standard error may be closed; then the exit code has to do.
    writeln!(std::io::stderr(), "{program}: {}", escape_line(sentence)).ok();
}

fn lines<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let writer = Escaping { inner: writer, format };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
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
    use std::io;
    use std::sync::Arc;

    use super::*;

    /// What was logged, in memory.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Clears the screen, sets the title, turns text around, and pretends to be a line of its own.
    const HOSTILE: &str =
        "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1m\u{202e}dne\u{2069}\n2026-01-01T00:00:00Z ERROR forged\r";

    fn logged(format: LogFormat) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = tracing_subscriber::registry().with(lines(format, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info_span!("pull", image = HOSTILE).in_scope(|| {
                tracing::warn!(said = %HOSTILE, debugged = ?HOSTILE, "a registry answered {HOSTILE}");
            });
        });
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn foreign_text_is_escaped_in_text() {
        let text = logged(LogFormat::Text);
        let (line, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "", "one event, one line: {text:?}");
        assert_eq!(escape_line(line), line, "{text:?}");
        assert!(
            line.contains("a registry answered") && line.contains("\\u{202e}dne"),
            "{line}"
        );
    }

    #[test]
    fn foreign_text_is_escaped_in_json_and_keeps_its_meaning() {
        let text = logged(LogFormat::Json);
        let (line, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "", "one event, one line: {text:?}");
        assert_eq!(escape_line(line), line, "{text:?}");
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["said"], HOSTILE);
        assert_eq!(event["message"], format!("a registry answered {HOSTILE}"));
    }

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
