//! Between our words and CRI's messages.

use std::collections::HashMap;

use larder_runtime_proto::runtime::v1 as proto;
use secrecy::ExposeSecret as _;

use crate::{Credential, LocalImage, MARKER_ANNOTATION, Sandbox};

pub(super) fn local_image(image: proto::Image) -> LocalImage {
    LocalImage::from_names(
        image.id,
        &image.repo_tags,
        &image.repo_digests,
        image.size,
        image.pinned,
    )
}

/// An identity token goes out alone: containerd would take the user name beside it for a plain login.
pub(super) fn auth_config(auth: &Credential) -> proto::AuthConfig {
    match &auth.identity_token {
        Some(token) => proto::AuthConfig {
            identity_token: token.expose_secret().to_owned(),
            ..proto::AuthConfig::default()
        },
        None => proto::AuthConfig {
            username: auth.username.clone(),
            password: auth.password.expose_secret().to_owned(),
            ..proto::AuthConfig::default()
        },
    }
}

/// Always present, with the marker, as upstream sends it. Built anew for each pull: two pulls never share a map.
pub(super) fn sandbox_config(sandbox: &Sandbox) -> proto::PodSandboxConfig {
    let copy = |(key, value): (&String, &String)| (key.clone(), value.clone());
    let mut annotations: HashMap<String, String> = sandbox.annotations.iter().map(copy).collect();
    annotations.insert(MARKER_ANNOTATION.0.to_owned(), MARKER_ANNOTATION.1.to_owned());
    proto::PodSandboxConfig {
        metadata: None,
        labels: sandbox.labels.iter().map(copy).collect(),
        annotations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_token_goes_out_without_a_user_name() {
        let mut credential = Credential::basic("<token>", "");
        credential.identity_token = Some("abc".into());
        let sent = auth_config(&credential);
        assert_eq!((sent.identity_token.as_str(), sent.username.as_str()), ("abc", ""));
    }
}
