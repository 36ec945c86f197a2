//! A login is for one host. What other hosts try to get it: a redirect, a token service, a mirror.
//!
//! 127.0.0.1 and 127.0.0.2 are two hosts here.

use super::logins::{ann, with_identity_token};
use super::*;

const ELSEWHERE: &str = "127.0.0.2";

/// A client that trusts every certificate of these registries, and reaches them over TLS.
fn trusting(registries: &[&FakeRegistry]) -> (tempfile::TempDir, RegistryClient) {
    let dir = tempfile::tempdir().unwrap();
    for registry in registries {
        let own = dir.path().join(&registry.address);
        fs::create_dir(&own).unwrap();
        let text = format!("server = \"{}\"\nskip_verify = true", registry.origin());
        fs::write(own.join("hosts.toml"), text).unwrap();
    }
    let settings = Settings {
        hosts: Hosts::in_dir(dir.path()),
        tries: 1,
        ..Settings::default()
    };
    (dir, RegistryClient::new(settings))
}

async fn get(client: &RegistryClient, registry: &FakeRegistry, login: Credential) -> Result<(), RegistryError> {
    let repository = client.repository(&registry.image("app:v1"), vec![login])?;
    let image = repository.image_for(&amd64()).await?;
    fetched(&repository, &image.manifest.layers[0]).await.map(drop)
}

#[rstest]
#[case::of_an_open_registry(Auth::Open, ann())]
#[case::of_an_open_registry_identity_token(Auth::Open, with_identity_token("refresh"))]
#[case::basic(Auth::Basic, ann())]
#[case::token(Auth::Token, ann())]
#[case::identity_token(Auth::Token, with_identity_token("refresh"))]
#[tokio::test]
async fn a_redirect_target_that_asks_for_a_login_gets_none(
    #[case] registry_wants: Auth,
    #[case] login: Credential,
    #[values(Auth::Basic, Auth::Token)] target_wants: Auth,
    #[values(true, false)] manifests: bool,
) {
    let (registry, target) = (FakeRegistry::start().await, FakeRegistry::start_at(ELSEWHERE).await);
    for each in [&registry, &target] {
        each.add_image("v1", "amd64", b"layer");
    }
    registry.shelf().auth = registry_wants;
    registry.shelf().redirects_to = Some(target.origin());
    registry.shelf().redirects_manifests = manifests;
    target.shelf().auth = target_wants;
    let error = get(&client(), &registry, login).await.unwrap_err();
    assert_eq!(error.reason, Reason::AuthDenied, "{error}");
    assert!(error.message.contains(&target.address), "{error}");
    assert!(!target.log().is_empty(), "the redirect was not followed");
    assert_eq!(target.secrets(), Vec::<String>::new());
}

#[rstest]
#[case::plain_on_another_host("127.0.0.1", ELSEWHERE, false, false, false)]
#[case::plain_on_the_same_host("127.0.0.1", "127.0.0.1", false, false, true)]
#[case::tls_on_another_host("127.0.0.1", ELSEWHERE, true, true, true)]
#[case::tls_behind_a_plain_registry("127.0.0.1", ELSEWHERE, false, true, true)]
#[case::plain_behind_tls_on_the_same_host("127.0.0.1", "127.0.0.1", true, false, false)]
#[tokio::test]
async fn a_token_service_gets_a_login_by_tls_or_where_the_registry_itself_is_plain(
    #[case] registry_at: &str,
    #[case] service_at: &str,
    #[case] registry_has_tls: bool,
    #[case] service_has_tls: bool,
    #[case] gets_it: bool,
    #[values(ann(), with_identity_token("refresh"))] login: Credential,
) {
    let start = async |at: &str, tls: bool| {
        if tls {
            FakeRegistry::start_tls(at).await
        } else {
            FakeRegistry::start_at(at).await
        }
    };
    let (registry, service) = (
        start(registry_at, registry_has_tls).await,
        start(service_at, service_has_tls).await,
    );
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = Auth::Token;
    registry.shelf().realm = Some(format!("{}/token", service.origin()));
    let (_dir, client) = trusting(&[&registry]);
    let got = get(&client, &registry, login).await;
    assert_eq!(
        got.as_ref().err().map(|error| error.reason),
        (!gets_it).then_some(Reason::Tls),
        "{got:?}"
    );
    assert_eq!(!service.secrets().is_empty(), gets_it, "{:?}", service.log());
}

/// A status of 307 or 308 makes HTTP clients send the same body again, to wherever the answer points.
#[rstest]
#[tokio::test]
async fn a_redirected_token_request_takes_no_login_along(
    #[values(301, 302, 303, 307, 308)] status: u16,
    #[values(ann(), with_identity_token("refresh"))] login: Credential,
    #[values(false, true)] from_tls_to_plain: bool,
) {
    let registry = if from_tls_to_plain {
        FakeRegistry::start_tls("127.0.0.1").await
    } else {
        FakeRegistry::start().await
    };
    let target = FakeRegistry::start_at(if from_tls_to_plain { "127.0.0.1" } else { ELSEWHERE }).await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = Auth::Token;
    registry.shelf().token_redirect = Some((status, format!("{}/token", target.origin())));
    let (_dir, client) = trusting(&[&registry]);
    let error = get(&client, &registry, login).await.unwrap_err();
    assert_eq!(target.secrets(), Vec::<String>::new());
    assert_eq!(target.log(), Vec::<String>::new());
    let reason = if from_tls_to_plain {
        Reason::Tls
    } else {
        Reason::Unreachable
    };
    assert_eq!(error.reason, reason, "{error:?}");
    assert!(causes(&error).contains("redirects"), "{error:?}");
}

#[rstest]
#[case::login(ann())]
#[case::identity_token(with_identity_token("refresh"))]
#[tokio::test]
async fn a_token_service_may_redirect_to_itself(#[case] login: Credential) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = Auth::Token;
    registry.shelf().token_redirect = Some((307, format!("{}/moved-token", registry.origin())));
    get(&client(), &registry, login).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn nothing_follows_from_https_to_http_even_on_this_machine(#[values("127.0.0.1", ELSEWHERE)] target_at: &str) {
    let (registry, target) = (
        FakeRegistry::start_tls("127.0.0.1").await,
        FakeRegistry::start_at(target_at).await,
    );
    for each in [&registry, &target] {
        each.add_image("v1", "amd64", b"layer");
        each.shelf().auth = Auth::Basic;
    }
    registry.shelf().redirects_to = Some(target.origin());
    registry.shelf().redirects_manifests = true;
    let (_dir, client) = trusting(&[&registry]);
    let error = get(&client, &registry, ann()).await.unwrap_err();
    assert_eq!(error.reason, Reason::Tls, "{error:?}");
    assert_eq!(target.log(), Vec::<String>::new());
}
