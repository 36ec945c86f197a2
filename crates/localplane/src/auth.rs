//! Bearer tokens that are accepted over the network. Every one of them may do everything.

use std::fmt;

use http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};

/// The tokens that are accepted.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Option<SecretString>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Accepts one token, that of the administrator.
    pub fn admin(token: SecretString) -> Self {
        Self { known: Some(token) }
    }

    /// Whether the request has a token that is accepted.
    pub(crate) fn accept(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((scheme, token)) = given.split_once(' ') else {
            return false;
        };
        let same_token = |known: &SecretString| same(known.expose_secret().as_bytes(), token.trim().as_bytes());
        scheme.eq_ignore_ascii_case("bearer") && self.known.as_ref().is_some_and(same_token)
    }
}

/// Compares to the end, so that the time taken does not tell how much of a token was right.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
