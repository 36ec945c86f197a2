//! The credentials themselves, and their form inside the box.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

/// The text inside the box is filled up to a multiple of this, so that its length does not tell the password's.
const BLOCK: usize = 256;

/// One way to log in to a registry.
#[derive(Clone)]
pub struct Login {
    /// Who.
    pub username: String,
    /// With what.
    pub password: SecretString,
    /// A refresh token in place of the password.
    pub identity_token: Option<SecretString>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    username: &'a str,
    password: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_token: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    username: String,
    password: String,
    #[serde(default)]
    identity_token: Option<String>,
}

impl Login {
    /// A user name and a password.
    pub fn new(username: impl Into<String>, password: impl Into<SecretString>) -> Self {
        Self {
            username: username.into(),
            password: password.into(),
            identity_token: None,
        }
    }

    /// How long its texts are together, in bytes.
    pub fn bytes(&self) -> usize {
        let token = self.identity_token.as_ref();
        let token = token.map_or(0, |token| token.expose_secret().len());
        self.username.len() + self.password.expose_secret().len() + token
    }
}

/// JSON, filled up with spaces.
pub(crate) fn to_text(logins: &[Login]) -> Option<SecretString> {
    let written: Vec<Written<'_>> = logins
        .iter()
        .map(|login| Written {
            username: &login.username,
            password: login.password.expose_secret(),
            identity_token: login.identity_token.as_ref().map(SecretString::expose_secret),
        })
        .collect();
    let mut text = serde_json::to_string(&written).ok()?;
    text.extend(std::iter::repeat_n(
        ' ',
        text.len().next_multiple_of(BLOCK) - text.len(),
    ));
    Some(text.into())
}

pub(crate) fn from_text(text: &SecretString) -> Option<Vec<Login>> {
    let read: Vec<Read> = serde_json::from_str(text.expose_secret()).ok()?;
    let login = |read: Read| Login {
        username: read.username,
        password: read.password.into(),
        identity_token: read.identity_token.map(SecretString::from),
    };
    Some(read.into_iter().map(login).collect())
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}
