//! Who may read `/metrics`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, header};

/// Which clients get an answer from `/metrics`.
#[derive(Clone, Debug, Default)]
pub enum MetricsAccess {
    /// All of them.
    #[default]
    Open,
    /// Clients on a loopback address, and clients that send the bearer token in this file. The file is read for each request,
    /// so that a new token counts at once; without a file, or while it cannot be read or is empty, no token is right.
    Protected {
        /// Holds the token, and perhaps a line break.
        token_file: Option<PathBuf>,
    },
}

impl MetricsAccess {
    /// Whether a client may read the metrics.
    pub(crate) async fn allows(&self, peer: SocketAddr, headers: &HeaderMap) -> bool {
        let Self::Protected { token_file } = self else {
            return true;
        };
        if peer.ip().to_canonical().is_loopback() {
            return true;
        }
        match (token_file, bearer_token(headers)) {
            (Some(file), Some(given)) => is_in_file(file, given).await,
            _ => false,
        }
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn is_in_file(file: &Path, given: &str) -> bool {
    let Ok(text) = tokio::fs::read_to_string(file).await else {
        return false;
    };
    let token = text.trim();
    !token.is_empty() && same(token.as_bytes(), given.as_bytes())
}

/// Compares to the end, so that the time taken does not tell how much of a token was right.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: &str = "10.0.0.7:5000";

    async fn allowed(access: &MetricsAccess, peer: &str, authorization: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.extend(authorization.map(|value| (header::AUTHORIZATION, value.parse().unwrap())));
        access.allows(peer.parse().unwrap(), &headers).await
    }

    #[tokio::test]
    async fn the_token_in_the_file_counts_and_a_new_one_at_once() {
        let file = std::env::temp_dir().join(format!("{}.token", crate::instance_name("access")));
        let access = MetricsAccess::Protected {
            token_file: Some(file.clone()),
        };
        assert!(!allowed(&access, REMOTE, Some("Bearer ")).await, "there is no file yet");
        std::fs::write(&file, "\n").unwrap();
        assert!(
            !allowed(&access, REMOTE, Some("Bearer ")).await,
            "an empty file holds no token"
        );
        std::fs::write(&file, "first\n").unwrap();
        for (given, want) in [
            (None, false),
            (Some("Bearer first"), true),
            (Some("bearer first"), true),
            (Some("Basic first"), false),
            (Some("Bearer firs"), false),
            (Some("Bearer second"), false),
        ] {
            assert_eq!(allowed(&access, REMOTE, given).await, want, "{given:?}");
        }
        std::fs::write(&file, "second").unwrap();
        assert!(allowed(&access, REMOTE, Some("Bearer second")).await);
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn without_a_token_only_this_machine_is_answered() {
        let access = MetricsAccess::Protected { token_file: None };
        for peer in ["127.0.0.1:5000", "[::1]:5000", "[::ffff:127.0.0.1]:5000"] {
            assert!(allowed(&access, peer, None).await, "{peer}");
        }
        assert!(!allowed(&access, REMOTE, Some("Bearer anything")).await);
        assert!(allowed(&MetricsAccess::Open, REMOTE, None).await);
    }
}
