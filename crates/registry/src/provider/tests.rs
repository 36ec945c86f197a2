//! Plugins here are real executables: shell scripts that the test writes and makes executable.

mod answers;

use std::fs;

use rstest::rstest;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::*;

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// A directory of plugins, each of which writes a line to `<name>.calls` whenever it runs.
struct Bench {
    dir: TempDir,
    config: String,
}

impl Bench {
    fn new() -> Self {
        let config = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";
        Self {
            dir: tempfile::tempdir().unwrap(),
            config: config.to_owned(),
        }
    }

    fn plugin(mut self, name: &str, images: &str, body: &str) -> Self {
        let path = self.dir.path().join(name);
        let calls = self.dir.path().join(format!("{name}.calls"));
        let source = self.dir.path().join(format!("{name}.source"));
        fs::write(
            &source,
            format!("#!/bin/sh\necho run >> '{}'\n{body}\n", calls.display()),
        )
        .unwrap();
        // Another process makes the executable: were it open for writing in this one, a child forked meanwhile by a
        // test beside us would keep it open, and the system refuses to run a file that somebody may write to.
        let made = std::process::Command::new("install")
            .args(["-m", "755"])
            .args([&source, &path])
            .status();
        assert!(made.unwrap().success());
        let entry = format!(
            "- name: {name}\n  matchImages: [{images}]\n  defaultCacheDuration: 1h\n  apiVersion: {V1}\n  \
             args: [--mode, fast]\n  env:\n  - name: LARDER_USER\n    value: from-env\n"
        );
        self.config.push_str(&entry);
        self
    }

    fn providers(&self, timeout: Duration) -> Providers {
        let config = ProviderConfig::parse(&self.config).unwrap();
        assert!(config.broken.is_empty(), "{:?}", config.broken);
        Providers::with_timeout(config, self.dir.path(), timeout)
    }

    fn calls(&self, name: &str) -> usize {
        fs::read_to_string(self.dir.path().join(format!("{name}.calls"))).map_or(0, |text| text.lines().count())
    }
}

fn says(key_type: &str, duration: &str, auth: &str) -> String {
    format!(
        "cat > /dev/null\ncat <<EOF\n{{\"apiVersion\":\"{V1}\",\"kind\":\"CredentialProviderResponse\",\
         \"cacheKeyType\":\"{key_type}\",{duration}\"auth\":{auth}}}\nEOF"
    )
}

const ANN: &str = r#"{"*.a.io":{"username":"ann","password":"s3cret"}}"#;

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

/// A generous limit: a busy machine takes its time to start a shell.
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn asks_in_json_and_passes_arguments_and_environment() {
    let body = format!(
        "read request\ncase \"$request\" in *CredentialProviderRequest*) ;; *) exit 3;; esac\n\
         image=$(echo \"$request\" | sed 's/.*\"image\":\"\\([^\"]*\\)\".*/\\1/')\n\
         echo '{{\"apiVersion\":\"{V1}\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Image\",\
         \"auth\":{{\"r.a.io\":{{\"username\":\"'$LARDER_USER,$1,$2,$image'\",\"password\":\"p\"}}}}}}'"
    );
    // `read` wants a line feed at the end, which the protocol does not have; it then ends with an error we do not mind.
    let bench = Bench::new().plugin("asker", "'*.a.io'", &body);
    let found = bench.providers(LIMIT).lookup(&image("r.a.io/x/y:v1")).await;
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    assert_eq!(found.credentials[0].username, "from-env,--mode,fast,r.a.io/x/y");
    assert_eq!(found.credentials[0].password.expose_secret(), "p");
}

#[rstest]
#[case::image("Image", "", 2)]
#[case::registry("Registry", "", 1)]
#[case::global("Global", "", 1)]
#[case::not_at_all("Global", "\"cacheDuration\":\"0s\",", 3)]
#[tokio::test]
async fn answers_are_kept_as_the_plugin_says(#[case] key: &str, #[case] duration: &str, #[case] runs: usize) {
    let bench = Bench::new().plugin("p", "'*.a.io'", &says(key, duration, ANN));
    let providers = bench.providers(LIMIT);
    for text in ["r.a.io/x", "r.a.io/y", "r.a.io/x:v2"] {
        assert_eq!(providers.lookup(&image(text)).await.credentials.len(), 1);
    }
    assert_eq!(bench.calls("p"), runs);
}

#[tokio::test]
async fn an_answer_ends_with_its_duration() {
    let bench = Bench::new().plugin("p", "'*.a.io'", &says("Registry", "\"cacheDuration\":\"20m\",", ANN));
    let providers = bench.providers(LIMIT);
    providers.lookup(&image("r.a.io/x")).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(19)).await;
    providers.lookup(&image("r.a.io/x")).await;
    assert_eq!(bench.calls("p"), 1);
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    providers.lookup(&image("r.a.io/x")).await;
    assert_eq!(bench.calls("p"), 2);
}

#[tokio::test]
async fn plugins_for_other_images_are_not_run() {
    let bench = Bench::new().plugin("p", "'*.a.io'", &says("Global", "", ANN));
    let found = bench.providers(LIMIT).lookup(&image("b.io/x")).await;
    assert!(found.credentials.is_empty() && found.failures.is_empty());
    assert_eq!(bench.calls("p"), 0);
}

