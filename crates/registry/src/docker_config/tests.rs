use larder_model::ImageRef;
use proptest::prelude::*;
use rstest::rstest;
use secrecy::ExposeSecret;

use super::*;
use crate::Keyring;

fn only(json: &str) -> Credential {
    let config = DockerConfig::from_config_json(format!(r#"{{"auths":{{"a.io":{json}}}}}"#).as_bytes()).unwrap();
    assert!(config.broken.is_empty(), "{:?}", config.broken);
    config.entries.into_iter().next().unwrap().credential
}

#[rstest]
#[case::auth(r#"{"auth":"YW5uOnMzY3JldA=="}"#, "ann", "s3cret")]
#[case::auth_without_padding(r#"{"auth":"YW5uOnMzY3JldA"}"#, "ann", "s3cret")]
#[case::auth_with_line_feed(r#"{"auth":"YW5uOnMzY3JldA==\n"}"#, "ann", "s3cret")]
#[case::auth_with_colons_in_the_password(r#"{"auth":"YTpiOmM="}"#, "a", "b:c")]
#[case::auth_wins(r#"{"auth":"YTpi","username":"x","password":"y"}"#, "a", "b")]
#[case::empty_auth_does_not(r#"{"auth":"","username":"x","password":"y"}"#, "x", "y")]
#[case::name_and_password(r#"{"username":"x","password":"y","email":"z"}"#, "x", "y")]
fn reads(#[case] json: &str, #[case] username: &str, #[case] password: &str) {
    let credential = only(json);
    assert_eq!(
        (&*credential.username, credential.password.expose_secret()),
        (username, password)
    );
    assert!(credential.identity_token.is_none());
}

/// The data of a Secret: its keys, and whether a login is found.
#[rstest]
#[case::docker_json(&[(".dockerconfigjson", r#"{"auths":{"a.io":{"auth":"YTpi"}}}"#)], Some(1))]
#[case::legacy(&[(".dockercfg", r#"{"a.io":{"auth":"YTpi"}}"#)], Some(1))]
#[case::the_newer_wins(&[(".dockercfg", r#"{"a.io":{"auth":"YTpi"}}"#), (".dockerconfigjson", r#"{"auths":{}}"#)], Some(0))]
#[case::broken(&[(".dockerconfigjson", "x")], None)]
#[case::another_type(&[("password", "x")], None)]
fn reads_secrets(#[case] data: &[(&str, &str)], #[case] logins: Option<usize>) {
    let value = |key: &str| {
        let found = data.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_bytes())
    };
    let found = DockerConfig::from_secret(value).map(|config| config.entries.len());
    assert_eq!(found, logins);
}

#[test]
fn reads_identity_tokens() {
    let credential = only(r#"{"auth":"PHRva2VuPjo=","identitytoken":"t0ken"}"#);
    assert_eq!(credential.username, "<token>");
    assert_eq!(credential.identity_token.unwrap().expose_secret(), "t0ken");
    assert_eq!(only(r#"{"identitytoken":"t"}"#).username, "");
}

#[rstest]
#[case::not_base64(r#"{"auth":"s3cret!"}"#, EntryProblem::AuthNotBase64)]
#[case::no_colon(r#"{"auth":"czNjcmV0"}"#, EntryProblem::AuthWithoutColon)]
#[case::number(r#"{"auth":5}"#, EntryProblem::WrongShape)]
#[case::text("\"s3cret\"", EntryProblem::WrongShape)]
#[case::empty("{}", EntryProblem::Empty)]
#[case::username_alone(r#"{"username":"x"}"#, EntryProblem::NoPassword)]
fn a_broken_entry_is_named_and_hides_no_other(#[case] json: &str, #[case] problem: EntryProblem) {
    let file = format!(r#"{{"auths":{{"bad.io":{json},"good.io":{{"auth":"YTpi"}},"[x.io":{{"auth":"YTpi"}}}}}}"#);
    let config = DockerConfig::from_config_json(file.as_bytes()).unwrap();
    assert_eq!(config.entries.len(), 1);
    let broken: Vec<_> = config.broken.iter().map(|error| &*error.registry).collect();
    assert_eq!(broken, ["[x.io", "bad.io"]);
    assert_eq!(config.broken[1].problem, problem);
    let told = format!("{:?}", config.broken) + &config.broken[1].to_string();
    assert!(!told.contains("s3cret") && !told.contains("czNjcmV0"), "{told}");
}

#[rstest]
#[case::nothing("", DockerConfigError::NotJson { line: 1, column: 0 })]
#[case::text_that_is_no_json("s3cret", DockerConfigError::NotJson { line: 1, column: 1 })]
#[case::no_auths("{}", DockerConfigError::NoAuths)]
#[case::auths_is_a_list(r#"{"auths":["s3cret"]}"#, DockerConfigError::NoAuths)]
fn refuses(#[case] json: &str, #[case] want: DockerConfigError) {
    assert_eq!(DockerConfig::from_config_json(json.as_bytes()).unwrap_err(), want);
}

#[test]
fn legacy_files_are_the_auths_alone() {
    let config = DockerConfig::from_legacy_cfg(br#"{"https://index.docker.io/v1/":{"auth":"YTpi"}}"#).unwrap();
    let mut keyring = Keyring::default();
    keyring.extend(config.entries);
    assert_eq!(keyring.lookup(&ImageRef::parse("nginx").unwrap()).len(), 1);
    assert_eq!(
        DockerConfig::from_legacy_cfg(b"[]").unwrap_err(),
        DockerConfigError::NotAnObject
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // Random bytes are no object with `auths`; what matters is that they are refused and not a panic.
        prop_assert!(DockerConfig::from_config_json(&bytes).is_err());
        let is_object = matches!(serde_json::from_slice(&bytes), Ok(Value::Object(_)));
        prop_assert_eq!(DockerConfig::from_legacy_cfg(&bytes).is_ok(), is_object);
    }
}
