//! What is said to a plugin and how its answer is read.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_model::ImageRef;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cache::CacheKey;
use super::duration;
use crate::docker_config::Entry;
use crate::keyring::ImagePattern;
use crate::{Credential, Keyring};

/// What a plugin answered.
pub(super) struct Answer {
    pub(super) keyring: Keyring,
    pub(super) cache_key: CacheKey,
    /// `None`: as long as the configuration says.
    pub(super) cache_for: Option<Duration>,
    /// How many entries of the answer were left out: their key fits no image, or they hold no password.
    pub(super) broken: usize,
}

/// Why an answer cannot be used. Never quotes the answer, which holds passwords.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not the JSON that the protocol asks for.
    #[error("its answer is not a CredentialProviderResponse in JSON (line {line}, column {column})")]
    NotJson {
        /// Where reading stopped.
        line: usize,
        /// Where reading stopped.
        column: usize,
    },
    /// It speaks another version than it was asked in.
    #[error("its answer has another apiVersion or kind than it was asked in")]
    WrongKind,
    /// It does not say under which key to keep the answer.
    #[error("its answer has a cacheKeyType other than Image, Registry and Global")]
    CacheKey,
    /// It says nonsense about how long to keep the answer.
    #[error("its answer has a cacheDuration that is not a duration such as 6h")]
    CacheDuration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawAnswer {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct RawAuth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// The request, as the kubelet words it: the image's full name without tag or digest.
pub(super) fn request(api_version: &str, image: &ImageRef) -> Vec<u8> {
    let request: Value = json!({
        "apiVersion": api_version,
        "kind": "CredentialProviderRequest",
        "image": format!("{}/{}", image.registry(), image.repository()),
    });
    request.to_string().into_bytes()
}

pub(super) fn answer(output: &[u8], api_version: &str) -> Result<Answer, AnswerError> {
    let raw: RawAnswer = serde_json::from_slice(output).map_err(|error| AnswerError::NotJson {
        line: error.line(),
        column: error.column(),
    })?;
    if raw.api_version != api_version || raw.kind != "CredentialProviderResponse" {
        return Err(AnswerError::WrongKind);
    }
    let cache_key = match &*raw.cache_key_type {
        "Image" => CacheKey::Image,
        "Registry" => CacheKey::Registry,
        "Global" => CacheKey::Global,
        _ => return Err(AnswerError::CacheKey),
    };
    let cache_for = match raw.cache_duration {
        Some(text) => Some(duration::parse(&text).ok_or(AnswerError::CacheDuration)?),
        None => None,
    };
    let given = raw.auth.unwrap_or_default();
    let told = given.len();
    let entries: Vec<Entry> = given.into_iter().filter_map(entry).collect();
    let broken = told - entries.len();
    let mut keyring = Keyring::default();
    keyring.extend(entries);
    Ok(Answer {
        keyring,
        cache_key,
        cache_for,
        broken,
    })
}

/// One entry, or `None` where it cannot be used; the answer's other entries still count. Without a password it would be
/// sent as a login that every registry refuses, where an anonymous pull may succeed.
fn entry((key, auth): (String, Value)) -> Option<Entry> {
    let auth: RawAuth = serde_json::from_value(auth).ok()?;
    let pattern = ImagePattern::parse(&key).ok()?;
    (!auth.password.is_empty()).then(|| Entry {
        pattern,
        credential: Credential::basic(auth.username, auth.password),
    })
}
