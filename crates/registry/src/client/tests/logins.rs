//! Who gets in, with what.

use super::*;

pub(super) fn ann() -> Credential {
    Credential::basic("ann", "s3cret")
}

fn wrong() -> Credential {
    Credential::basic("ann", "wr0ng")
}

pub(super) fn with_identity_token(token: &str) -> Credential {
    Credential {
        identity_token: Some(token.into()),
        ..Credential::basic("<token>", "")
    }
}

#[rstest]
#[case::basic(Auth::Basic, vec![ann()])]
#[case::basic_second_try(Auth::Basic, vec![wrong(), ann()])]
#[case::token(Auth::Token, vec![ann()])]
#[case::token_third_try(Auth::Token, vec![wrong(), wrong(), ann()])]
#[case::identity_token(Auth::Token, vec![with_identity_token("refresh")])]
#[case::anonymous_token(Auth::AnonymousToken, vec![])]
#[case::open(Auth::Open, vec![])]
#[case::credentials_that_nobody_asks_for(Auth::Open, vec![wrong()])]
#[tokio::test]
async fn gets_in(#[case] auth: Auth, #[case] credentials: Vec<Credential>) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = auth;
    let repository = client().repository(&registry.image("app:v1"), credentials).unwrap();
    repository.resolve().await.unwrap();
    let before = registry.log().len();
    let image = repository.image_for(&amd64()).await.unwrap();
    fetched(&repository, &image.manifest.layers[0]).await.unwrap();
    // Once in, no request is refused or repeated: manifest, configuration, layer.
    assert_eq!(registry.log().len() - before, 3, "{:?}", registry.log());
}

#[rstest]
#[case::basic_without_any(Auth::Basic, vec![])]
#[case::basic_wrong(Auth::Basic, vec![wrong()])]
#[case::basic_all_wrong(Auth::Basic, vec![wrong(), Credential::basic("bob", "x")])]
#[case::token_without_any(Auth::Token, vec![])]
#[case::token_wrong(Auth::Token, vec![wrong()])]
#[case::identity_token_wrong(Auth::Token, vec![with_identity_token("stale")])]
#[case::no_anonymous_way_in_with_wrong_credentials(Auth::AnonymousToken, vec![wrong()])]
#[tokio::test]
async fn is_denied(#[case] auth: Auth, #[case] credentials: Vec<Credential>) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = auth;
    let repository = client().repository(&registry.image("app:v1"), credentials).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, Reason::AuthDenied);
    let told = format!("{error} {error:?}");
    assert!(!told.contains("wr0ng") && !told.contains("stale"), "{told}");
}

#[tokio::test]
async fn a_token_that_ended_is_renewed() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob("content");
    registry.shelf().auth = Auth::Token;
    let repository = client().repository(&registry.image("app:v1"), vec![ann()]).unwrap();
    for round in 0..3 {
        registry.shelf().token = round;
        assert_eq!(fetched(&repository, &blob).await.unwrap(), b"content");
    }
}

#[tokio::test]
async fn a_token_service_is_asked_for_the_repository_and_keeps_its_own_query() {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().auth = Auth::Token;
    let repository = client()
        .repository(&registry.image("team/app:v1"), vec![ann()])
        .unwrap();
    repository.resolve().await.unwrap();
    assert_eq!(
        registry.log()[1],
        "GET /token?x=y&service=fake&scope=repository%3Ateam%2Fapp%3Apull Basic"
    );
}

#[rstest]
#[case::not_an_address("token service", Reason::Unreachable)]
#[case::plain_http_from_https("http://192.0.2.1/token", Reason::Tls)]
#[case::plain_http_on_the_same_host("http://registry.example/token", Reason::Tls)]
#[case::another_scheme("ftp://registry.example/token", Reason::Tls)]
#[tokio::test]
async fn a_token_service_that_cannot_be_trusted_gets_nothing(#[case] realm: &str, #[case] reason: Reason) {
    let endpoint = Hosts::default().endpoints("registry.example").unwrap().remove(0);
    let settings = Settings::default();
    let transport = super::super::transport::Transport::new(settings.clone());
    let clients = transport.clients(&endpoint).unwrap();
    let gate = super::super::access::Gate {
        clients: &clients,
        endpoint: &endpoint,
        settings: &settings,
        default_scope: String::new(),
    };
    let challenge = super::super::challenge::Challenge::Bearer {
        realm: realm.to_owned(),
        service: None,
        scope: None,
    };
    let error = gate.answer(&challenge, Some(&ann())).await.unwrap_err();
    assert_eq!(error.reason, reason, "{error}");
}
