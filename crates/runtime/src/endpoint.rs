//! Where a runtime listens.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A unix socket, written as a person would: `/run/x.sock` or `unix:///run/x.sock`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeEndpoint(PathBuf);

/// Text that names no unix socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no runtime endpoint: write the path of a unix socket, such as unix:///run/containerd/containerd.sock"
)]
pub struct RuntimeEndpointError(String);

impl RuntimeEndpoint {
    /// Reads `unix:///path`, `unix:/path` or `/path`.
    pub fn parse(text: &str) -> Result<Self, RuntimeEndpointError> {
        let path = text
            .strip_prefix("unix://")
            .or_else(|| text.strip_prefix("unix:"))
            .unwrap_or(text);
        if path.starts_with('/') && !path.ends_with('/') {
            Ok(Self(PathBuf::from(path)))
        } else {
            Err(RuntimeEndpointError(text.to_owned()))
        }
    }

    /// The socket at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Prints the form that flags take: `unix:///path`.
impl fmt::Display for RuntimeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

impl std::str::FromStr for RuntimeEndpoint {
    type Err = RuntimeEndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::kubelet_form("unix:///run/containerd/containerd.sock")]
    #[case::bare_path("/run/containerd/containerd.sock")]
    #[case::one_slash("unix:/run/containerd/containerd.sock")]
    fn forms(#[case] text: &str) {
        let endpoint = RuntimeEndpoint::parse(text).unwrap();
        assert_eq!(endpoint.path(), Path::new("/run/containerd/containerd.sock"));
        assert_eq!(endpoint.to_string(), "unix:///run/containerd/containerd.sock");
    }

    #[rstest]
    #[case::empty("")]
    #[case::tcp("tcp://127.0.0.1:2375")]
    #[case::relative("containerd.sock")]
    #[case::relative_unix("unix://containerd.sock")]
    #[case::folder("/run/containerd/")]
    #[case::windows_pipe("npipe://./pipe/containerd-containerd")]
    fn refused(#[case] text: &str) {
        assert!(RuntimeEndpoint::parse(text).is_err());
    }
}
