//! Who is asking: bearer tokens and the users behind them.

use std::fmt;

use http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};

/// The user behind a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name, such as `admin`.
    pub name: String,
    /// Groups, such as `system:masters`.
    pub groups: Vec<String>,
}

impl User {
    /// May do everything.
    pub fn admin() -> Self {
        Self {
            name: "admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }
}

/// Tokens that are accepted over the network.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Vec<(SecretString, User)>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokens")
            .field(
                "users",
                &self.known.iter().map(|(_, user)| &user.name).collect::<Vec<_>>(),
            )
            .finish()
    }
}

impl Tokens {
    /// Accepts one token of the administrator.
    pub fn admin(token: SecretString) -> Self {
        Self {
            known: vec![(token, User::admin())],
        }
    }

    /// Accepts one more token.
    #[must_use]
    pub fn with(mut self, token: SecretString, user: User) -> Self {
        self.known.push((token, user));
        self
    }

    /// The user of the request's bearer token.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<&User> {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // Every token is compared to its end, so that the time taken tells nothing about how much of one was right.
        let mut found = None;
        for (known, user) in &self.known {
            if same(known.expose_secret().as_bytes(), token.trim().as_bytes()) {
                found = Some(user);
            }
        }
        found
    }
}

fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
