//! What can go wrong with a runtime, and which of the closed set of reasons it is.

use std::{fmt, io, path::PathBuf, time::Duration};

use larder_model::Reason;
use larder_registry::RegistryError;

use crate::classify;

/// A call that did not do what it was asked to.
///
/// The message says what we were doing; the cause is the source. [`RuntimeError::text`] prints both.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime, or the registry behind it, said no.
    #[error("cannot {doing}")]
    Refused {
        /// What we were doing: `pull nginx:latest`.
        doing: String,
        /// Which kind of trouble.
        reason: Reason,
        /// The runtime's own words.
        source: RuntimeText,
    },
    /// The registry said no, to a pull that we do ourselves.
    #[error("cannot {doing}")]
    Registry {
        /// What we were doing.
        doing: String,
        /// What the registry, or the way to it, did.
        source: RegistryError,
    },
    /// Nobody listens, or the connection broke.
    #[error("cannot {doing}: the container runtime at {endpoint} is away")]
    Down {
        /// What we were doing.
        doing: String,
        /// Whom we asked.
        endpoint: String,
        /// How it showed.
        source: RuntimeText,
    },
    /// The runtime took the question and gave no answer.
    #[error("cannot {doing}: the container runtime at {endpoint} did not answer within {}", seconds(*.after))]
    Unanswered {
        /// What we were doing.
        doing: String,
        /// Whom we asked.
        endpoint: String,
        /// How long we waited.
        after: Duration,
    },
    /// This runtime cannot do that.
    #[error("cannot {doing}: {why}")]
    Unsupported {
        /// What we were doing.
        doing: String,
        /// Why this runtime cannot.
        why: String,
    },
    /// Somebody else put that name there.
    #[error("cannot {doing}: the runtime already has an image of that name that is not ours")]
    ForeignReference {
        /// What we were doing.
        doing: String,
    },
    /// The image should be in the runtime, but is not.
    #[error("cannot {doing}: the runtime does not have the image")]
    Missing {
        /// What we were doing.
        doing: String,
    },
    /// The runtime did what we asked, but does not show it.
    #[error("cannot {doing}: the runtime accepted it, but does not show it")]
    NotShown {
        /// What we were doing.
        doing: String,
    },
    /// This machine's filesystem said no.
    #[error("cannot {doing} at {}", .path.display())]
    Io {
        /// What we were doing.
        doing: String,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// The runtime's own words, cut to a length that fits into a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeText(String);

impl RuntimeText {
    /// Longest text that is kept. Runtimes nest their errors; the end of the chain, which names the cause, stays.
    const MAX: usize = 4096;

    /// Keeps the text, or its end where it is too long.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.len() <= Self::MAX {
            return Self(text);
        }
        let mut start = text.len() - Self::MAX;
        while !text.is_char_boundary(start) {
            start += 1;
        }
        Self(format!("…{}", &text[start..]))
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuntimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuntimeText {}

impl RuntimeError {
    /// Which of the closed set of reasons this is.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused { reason, .. } => *reason,
            Self::Registry { source, .. } => source.reason,
            Self::Down { .. } | Self::Unanswered { .. } => Reason::RuntimeDown,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::NoSpace,
                _ => Reason::Internal,
            },
            Self::Unsupported { .. } | Self::ForeignReference { .. } | Self::Missing { .. } | Self::NotShown { .. } => {
                Reason::Internal
            }
        }
    }

    /// How long the registry asks to be left alone, where it said so to us.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Registry { source, .. } => source.retry_after,
            _ => None,
        }
    }

    /// The whole chain in one line, for a status message.
    pub fn text(&self) -> String {
        chain(self)
    }

    /// The runtime's or registry's own words where it said something, otherwise the whole chain: what upstream's tools expect to
    /// find behind `Failed to pull image reference …:`.
    pub fn runtime_text(&self) -> String {
        match self {
            Self::Refused { source, .. } => match classify::hint(source.as_str()) {
                Some(hint) => format!("{source} ({hint})"),
                None => source.to_string(),
            },
            Self::Registry { source, .. } => chain(source),
            other => other.text(),
        }
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_prints_every_cause_once() {
        let error = RuntimeError::Refused {
            doing: "pull nginx:latest".to_owned(),
            reason: Reason::NotFound,
            source: RuntimeText::new("manifest unknown"),
        };
        assert_eq!(error.text(), "cannot pull nginx:latest: manifest unknown");
        assert_eq!(error.runtime_text(), "manifest unknown");
    }

    #[test]
    fn a_damaged_blob_comes_with_what_to_do_about_it() {
        let said = "failed commit on ref \"layer-sha256:a\": unexpected commit digest sha256:b, expected sha256:a: failed precondition";
        let error = RuntimeError::Refused {
            doing: "pull nginx:latest".to_owned(),
            reason: classify::classify(tonic::Code::Unknown, said),
            source: RuntimeText::new(said),
        };
        assert_eq!(error.reason(), Reason::InvalidImage);
        let text = error.runtime_text();
        assert!(
            text.starts_with(said) && text.contains("push the image again"),
            "{text}"
        );
    }

    #[test]
    fn long_text_keeps_its_end() {
        let text = RuntimeText::new(format!("{}the cause", "ä".repeat(5000)));
        assert!(text.as_str().len() <= RuntimeText::MAX + '…'.len_utf8());
        assert!(text.as_str().ends_with("the cause"));
    }

    #[test]
    fn full_disk_is_no_space() {
        let error = RuntimeError::Io {
            doing: "write a blob".to_owned(),
            path: PathBuf::from("/x"),
            source: io::Error::from(io::ErrorKind::StorageFull),
        };
        assert_eq!(error.reason(), Reason::NoSpace);
    }
}
