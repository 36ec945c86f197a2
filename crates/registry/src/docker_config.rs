//! Credentials as docker writes them: `.dockerconfigjson` with its `auths`, and the older `.dockercfg` without.
//!
//! One broken entry is reported and the others are used. Error texts name the entry and never show a value, not even
//! through the JSON parser's own messages, which may quote what they found.

mod entry;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::Credential;
use crate::keyring::{ImagePattern, PatternError};

/// Credentials and the images they are for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which images.
    pub pattern: ImagePattern,
    /// What to present.
    pub credential: Credential,
}

/// What a file or secret gave.
#[derive(Debug, Default)]
pub struct DockerConfig {
    /// The entries that can be used.
    pub entries: Vec<Entry>,
    /// The entries that cannot, and why.
    pub broken: Vec<EntryError>,
}

/// Why a whole file or secret cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// Not JSON at all.
    #[error("the docker configuration is not valid JSON (line {line}, column {column})")]
    NotJson {
        /// Where reading stopped.
        line: usize,
        /// Where reading stopped.
        column: usize,
    },
    /// JSON of another shape.
    #[error(
        "the docker configuration has no object `auths`; store the output of `docker login` or use kubectl create secret docker-registry"
    )]
    NoAuths,
    /// Legacy file of another shape.
    #[error("the docker configuration is not an object of registries")]
    NotAnObject,
}

/// Why one entry cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credentials for `{registry}` cannot be used")]
pub struct EntryError {
    /// The entry's key.
    pub registry: String,
    /// What is wrong with it.
    #[source]
    pub problem: EntryProblem,
}

/// What is wrong with an entry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// The key.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A field has the wrong type.
    #[error("its fields must be texts: auth, username, password, identitytoken")]
    WrongShape,
    /// `auth` is not base64.
    #[error("its `auth` is not base64")]
    AuthNotBase64,
    /// `auth` decodes to something else.
    #[error("its `auth` is not the base64 form of username:password")]
    AuthWithoutColon,
    /// There is a user name alone.
    #[error("it has a username and no password")]
    NoPassword,
    /// There is nothing in it.
    #[error("it is empty; a credential helper may hold them where docker login ran, but not here")]
    Empty,
}

#[derive(Deserialize)]
struct WithAuths {
    auths: BTreeMap<String, Value>,
}

impl DockerConfig {
    /// Reads `.dockerconfigjson`, docker's `config.json`.
    pub fn from_config_json(json: &[u8]) -> Result<Self, DockerConfigError> {
        let value = any_json(json)?;
        let file: WithAuths = serde_json::from_value(value).map_err(|_| DockerConfigError::NoAuths)?;
        Ok(Self::from_auths(file.auths))
    }

    /// Reads the older `.dockercfg`, which is the content of `auths` alone.
    pub fn from_legacy_cfg(json: &[u8]) -> Result<Self, DockerConfigError> {
        match any_json(json)? {
            Value::Object(auths) => Ok(Self::from_auths(auths)),
            _ => Err(DockerConfigError::NotAnObject),
        }
    }

    /// Reads the data of a Secret of either docker type; `data` finds the value of a key. None if there is no such key, or its
    /// value cannot be read.
    pub fn from_secret<'a>(data: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Self> {
        match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(json), _) => Self::from_config_json(json).ok(),
            (None, Some(json)) => Self::from_legacy_cfg(json).ok(),
            (None, None) => None,
        }
    }

    fn from_auths(auths: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut config = Self::default();
        for (registry, value) in auths {
            match read_entry(&registry, value) {
                Ok(entry) => config.entries.push(entry),
                Err(problem) => config.broken.push(EntryError { registry, problem }),
            }
        }
        config
    }
}

fn any_json(json: &[u8]) -> Result<Value, DockerConfigError> {
    serde_json::from_slice(json).map_err(|error| DockerConfigError::NotJson {
        line: error.line(),
        column: error.column(),
    })
}

fn read_entry(registry: &str, value: Value) -> Result<Entry, EntryProblem> {
    let pattern = ImagePattern::parse(registry)?;
    Ok(Entry {
        pattern,
        credential: entry::credential(value)?,
    })
}

#[cfg(test)]
mod tests;
