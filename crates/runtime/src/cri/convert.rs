//! Between our words and CRI's messages.

use std::collections::HashMap;

use larder_registry::Platform;
use larder_runtime_proto::runtime::v1 as proto;
use secrecy::ExposeSecret as _;
use serde::Deserialize;

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

/// What an image is built for, in what containerd and CRI-O tell of it beyond CRI.
pub(super) fn platform(info: &str) -> Option<Platform> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        image_spec: Platform,
    }
    let Info { image_spec } = serde_json::from_str(info).ok()?;
    let says = !image_spec.os.is_empty() && !image_spec.architecture.is_empty();
    says.then_some(image_spec)
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
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::containerd(
        r#"{"chainID":"x","imageSpec":{"created":"t","architecture":"arm64","os":"linux","config":{}}}"#,
        Some("linux/arm64")
    )]
    #[case::variant(
        r#"{"imageSpec":{"architecture":"arm","os":"linux","variant":"v7"}}"#,
        Some("linux/arm/v7")
    )]
    #[case::an_image_that_says_nothing(r#"{"imageSpec":{"architecture":"","os":""}}"#, None)]
    #[case::another_runtime(r#"{"size":7}"#, None)]
    #[case::no_json("containerd", None)]
    fn what_an_image_is_built_for(#[case] info: &str, #[case] want: Option<&str>) {
        assert_eq!(platform(info).map(|platform| platform.to_string()).as_deref(), want);
    }

    #[test]
    fn an_identity_token_goes_out_without_a_user_name() {
        let mut credential = Credential::basic("<token>", "");
        credential.identity_token = Some("abc".into());
        let sent = auth_config(&credential);
        assert_eq!((sent.identity_token.as_str(), sent.username.as_str()), ("abc", ""));
    }
}
