//! Texts as runtimes send them; host names and digests are made up.

use rstest::rstest;

use super::*;

#[rstest]
#[case::containerd_missing_tag(
    Code::NotFound,
    r#"failed to pull and unpack image "127.0.0.1:5000/app:none": failed to resolve reference "127.0.0.1:5000/app:none": 127.0.0.1:5000/app:none: not found"#,
    Reason::NotFound
)]
#[case::page_of_a_captive_portal(
    Code::NotFound,
    "get image config descriptor: unexpected media type text/html for sha256:3f2f: not found",
    Reason::Unreachable
)]
#[case::crio_missing_tag(
    Code::Unknown,
    "reading manifest none in registry.example.com/app: manifest unknown: manifest unknown",
    Reason::NotFound
)]
#[case::docker_missing_tag(
    Code::Unknown,
    "Error response from daemon: manifest for registry.example.com/app:none not found: manifest unknown: manifest unknown",
    Reason::NotFound
)]
#[case::containerd_missing_blob(
    Code::NotFound,
    r#"failed to pull and unpack image "r.example/app:1": failed to copy: httpReadSeeker: failed open: content at https://r.example/v2/app/blobs/sha256:aa not found: not found"#,
    Reason::NotFound
)]
#[case::containerd_wrong_password(
    Code::Unknown,
    r#"failed to pull and unpack image "127.0.0.1:5000/private:1": failed to resolve reference "127.0.0.1:5000/private:1": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials"#,
    Reason::AuthDenied
)]
#[case::docker_hub_unknown_repository(
    Code::Unknown,
    r#"failed to pull and unpack image "docker.io/library/nosuch:latest": failed to resolve reference "docker.io/library/nosuch:latest": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"#,
    Reason::AuthDenied
)]
#[case::containerd_unexpected_401(
    Code::Unknown,
    r#"failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": unexpected status from HEAD request to https://r.example/v2/a/manifests/1: 401 Unauthorized"#,
    Reason::AuthDenied
)]
#[case::token_server_forbids(
    Code::Unknown,
    r#"failed to resolve reference "r.example/a:1": failed to authorize: failed to fetch oauth token: unexpected status from POST request to https://r.example/token: 403 Forbidden"#,
    Reason::AuthDenied
)]
#[case::crio_wrong_password(
    Code::Unknown,
    "initializing source docker://r.example/a:1: unable to retrieve auth token: invalid username/password: unauthorized: incorrect username or password",
    Reason::AuthDenied
)]
#[case::docker_denied(
    Code::Unknown,
    "Error response from daemon: pull access denied for r.example/a, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
    Reason::AuthDenied
)]
#[case::containerd_no_platform(
    Code::NotFound,
    r#"failed to pull and unpack image "127.0.0.1:5000/arm:1": no match for platform in manifest sha256:77: not found"#,
    Reason::NoPlatform
)]
#[case::crio_no_platform(
    Code::Unknown,
    r#"choosing image instance: no image found in image index for architecture "amd64", variant "", OS "linux""#,
    Reason::NoPlatform
)]
#[case::docker_no_platform(
    Code::Unknown,
    "no matching manifest for linux/amd64 in the manifest list entries",
    Reason::NoPlatform
)]
#[case::docker_hub_limit(
    Code::Unknown,
    "failed to copy: httpReadSeeker: failed open: unexpected status code https://registry-1.docker.io/v2/library/nginx/manifests/sha256:5b: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit.",
    Reason::RateLimited
)]
#[case::crio_limit(
    Code::Unknown,
    "Requesting bearer token: invalid status code from registry 429 (Too Many Requests)",
    Reason::RateLimited
)]
#[case::unknown_authority(
    Code::Unknown,
    r#"failed to do request: Head "https://r.example/v2/a/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
    Reason::Tls
)]
#[case::plain_http_registry(
    Code::Unknown,
    r#"failed to do request: Head "https://10.0.0.5:5000/v2/a/manifests/1": http: server gave HTTP response to HTTPS client"#,
    Reason::Tls
)]
#[case::handshake_times_out(
    Code::Unknown,
    r#"failed to do request: Head "https://r.example/v2/a/manifests/1": net/http: TLS handshake timeout"#,
    Reason::Unreachable
)]
#[case::unknown_host(
    Code::Unknown,
    r#"failed to do request: Head "https://nosuch.invalid/v2/a/manifests/1": dial tcp: lookup nosuch.invalid on 10.0.0.10:53: no such host"#,
    Reason::Dns
)]
#[case::name_server_silent(
    Code::Unknown,
    r#"failed to do request: Head "https://r.example/v2/a/manifests/1": dial tcp: lookup r.example on 10.0.0.10:53: read udp 10.0.0.2:43210->10.0.0.10:53: i/o timeout"#,
    Reason::Dns
)]
#[case::token_server_unknown_host(
    Code::Unknown,
    r#"failed to authorize: failed to fetch anonymous token: Get "https://auth.r.example/token": dial tcp: lookup auth.r.example: no such host"#,
    Reason::Dns
)]
#[case::refused(
    Code::Unknown,
    r#"failed to do request: Head "http://127.0.0.1:1/v2/a/manifests/1": dial tcp 127.0.0.1:1: connect: connection refused"#,
    Reason::Unreachable
)]
#[case::dial_times_out(
    Code::Unknown,
    r#"failed to do request: Head "https://10.1.2.3/v2/a/manifests/1": dial tcp 10.1.2.3:443: i/o timeout"#,
    Reason::Unreachable
)]
#[case::cut_in_mid_layer(
    Code::Unknown,
    "failed to copy: failed to send write: error reading from server: unexpected EOF: unavailable",
    Reason::Unreachable
)]
#[case::head_cut(
    Code::Unknown,
    r#"failed to resolve reference "r.example/a:1": failed to do request: Head "https://r.example/v2/a/manifests/1": EOF"#,
    Reason::Unreachable
)]
#[case::registry_broken(
    Code::Unknown,
    "unexpected status from GET request to https://r.example/v2/a/blobs/sha256:aa: 503 Service Unavailable",
    Reason::Unreachable
)]
#[case::token_server_broken(
    Code::Unknown,
    "failed to authorize: failed to fetch anonymous token: unexpected status: 503 Service Unavailable",
    Reason::Unreachable
)]
#[case::crio_registry_unavailable(
    Code::Unknown,
    "RegistryUnavailable: pull r.example/a:1: pinging container registry r.example: dial tcp 10.0.0.5:443: connect: no route to host",
    Reason::Unreachable
)]
#[case::disk_full_on_write(
    Code::Unknown,
    "failed to copy: failed to send write: write /var/lib/containerd/io.containerd.content.v1.content/ingest/ab/data: no space left on device: unknown",
    Reason::NoSpace
)]
#[case::disk_full_on_unpack(
    Code::Unknown,
    r#"failed to extract layer sha256:aa: failed to write file "/x": write /x: no space left on device"#,
    Reason::NoSpace
)]
#[case::containerd_bad_name(
    Code::InvalidArgument,
    r#"failed to parse image reference "UPPER/x": invalid reference format: repository name (UPPER/x) must be lowercase"#,
    Reason::InvalidReference
)]
#[case::runtime_still_starting(Code::Unavailable, "server is not initialized yet", Reason::RuntimeDown)]
#[case::runtime_gave_up(
    Code::Cancelled,
    r#"failed to pull and unpack image "r.example/a:1": failed to copy: context canceled"#,
    Reason::Stalled
)]
#[case::our_own_deadline(Code::Cancelled, "Timeout expired", Reason::Timeout)]
#[case::file_permissions(
    Code::Unknown,
    "failed to extract layer sha256:aa: mount callback failed: mkdir /tmp/x: permission denied: unknown",
    Reason::Internal
)]
#[case::lost_local_content(
    Code::NotFound,
    "failed to extract layer sha256:aa: failed to get reader from content store: content digest sha256:bb: not found",
    Reason::Internal
)]
#[case::bare_code_not_found(Code::NotFound, "", Reason::NotFound)]
#[case::bare_code_unauthenticated(Code::Unauthenticated, "", Reason::AuthDenied)]
#[case::nothing_known(Code::Unknown, "something odd", Reason::Internal)]
#[case::a_name_full_of_words(
    Code::Unknown,
    r#"failed to pull and unpack image "r.example/unauthorized/not-found/x509:no-space": something odd"#,
    Reason::Internal
)]
#[case::a_bare_name_full_of_words(
    Code::NotFound,
    r#"failed to resolve reference "x": r.example/forbidden/connection-refused/tls:x509: not found"#,
    Reason::NotFound
)]
#[case::an_address_full_of_words(
    Code::Unknown,
    "unexpected status from HEAD request to https://r.example/v2/unauthorized/manifests/denied: 503 Service Unavailable",
    Reason::Unreachable
)]
#[case::bare_address_cut(Code::Unknown, "Get https://r.example/v2/: EOF", Reason::Unreachable)]
#[case::containerd_2_limit(
    Code::Unknown,
    r#"failed to pull and unpack image "r.example/app:v1": failed to resolve image: unexpected status from HEAD request to http://r.example/v2/app/manifests/v1: 429 Too Many Requests"#,
    Reason::RateLimited
)]
#[case::containerd_1_6_forbidden(
    Code::Unknown,
    r#"failed to resolve reference "r.example/app:v1": pulling from host r.example failed with status code [manifests v1]: 403 Forbidden"#,
    Reason::AuthDenied
)]
#[case::digests_hold_digits(
    Code::Unknown,
    "unexpected commit digest sha256:4294014290000, expected sha256:4034294040000: failed precondition",
    Reason::InvalidImage
)]
#[case::containerd_manifest_is_no_json(
    Code::Unknown,
    r#"failed to pull and unpack image "r.example/app:v1": children: invalid desc sha256:b7d0: invalid character '<' looking for beginning of value"#,
    Reason::InvalidImage
)]
#[case::containerd_empty_manifest(
    Code::InvalidArgument,
    r#"failed to pull and unpack image "r.example/app:v1": unable to fetch descriptor () which reports content size of zero: invalid argument"#,
    Reason::InvalidImage
)]
#[case::containerd_lists_of_two_lengths(
    Code::Unknown,
    r#"failed to pull and unpack image "r.example/app:v1": number of layers and diffIDs don't match: 1 != 0"#,
    Reason::InvalidImage
)]
#[case::crio_damaged_blob(
    Code::Unknown,
    "writing blob: storing blob to file: Digest did not match, expected sha256:aa, got sha256:bb",
    Reason::InvalidImage
)]
#[case::docker_damaged_blob(
    Code::Unknown,
    "Error response from daemon: filesystem layer verification failed for digest sha256:aa",
    Reason::InvalidImage
)]
#[case::containerd_thousands_of_layers(
    Code::ResourceExhausted,
    "failed to pull and unpack image \"127.0.0.1:5000/a:1\": too many descriptors (limit 10000): resource exhausted",
    Reason::InvalidImage
)]
#[case::containerd_blob_is_too_long(
    Code::FailedPrecondition,
    r#"failed to pull and unpack image "r.example/app:v1": failed to copy: httpReadSeeker: read past expected size 6292992: failed precondition"#,
    Reason::InvalidImage
)]
#[case::containerd_circle_of_redirects(
    Code::Unknown,
    r#"failed to copy: httpReadSeeker: failed open: failed to do request: Get "/v2/app/blobs/sha256:0598": stopped after 10 redirects"#,
    Reason::Unreachable
)]
#[case::token_service_sends_a_page(
    Code::Unknown,
    "failed to authorize: failed to fetch anonymous token: unable to decode token response: invalid character '<' looking for beginning of value",
    Reason::Unreachable
)]
fn reasons(#[case] code: Code, #[case] message: &str, #[case] expected: Reason) {
    assert_eq!(classify(code, message), expected);
}
