//! What one presents to a registry.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A user name with a password, or an identity token in place of the password.
#[derive(Clone)]
pub struct Credential {
    /// Who logs in; may be empty beside an identity token.
    pub username: String,
    /// The password; may be empty beside an identity token.
    pub password: SecretString,
    /// A refresh token that the registry's token service exchanges for access.
    pub identity_token: Option<SecretString>,
}

impl Credential {
    /// A user name and a password.
    pub fn basic(username: impl Into<String>, password: impl Into<SecretString>) -> Self {
        Self {
            username: username.into(),
            password: password.into(),
            identity_token: None,
        }
    }
}

/// Compares the secrets too, to leave out credentials that two sources both know.
impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        let token = |c: &Credential| c.identity_token.as_ref().map(|t| t.expose_secret().to_owned());
        self.username == other.username
            && self.password.expose_secret() == other.password.expose_secret()
            && token(self) == token(other)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_who_but_not_the_secrets() {
        let mut credential = Credential::basic("ann", "s3cret");
        credential.identity_token = Some("t0ken".into());
        let text = format!("{credential:?} {credential:#?}");
        assert!(
            text.contains("ann") && !text.contains("s3cret") && !text.contains("t0ken"),
            "{text}"
        );
    }

    #[test]
    fn credentials_with_different_secrets_differ() {
        assert_eq!(Credential::basic("a", "b"), Credential::basic("a", "b"));
        assert_ne!(Credential::basic("a", "b"), Credential::basic("a", "c"));
    }
}
