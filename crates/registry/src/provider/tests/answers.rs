//! Answers that are not what they should be, and answers with wildcards.

use super::*;

/// Entries that are no logins. Each stands beside a good one, which counts.
#[rstest]
#[case::nothing("null")]
#[case::empty("{}")]
#[case::no_password(r#"{"username":"ann"}"#)]
#[case::empty_password(r#"{"username":"ann","password":""}"#)]
#[case::password_is_a_number(r#"{"username":"ann","password":7}"#)]
#[case::password_is_nothing(r#"{"username":"ann","password":null}"#)]
#[case::text(r#""s3cret""#)]
#[tokio::test]
async fn a_broken_entry_is_no_login_and_hides_no_other(#[case] entry: &str) {
    let auth = format!(r#"{{"r.a.io":{entry},"*.a.io":{{"username":"bob","password":"good"}}}}"#);
    let bench = Bench::new().plugin("p", "'*.a.io'", &says("Image", "", &auth));
    let found = bench.providers(LIMIT).lookup(&image("r.a.io/x")).await;
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    let users: Vec<_> = found.credentials.iter().map(|login| &*login.username).collect();
    assert_eq!(users, ["bob"]);
}

/// Which images a login counts for is said by its key in the answer; a wildcard stands for one label of the host.
#[rstest]
#[case::one_label("*.a.io", "r.a.io/x", true)]
#[case::every_label("*.*.*", "r.a.io/x", true)]
#[case::star_alone_is_one_label("*", "r.a.io/x", false)]
#[case::too_few_labels("*.io", "r.a.io/x", false)]
#[case::host_that_only_ends_alike("*.a.io", "r.a.io.evil.io/x", false)]
#[case::host_in_the_path("*.a.io", "s.b.io/r.a.io/x", false)]
#[case::port("*.a.io", "r.a.io:5000/x", false)]
#[case::port_is_no_wildcard("*.a.io:*", "r.a.io:5000/x", false)]
#[case::path_of_another_team("*.a.io/team", "r.a.io/other/x", false)]
#[case::user_info_is_no_host("r.a.io@evil.io", "r.a.io/x", false)]
#[case::open_bracket("[r.a.io", "r.a.io/x", false)]
#[case::no_host("/x", "r.a.io/x", false)]
#[case::nothing("", "r.a.io/x", false)]
#[tokio::test]
async fn wildcards_in_an_answer(#[case] key: &str, #[case] name: &str, #[case] counts: bool) {
    let auth = format!(r#"{{"{key}":{{"username":"ann","password":"s3cret"}}}}"#);
    // The plugin is asked for every image, and its answer is kept for every image.
    let images = "'*.*.*', '*.*.*.*', '*.*.*:5000', '*.*.*.*.*'";
    let bench = Bench::new().plugin("p", images, &says("Global", "", &auth));
    let providers = bench.providers(LIMIT);
    for _ in 0..2 {
        let found = providers.lookup(&image(name)).await;
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        assert_eq!(!found.credentials.is_empty(), counts);
    }
    assert_eq!(bench.calls("p"), 1);
}
