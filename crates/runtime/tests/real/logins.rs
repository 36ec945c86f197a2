//! A login for one registry stays with that registry, whatever else a pull by the runtime touches.
//!
//! 127.0.0.1 and 127.0.0.2 are two hosts here.

use larder_runtime::{Credential, MirrorLogin, PullRequest};
use larder_testkit::{Auth, ContainerdVersion, Registry, image::Recipe};
use rstest::rstest;

use super::{
    Node, image,
    stub::{Sent, Stub, answer},
};

const ELSEWHERE: &str = "127.0.0.2";

fn ann() -> Credential {
    Credential::basic("ann", "s3cret")
}

fn identity_token() -> Credential {
    Credential {
        identity_token: Some("s3cret".into()),
        ..Credential::basic("", "")
    }
}

fn tells_a_secret(sent: &Sent) -> bool {
    // ann:s3cret
    sent.secrets.contains("s3cret") || sent.secrets.contains("YW5uOnMzY3JldA==")
}

/// A host that wants a login from every client, and has a token service of its own that takes any.
async fn greedy(scheme: &'static str) -> Stub {
    Stub::start_knowing_itself(ELSEWHERE, move |address| {
        let challenge = match scheme {
            "Bearer" => format!("Bearer realm=\"http://{address}/token\",service=\"greedy\""),
            _ => "Basic realm=\"greedy\"".to_owned(),
        };
        move |sent: &Sent| {
            if sent.line.contains(" /token") {
                answer("200 OK", &[], "{\"token\":\"t\"}")
            } else {
                answer("401 Unauthorized", &[("WWW-Authenticate", &challenge)], "")
            }
        }
    })
    .await
}

/// A registry that redirects every request for content to another host, and gives no login away by itself.
async fn redirecting_to(target: &Stub) -> Stub {
    let target = target.address;
    Stub::start("127.0.0.1", move |sent| {
        let path = sent.line.split(' ').nth(1).unwrap_or("/");
        if path == "/v2/" {
            return answer("200 OK", &[], "{}");
        }
        let place = format!("http://{target}{path}");
        answer("307 Temporary Redirect", &[("Location", &place)], "")
    })
    .await
}

#[rstest]
#[case::password("Basic", ann())]
#[case::password_for_a_token("Bearer", ann())]
#[case::identity_token("Bearer", identity_token())]
#[tokio::test]
async fn a_redirect_target_that_asks_for_a_login_gets_none(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] scheme: &'static str,
    #[case] login: Credential,
) {
    let target = greedy(scheme).await;
    let registry = redirecting_to(&target).await;
    let node = Node::start(version).await;
    let host = registry.address.to_string();
    node.containerd
        .set_hosts(&host, &format!("server = \"http://{host}\"\n"))
        .unwrap();
    let request = PullRequest {
        auth: Some(login),
        ..PullRequest::new(image(&format!("{host}/app:v1")))
    };
    node.runtime.pull(&request).await.unwrap_err();
    let sent = target.sent();
    assert!(!sent.is_empty(), "the redirect was not followed");
    assert!(!sent.iter().any(tells_a_secret), "{sent:?}");
}

#[rstest]
#[tokio::test]
async fn a_mirror_does_not_get_the_login_of_the_registry(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[values("Basic", "Bearer")] scheme: &'static str,
) {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let mirror = greedy(scheme).await;
    let node = Node::start(version).await;
    let host = registry.host();
    let hosts = format!("server = \"http://{host}\"\n[host.\"http://{}\"]\n", mirror.address);
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let request = PullRequest {
        auth: Some(ann()),
        ..PullRequest::new(image(&pushed.reference))
    };
    node.runtime.pull(&request).await.unwrap();
    let sent = mirror.sent();
    assert!(!sent.is_empty(), "the mirror was not asked");
    assert!(!sent.iter().any(tells_a_secret), "{sent:?}");
}

/// The mirror serves the image to its own login alone; the registry gets none of the two logins, because it is not asked.
#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_mirror_gets_its_own_login(#[case] version: ContainerdVersion) {
    let mirror = Registry::start(Auth::basic("mia", "m1rror")).await.unwrap();
    mirror
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let registry = greedy("Basic").await;
    let node = Node::start(version).await;
    let host = registry.address.to_string();
    let hosts = format!("server = \"http://{host}\"\n[host.\"http://{}\"]\n", mirror.host());
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let mut request = PullRequest {
        auth: Some(ann()),
        ..PullRequest::new(image(&format!("{host}/app:v1")))
    };
    request.login_servers.mirrors = vec![MirrorLogin {
        server: format!("http://{}", mirror.host()),
        credential: Credential::basic("mia", "m1rror"),
    }];
    node.runtime.pull(&request).await.unwrap();
    assert!(registry.sent().is_empty(), "{:?}", registry.sent());
}

/// A mirror that refuses its own login is passed by, and the registry gets its own login and not the mirror's.
#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_mirror_that_refuses_its_own_login_is_passed_by(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let mirror = greedy("Basic").await;
    let node = Node::start(version).await;
    let host = registry.host();
    let hosts = format!("server = \"http://{host}\"\n[host.\"http://{}\"]\n", mirror.address);
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let mut request = PullRequest {
        auth: Some(ann()),
        ..PullRequest::new(image(&pushed.reference))
    };
    request.login_servers.mirrors = vec![MirrorLogin {
        server: format!("http://{}", mirror.address),
        credential: Credential::basic("mia", "m1rror"),
    }];
    node.runtime.pull(&request).await.unwrap();
    let sent = mirror.sent();
    // mia:m1rror
    assert!(
        sent.iter().any(|sent| sent.secrets.contains("bWlhOm0xcnJvcg==")),
        "{sent:?}"
    );
    assert!(!sent.iter().any(tells_a_secret), "{sent:?}");
}
