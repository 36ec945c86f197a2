//! What an error says, in one sentence with what to do, and which exit code it has. Scripts rely on the codes.

use std::process::ExitCode;

use crate::output;

/// How the CRDs get into a cluster.
const INSTALL: &str = "larder crds | kubectl apply --server-side -f -";

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    sentence: Option<String>,
}

impl Failure {
    /// The job failed, or the file has faults; it was said already.
    pub(crate) fn said() -> Self {
        Self {
            code: 1,
            sentence: None,
        }
    }

    /// It was done, and the outcome is bad.
    pub(crate) fn bad(sentence: impl Into<String>) -> Self {
        Self {
            code: 1,
            sentence: Some(sentence.into()),
        }
    }

    /// Wrong usage or file.
    pub(crate) fn wrong(sentence: impl Into<String>) -> Self {
        Self {
            code: 2,
            sentence: Some(sentence.into()),
        }
    }

    /// The API cannot be reached, or does not let us in.
    pub(crate) fn unreachable(sentence: impl Into<String>) -> Self {
        Self {
            code: 3,
            sentence: Some(sentence.into()),
        }
    }

    /// `--timeout` is over.
    pub(crate) fn timeout(sentence: impl Into<String>) -> Self {
        Self {
            code: 4,
            sentence: Some(sentence.into()),
        }
    }

    /// Ctrl-C.
    pub(crate) fn interrupted() -> Self {
        Self {
            code: 130,
            sentence: None,
        }
    }

    /// Ctrl-C, while something goes on elsewhere.
    pub(crate) fn interrupted_but(sentence: impl Into<String>) -> Self {
        Self {
            code: 130,
            sentence: Some(sentence.into()),
        }
    }

    /// What the API answered while we were doing something.
    pub(crate) fn from_api(doing: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 => Self::unreachable(format!(
                "{doing}: the API server does not accept the credentials; they may have expired, log in again"
            )),
            kube::Error::Api(status) if status.code == 403 => {
                Self::unreachable(format!("{doing}: not allowed: {}", status.message))
            }
            kube::Error::Api(status) if status.code == 404 && is_about_the_kind(&status.message) => Self::wrong(
                format!("{doing}: the cluster does not know this kind; install the CRDs: {INSTALL}"),
            ),
            kube::Error::Api(status) => Self::wrong(format!("{doing}: {}", status.message)),
            kube::Error::Discovery(_) => Self::wrong(format!(
                "{doing}: the cluster does not know this kind; check how it and its apiVersion are spelled, or install the CRDs: {INSTALL}"
            )),
            other => Self::unreachable(format!(
                "{doing}: the API server cannot be reached: {}; check --kubeconfig and --context",
                innermost(other)
            )),
        }
    }

    /// Prints the sentence and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(sentence) = &self.sentence {
            output::error(sentence);
        }
        ExitCode::from(self.code)
    }

    /// The sentence; empty where everything was said before.
    pub(crate) fn sentence(&self) -> &str {
        self.sentence.as_deref().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (u8, Option<&str>) {
        (self.code, self.sentence.as_deref())
    }
}

/// Whether a 404 means the kind and not an object of it. A server that knows the group but not the kind says the one, a
/// server that does not know the group says the other, in plain text.
fn is_about_the_kind(message: &str) -> bool {
    message.contains("could not find") || message == "404 page not found"
}

/// An error with its causes, each said once and in one line: some readers draw a picture of the place below it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = first_line(&error.to_string());
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = first_line(&next.to_string());
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

/// The line of a longer text that says what is wrong.
pub(crate) fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).replace(": error: ", ": ")
}

/// What is really wrong: clients wrap it in words about themselves.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use rstest::rstest;

    #[rstest]
    #[case::expired(401, "Unauthorized", 3, "log in again")]
    #[case::forbidden(403, "you may not", 3, "not allowed: you may not")]
    #[case::unknown_kind(404, "the server could not find the requested resource", 2, "install the CRDs")]
    #[case::unknown_group(404, "404 page not found", 2, "install the CRDs")]
    #[case::not_found(404, "imagepulljobs \"web\" not found", 2, "\"web\" not found")]
    #[case::refused(422, "spec.image: Required value", 2, "spec.image: Required value")]
    fn api_errors(#[case] code: u16, #[case] message: &str, #[case] exit: u8, #[case] says: &str) {
        let status = Status {
            code,
            message: message.into(),
            ..Status::default()
        };
        let failure = Failure::from_api("reading jobs", &kube::Error::Api(Box::new(status)));
        let (found, sentence) = failure.parts();
        assert_eq!(found, exit);
        assert!(sentence.unwrap().starts_with("reading jobs: "), "{sentence:?}");
        assert!(sentence.unwrap().contains(says), "{sentence:?}");
    }

    #[test]
    fn a_kind_that_is_misspelled_is_the_fault_of_the_file() {
        let missing = kube::error::DiscoveryError::MissingKind("GroupVersionKind { kind: \"ImagePulJob\" }".into());
        let failure = Failure::from_api("a.yaml: creating ImagePulJob x", &kube::Error::Discovery(missing));
        assert_eq!(
            failure.parts(),
            (
                2,
                Some(
                    "a.yaml: creating ImagePulJob x: the cluster does not know this kind; check how it and its apiVersion \
                     are spelled, or install the CRDs: larder crds | kubectl apply --server-side -f -"
                )
            )
        );
    }
}