#[rstest]
#[case::fails("echo s3cret >&2; echo s3cret; exit 7", "exit status: 7")]
#[case::talks_nonsense("echo s3cret", "not a CredentialProviderResponse")]
#[case::says_nothing("true", "not a CredentialProviderResponse")]
#[case::breaks_off(r#"printf '{"apiVersion":"s3cret'"#, "not a CredentialProviderResponse")]
#[case::says_more_behind_it(&(says("Global", "", ANN) + "\necho s3cret"), "not a CredentialProviderResponse")]
#[case::is_not_text(r"printf '\377\376s3cret'", "not a CredentialProviderResponse")]
#[case::nested_without_end("yes '[' | head -c 100000 | tr -d '\n'", "not a CredentialProviderResponse")]
#[case::wrong_types(r#"echo '{"auth":"s3cret"}'"#, "not a CredentialProviderResponse")]
#[case::another_version(
    r#"echo '{"apiVersion":"x/v9","kind":"CredentialProviderResponse"}'"#,
    "another apiVersion"
)]
#[case::no_key_type(&says("s3cret", "", ANN), "cacheKeyType")]
#[case::bad_duration(&says("Image", "\"cacheDuration\":\"s3cret\",", ANN), "cacheDuration")]
#[case::never_stops_talking("yes s3cret", "more than 1048576 bytes")]
#[tokio::test]
async fn one_that_fails_hides_no_other_and_tells_no_secret(#[case] body: &str, #[case] told: &str) {
    let bench = Bench::new()
        .plugin("bad", "'*.a.io'", body)
        .plugin("good", "'*.a.io'", &says("Global", "", ANN));
    let found = bench.providers(LIMIT).lookup(&image("r.a.io/x")).await;
    assert_eq!(found.credentials.len(), 1);
    let [failure] = &found.failures[..] else {
        panic!("{:?}", found.failures)
    };
    let text = format!("{failure} {} {failure:?} {:?}", failure.problem, found.credentials);
    assert!(text.contains(told), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn one_that_hangs_is_killed_with_its_children() {
    let bench = Bench::new();
    let pid_file = bench.dir.path().join("pid");
    let body = format!(
        "sleep 600 &\necho $! > '{0}.new'; mv '{0}.new' '{0}'; wait",
        pid_file.display()
    );
    let bench = bench.plugin("hangs", "'*.a.io'", &body);
    let found = bench.providers(Duration::from_secs(3)).lookup(&image("r.a.io/x")).await;
    assert!(matches!(
        found.failures[0].problem,
        PluginProblem::Exec(ExecError::TooSlow(_))
    ));
    let child = fs::read_to_string(&pid_file).unwrap();
    let deadline = Instant::now() + LIMIT;
    while is_running(child.trim()) {
        assert!(Instant::now() < deadline, "the plugin's child {child} is still there");
        tokio::task::yield_now().await;
    }
}

/// A killed process stays in the table until its new parent collects it.
fn is_running(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let bench = Bench::new().plugin("gone", "'*.a.io'", "");
    fs::remove_file(bench.dir.path().join("gone")).unwrap();
    let found = bench.providers(LIMIT).lookup(&image("r.a.io/x")).await;
    assert!(
        found.failures[0]
            .problem
            .to_string()
            .contains("/gone cannot be started"),
        "{:?}",
        found.failures
    );
}

#[rstest]
#[case::v1("v1")]
#[case::v1beta1("v1beta1")]
#[case::v1alpha1("v1alpha1")]
fn reads_every_version_of_the_configuration(#[case] version: &str) {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/{version}\nkind: CredentialProviderConfig\nproviders:\n\
         - name: ecr-credential-provider\n  matchImages:\n  - \"*.dkr.ecr.*.amazonaws.com\"\n  \
         defaultCacheDuration: \"12h\"\n  apiVersion: credentialprovider.kubelet.k8s.io/{version}\n"
    );
    let config = ProviderConfig::parse(&text).unwrap();
    let [plugin] = &config.plugins[..] else {
        panic!("{:?}", config.broken)
    };
    assert!(plugin.matches(&image("1.dkr.ecr.eu-west-1.amazonaws.com/x")));
    assert_eq!(plugin.default_cache_duration, Duration::from_hours(12));
}

#[rstest]
#[case::name_with_path("name: ../../bin/sh", "plain file name")]
#[case::no_name("{}", "number 1 cannot be read")]
#[case::no_images("{name: p, defaultCacheDuration: 1h}", "no matchImages")]
#[case::bad_pattern("{name: p, matchImages: ['[a.io']}", "broken entry in matchImages")]
#[case::no_duration("{name: p, matchImages: [a.io]}", "defaultCacheDuration ``")]
#[case::no_version("{name: p, matchImages: [a.io], defaultCacheDuration: 1h}", "apiVersion ``")]
#[case::token("{name: p, tokenAttributes: {requireServiceAccount: true}}", "tokenAttributes")]
fn a_broken_plugin_is_reported_and_hides_no_other(#[case] plugin: &str, #[case] told: &str) {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {plugin}\n\
         - {{name: ok, matchImages: [a.io], defaultCacheDuration: 0s, apiVersion: {V1}}}\n\
         - {{name: ok, matchImages: [b.io], defaultCacheDuration: 0s, apiVersion: {V1}}}\n"
    );
    let config = ProviderConfig::parse(&text).unwrap();
    assert_eq!(config.plugins.len(), 1);
    let broken: Vec<_> = config.broken.iter().map(ToString::to_string).collect();
    assert!(broken[0].contains(told), "{broken:?}");
    assert_eq!(broken[1], "the credential provider `ok` is listed twice");
}

#[rstest]
#[case::empty("")]
#[case::another_kind("apiVersion: v1\nkind: ConfigMap")]
#[case::not_yaml("{{{")]
fn another_file_is_refused(#[case] text: &str) {
    assert!(ProviderConfig::parse(text).is_err());
}
