//! CRI of both containerds, called with messages written by hand, through the recording proxy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdVersion, CriProxy, Registry, Throttle, grpc_call};
use rstest::rstest;

/// A protobuf field that holds bytes, a string or a message shorter than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// `PullImageRequest { image: ImageSpec { image }, auth: AuthConfig { username, password } }`
fn pull_request(image: &str, auth: Option<(&str, &str)>) -> Vec<u8> {
    let mut request = field(1, &field(1, image.as_bytes()));
    if let Some((user, password)) = auth {
        request.extend(field(
            2,
            &[field(1, user.as_bytes()), field(2, password.as_bytes())].concat(),
        ));
    }
    request
}

const PULL: &str = "runtime.v1.ImageService/PullImage";

#[rstest]
#[tokio::test]
async fn cri_pulls_with_and_without_password(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
) {
    let containerd = Containerd::start(version).await.unwrap();
    let proxy = CriProxy::start(&containerd.socket()).unwrap();
    let image = Recipe::random(1, 2, 10_000).build();

    let open = Registry::start(Auth::Open).await.unwrap();
    let pushed = open.push(&image, "app", "v1").await.unwrap();
    let answer = grpc_call(proxy.socket(), PULL, &pull_request(&pushed.reference, None))
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&answer[2..]), image.config().digest());

    let locked = Registry::start(Auth::basic("ada", "sesame")).await.unwrap();
    let pushed = locked.push(&image, "app", "v1").await.unwrap();
    let refused = grpc_call(proxy.socket(), PULL, &pull_request(&pushed.by_digest, None))
        .await
        .unwrap_err();
    assert!(
        refused.contains("no basic auth credentials") || refused.contains("401"),
        "{refused}"
    );
    let request = pull_request(&pushed.by_digest, Some(("ada", "sesame")));
    grpc_call(proxy.socket(), PULL, &request).await.unwrap();

    let calls = proxy.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.path == format!("/{PULL}")), "{calls:?}");
    assert_eq!(proxy.calls_of("PullImage")[2].messages(), [Bytes::from(request)]);
    assert!(proxy.calls_of("Pull").is_empty());
}

#[rstest]
#[tokio::test]
async fn hosts_toml_sends_a_pull_to_a_mirror(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
) {
    let containerd = Containerd::start(version).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let mirror = Throttle::start(registry.address()).await.unwrap();
    let image = Recipe::random(1, 1, 10_000).build();
    registry.push(&image, "app", "v1").await.unwrap();
    let hosts = format!("server = \"http://127.0.0.1:1\"\n[host.\"http://{}\"]\n", mirror.host());
    containerd.set_hosts("registry.invalid", &hosts).unwrap();
    grpc_call(
        &containerd.socket(),
        PULL,
        &pull_request("registry.invalid/app:v1", None),
    )
    .await
    .unwrap();
    assert!(
        mirror.bytes() > image.content_size(),
        "{} bytes came from the mirror",
        mirror.bytes()
    );
}
