use std::fs;

use rstest::rstest;
use tempfile::TempDir;

use super::*;

fn hosts(name: &str, text: &str) -> (TempDir, Hosts) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(name)).unwrap();
    fs::write(dir.path().join(name).join("hosts.toml"), text).unwrap();
    let hosts = Hosts::in_dir(dir.path());
    (dir, hosts)
}

fn bases(endpoints: &[Endpoint]) -> Vec<&str> {
    endpoints.iter().map(|endpoint| endpoint.base.as_str()).collect()
}

#[rstest]
#[case::hub("docker.io", "https://registry-1.docker.io/v2/")]
#[case::host("a.io", "https://a.io/v2/")]
#[case::port("a.io:5000", "https://a.io:5000/v2/")]
#[case::localhost("localhost:5000", "http://localhost:5000/v2/")]
#[case::ipv4_loopback("127.0.0.1:5000", "http://127.0.0.1:5000/v2/")]
#[case::ipv6_loopback("[::1]:5000", "http://[::1]:5000/v2/")]
#[case::private_address("10.0.0.1:5000", "https://10.0.0.1:5000/v2/")]
#[case::name_that_begins_like_localhost("localhost.evil.io", "https://localhost.evil.io/v2/")]
fn without_a_file_there_is_the_registry_alone(#[case] registry: &str, #[case] want: &str) {
    let endpoints = Hosts::default().endpoints(registry).unwrap();
    assert_eq!(bases(&endpoints), [want]);
    assert!(!endpoints[0].is_mirror && endpoints[0].serves && endpoints[0].resolves);
}

#[test]
fn mirrors_come_first_in_the_order_of_the_file() {
    let (_dir, hosts) = hosts(
        "docker.io",
        r#"
        server = "https://registry-1.docker.io"

        [host."https://z.example"]
          capabilities = ["pull"]
          skip_verify = true

        [host."http://10.0.0.1:5000/proxy/hub"]
          capabilities = ["pull", "resolve"]

        [host."a.example"]
          ca = "ca.pem"
          override_path = true
        "#,
    );
    let endpoints = hosts.endpoints("docker.io").unwrap();
    assert_eq!(
        bases(&endpoints),
        [
            "https://z.example/v2/",
            "http://10.0.0.1:5000/proxy/hub/v2/",
            "https://a.example/",
            "https://registry-1.docker.io/v2/"
        ]
    );
    assert_eq!(
        endpoints.iter().map(|e| e.resolves).collect::<Vec<_>>(),
        [false, true, true, true]
    );
    assert_eq!(
        endpoints.iter().map(|e| e.is_mirror).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    assert!(endpoints[0].trust.skip_verify && !endpoints[1].trust.skip_verify);
    assert!(
        endpoints[2].trust.ca[0].ends_with("docker.io/ca.pem"),
        "{:?}",
        endpoints[2].trust
    );
}

#[test]
fn fields_at_the_top_belong_to_the_server() {
    let (_dir, hosts) = hosts(
        "a.io",
        "server = \"https://b.io\"\nca = [\"/x.pem\", \"y.pem\"]\ncapabilities = [\"pull\"]",
    );
    let endpoints = hosts.endpoints("a.io").unwrap();
    assert_eq!(bases(&endpoints), ["https://b.io/v2/"]);
    assert_eq!(endpoints[0].trust.ca.len(), 2);
    assert_eq!(endpoints[0].trust.ca[0], Path::new("/x.pem"));
    assert!(endpoints[0].serves && !endpoints[0].resolves);
}

#[rstest]
#[case::colon("a.io:5000")]
#[case::underscores("a.io_5000_")]
#[case::default("_default")]
fn the_directory_may_be_written_in_three_ways(#[case] name: &str) {
    let (_dir, hosts) = hosts(name, "[host.\"https://mirror.io\"]");
    assert_eq!(
        bases(&hosts.endpoints("a.io:5000").unwrap()),
        ["https://mirror.io/v2/", "https://a.io:5000/v2/"]
    );
}

#[test]
fn a_directory_of_its_own_beats_the_default_even_without_a_file() {
    let (dir, hosts) = hosts("_default", "[host.\"https://mirror.io\"]");
    fs::create_dir(dir.path().join("a.io")).unwrap();
    assert_eq!(bases(&hosts.endpoints("a.io").unwrap()), ["https://a.io/v2/"]);
}

#[rstest]
#[case::not_toml("server = ", "not a valid hosts.toml")]
#[case::wrong_type("skip_verify = \"yes\"", "not a valid hosts.toml")]
#[case::bad_address("[host.\"ftp://x\"]", "not the address of a registry")]
#[case::client_certificates("[host.\"https://x\"]\nclient = [\"c.pem\", \"d.pem\"]", "must be one certificate")]
#[case::three_files("[host.\"https://x\"]\nclient = [[\"a\", \"b\", \"c\"]]", "must be one certificate")]
#[case::no_files("[host.\"https://x\"]\nclient = []", "must be one certificate")]
#[case::no_header("[host.\"https://x\".header]\n\"a b\" = \"Basic s3cret\"", "names of HTTP headers")]
#[case::no_text(
    "[host.\"https://x\".header]\nAuthorization = \"s3cret\\n\"",
    "names of HTTP headers"
)]
fn refuses(#[case] text: &str, #[case] told: &str) {
    let (_dir, hosts) = hosts("a.io", text);
    let error = hosts.endpoints("a.io").unwrap_err();
    assert!(error.to_string().contains(told), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"));
}

#[rstest]
#[case::one_file("client = \"c.pem\"", "c.pem", None)]
#[case::one_file_in_a_list("client = [\"c.pem\"]", "c.pem", None)]
#[case::two_files("client = [[\"c.pem\", \"/k.pem\"]]", "c.pem", Some("/k.pem"))]
#[case::without_a_key("client = [[\"c.pem\", \"\"]]", "c.pem", None)]
fn client_certificates(#[case] field: &str, #[case] certificate: &str, #[case] key: Option<&str>) {
    let (dir, hosts) = hosts("a.io", &format!("[host.\"https://x\"]\n{field}"));
    let endpoints = hosts.endpoints("a.io").unwrap();
    let client = endpoints[0].trust.client.clone().unwrap();
    assert_eq!(client.certificate, dir.path().join("a.io").join(certificate));
    assert_eq!(client.key.as_deref(), key.map(Path::new));
    assert_eq!(endpoints[1].trust.client, None);
}

#[test]
fn headers_are_for_one_host_and_are_not_printed() {
    let text = "[host.\"https://x\".header]\nX-Team = [\"s3cret-a\", \"s3cret-b\"]\nAuthorization = \"Basic s3cret\"";
    let (_dir, hosts) = hosts("a.io", text);
    let endpoints = hosts.endpoints("a.io").unwrap();
    let teams: Vec<_> = endpoints[0].headers.get_all("x-team").iter().collect();
    assert_eq!(teams, ["s3cret-a", "s3cret-b"]);
    assert_eq!(endpoints[0].headers["authorization"], "Basic s3cret");
    assert!(endpoints[1].headers.is_empty());
    assert!(!format!("{endpoints:?}").contains("s3cret"));
}
