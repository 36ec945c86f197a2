//! One error type: sentences that say what was being done and, where it can be said, what to do about it.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a server could not be started, used or stopped.
#[derive(thiserror::Error)]
pub enum Error {
    /// A program of the test bed is not installed.
    #[error("{} is not there: run tests/servers/setup", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A server ended although nobody asked it to.
    #[error("{program} ended by itself ({status}); the end of its log:\n{log}")]
    Ended {
        /// The server.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it wrote.
        log: String,
    },
    /// A condition was not met in time.
    #[error("waited {after:?} for {what}: {last}")]
    Late {
        /// The condition.
        what: String,
        /// How long was waited.
        after: Duration,
        /// What was seen last.
        last: String,
    },
    /// A call to the Kubernetes API failed.
    #[error("{doing}")]
    Kube {
        /// What was being done.
        doing: String,
        /// The client's error.
        source: Box<kube::Error>,
    },
    /// A command that should have done something said no.
    #[error("{doing}: it ended with {status} and said {said:?}")]
    Failed {
        /// What was being done.
        doing: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to its error output.
        said: String,
    },
    /// A request over HTTP failed.
    #[error("{doing}")]
    Http {
        /// What was being done.
        doing: String,
        /// The client's error.
        source: reqwest::Error,
    },
    /// A registry answered, but not as expected.
    #[error("{doing}: the registry answered {answer}")]
    Refused {
        /// What was being done.
        doing: String,
        /// Status and text of the answer.
        answer: String,
    },
    /// A certificate could not be made.
    #[error("making the certificates of the control plane")]
    Certificate(#[from] rcgen::Error),
}

impl Error {
    /// For `map_err`: a failed system call while doing something.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// For `map_err`: a failed request while doing something.
    pub(crate) fn http(doing: impl Into<String>) -> impl FnOnce(reqwest::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Http { doing, source }
    }

    /// For `map_err`: a failed call to the API server while doing something.
    pub(crate) fn kube(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Kube {
            doing,
            source: Box::new(source),
        }
    }
}

/// Tests print errors by `unwrap`, which uses `Debug`: the sentence, its causes, and the log with its line breaks.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
