//! The Secrets that tasks name.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;

/// A Secret, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
}

/// Which Secrets a job may use that has no namespace of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretNamespaces {
    /// Those of every namespace.
    #[default]
    All,
    /// Those of these namespaces.
    Only(BTreeSet<String>),
}

impl SecretNamespaces {
    /// Whether a Secret may be used.
    pub fn allow(&self, secret: &SecretRef) -> bool {
        match self {
            Self::All => true,
            Self::Only(namespaces) => namespaces.contains(&secret.namespace),
        }
    }
}

/// The Secrets of a job that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusableSecrets {
    /// These do not exist, or may not be used.
    pub missing: BTreeSet<SecretRef>,
    /// These hold no docker configuration.
    pub unreadable: BTreeSet<SecretRef>,
}

impl UnusableSecrets {
    /// Whether all Secrets can be used.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unreadable.is_empty()
    }

    /// Whether a Secret cannot be used.
    pub fn contains(&self, secret: &SecretRef) -> bool {
        self.missing.contains(secret) || self.unreadable.contains(secret)
    }

    /// All of them, whatever the cause.
    pub fn all(&self) -> BTreeSet<&SecretRef> {
        self.missing.union(&self.unreadable).collect()
    }

    /// Of these, the ones that are in `needed`.
    #[must_use]
    pub fn among(&self, needed: &BTreeSet<&SecretRef>) -> Self {
        let of = |unusable: &BTreeSet<SecretRef>| {
            unusable
                .iter()
                .filter(|secret| needed.contains(secret))
                .cloned()
                .collect()
        };
        Self {
            missing: of(&self.missing),
            unreadable: of(&self.unreadable),
        }
    }
}

/// A text that names no Secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given:?} does not name a Secret; write namespace/name, in lower case")]
pub struct SecretRefError {
    given: String,
}

impl SecretRef {
    /// Reads `namespace/name`.
    pub fn parse(text: &str) -> Result<Self, SecretRefError> {
        let (namespace, name) = text.split_once('/').unwrap_or((text, ""));
        Self::of(namespace, name).map_err(|_| SecretRefError {
            given: text.chars().take(100).collect(),
        })
    }

    /// Puts the two parts together.
    pub fn of(namespace: &str, name: &str) -> Result<Self, SecretRefError> {
        if is_label(namespace) && name.split('.').all(is_label) {
            return Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        let given = format!("{namespace}/{name}").chars().take(100).collect();
        Err(SecretRefError { given })
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One part of a DNS name, as Kubernetes demands of a name.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::guide("default/my-secret")]
    #[case::dots("team-a/registry.example.com")]
    fn reads(#[case] text: &str) {
        assert_eq!(SecretRef::parse(text).unwrap().to_string(), text);
    }

    #[rstest]
    #[case::all(SecretNamespaces::All, true)]
    #[case::this_one(SecretNamespaces::Only(["shops".to_owned(), "edge".to_owned()].into()), true)]
    #[case::another(SecretNamespaces::Only(["shop".to_owned()].into()), false)]
    #[case::none(SecretNamespaces::Only(BTreeSet::new()), false)]
    fn a_namespace_allows(#[case] namespaces: SecretNamespaces, #[case] allowed: bool) {
        assert_eq!(namespaces.allow(&SecretRef::parse("shops/login").unwrap()), allowed);
    }

    #[rstest]
    #[case::no_namespace("my-secret")]
    #[case::nothing("")]
    #[case::empty_namespace("/my-secret")]
    #[case::empty_name("default/")]
    #[case::three_parts("a/b/c")]
    #[case::capitals("Default/secret")]
    #[case::dotted_namespace("a.b/secret")]
    fn refuses(#[case] text: &str) {
        let error = SecretRef::parse(text).unwrap_err();
        assert!(error.to_string().contains("write namespace/name"), "{error}");
    }
}
