//! One entry of `auths`: several ways to write one credential.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::EntryProblem;
use crate::Credential;

/// Docker pads, some tools do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(alias = "identityToken")]
    identitytoken: Option<String>,
}

/// `auth` wins over user name and password, as with docker and the kubelet.
pub(super) fn credential(value: Value) -> Result<Credential, EntryProblem> {
    let raw: RawEntry = serde_json::from_value(value).map_err(|_| EntryProblem::WrongShape)?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let identity_token = given(raw.identitytoken).map(SecretString::from);
    let (username, password) = match given(raw.auth) {
        Some(auth) => from_auth(&auth)?,
        None => (given(raw.username), given(raw.password)),
    };
    match (username, password, identity_token) {
        (None, None, None) => Err(EntryProblem::Empty),
        (Some(_), None, None) => Err(EntryProblem::NoPassword),
        (username, password, identity_token) => Ok(Credential {
            username: username.unwrap_or_default(),
            password: password.unwrap_or_default().into(),
            identity_token,
        }),
    }
}

fn from_auth(auth: &str) -> Result<(Option<String>, Option<String>), EntryProblem> {
    let decoded = BASE64.decode(auth.trim()).map_err(|_| EntryProblem::AuthNotBase64)?;
    let decoded = String::from_utf8(decoded).map_err(|_| EntryProblem::AuthWithoutColon)?;
    let decoded = SecretString::from(decoded);
    let (username, password) = decoded
        .expose_secret()
        .split_once(':')
        .ok_or(EntryProblem::AuthWithoutColon)?;
    // Old docker clients wrote fixed-size buffers, zeros included.
    let text = |text: &str| {
        Some(text.trim_matches('\0'))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    Ok((text(username), text(password)))
}
