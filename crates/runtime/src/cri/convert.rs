//! Between our words and CRI's messages.

use std::collections::HashMap;

use larder_runtime_proto::runtime::v1 as proto;
use secrecy::ExposeSecret as _;

use crate::{Auth, LocalImage, MARKER_ANNOTATION, Sandbox};

pub(super) fn local_image(image: proto::Image) -> LocalImage {
    LocalImage::from_names(
        image.id,
        &image.repo_tags,
        &image.repo_digests,
        image.size,
        image.pinned,
    )
}

pub(super) fn auth_config(auth: &Auth) -> proto::AuthConfig {
    let empty = proto::AuthConfig::default();
    match auth {
        Auth::Basic { username, password } => proto::AuthConfig {
            username: username.clone(),
            password: password.expose_secret().to_owned(),
            ..empty
        },
        Auth::IdentityToken(token) => proto::AuthConfig {
            identity_token: token.expose_secret().to_owned(),
            ..empty
        },
        Auth::RegistryToken(token) => proto::AuthConfig {
            registry_token: token.expose_secret().to_owned(),
            ..empty
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
