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

/// A login, for this server alone (`scheme://host[:port]`). What the runtimes make of that:
///
/// - containerd 1.6, 1.7 and 2.x: a login without a server is for every host that asks, mirrors and redirect targets
///   included. One with a server is for hosts that equal the host and port of that URL. Without a scheme the pull fails,
///   or nothing matches. Docker Hub is `registry-1.docker.io`.
/// - CRI-O: does not read the server. Its library gives the login to the registry in the image's name, not to mirrors in
///   `registries.conf`, and does not answer challenges of redirect targets. It does not read identity tokens either.
/// - cri-dockerd: passes it on to dockerd. With the containerd image store, dockerd compares hosts as containerd does.
///   With its older store it does not read the server: redirect targets get no login, but `registry-mirrors`, which
///   exist for Docker Hub alone, do. CRI cannot prevent that.
///
/// An identity token goes out alone: containerd would take the user name beside it for a plain login.
pub(super) fn auth_config(auth: &Credential, server: &str) -> proto::AuthConfig {
    let for_server = proto::AuthConfig {
        server_address: server.to_owned(),
        ..proto::AuthConfig::default()
    };
    match &auth.identity_token {
        Some(token) => proto::AuthConfig {
            identity_token: token.expose_secret().to_owned(),
            ..for_server
        },
        None => proto::AuthConfig {
            username: auth.username.clone(),
            password: auth.password.expose_secret().to_owned(),
            ..for_server
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
        let sent = auth_config(&credential, "https://a.io");
        assert_eq!((sent.identity_token.as_str(), sent.username.as_str()), ("abc", ""));
        assert_eq!(sent.server_address, "https://a.io");
    }
}
