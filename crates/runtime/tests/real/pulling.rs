//! What a pull leaves behind, and how it fails.

use std::path::Path;

use larder_model::{ByteSize, Digest, Reason};
use larder_runtime::{Credential, PullRequest, PulledImage, RuntimeEndpoint, RuntimeError, connect};
use larder_testkit::{
    ContainerdVersion, CriProxy, Link, Registry, Throttle,
    image::{Format, Index, Platform, Recipe},
};
use rstest::rstest;

use super::{Node, image};

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6, "containerd 1.6.")]
#[case::v2(ContainerdVersion::V2, "containerd 2.")]
#[tokio::test]
async fn the_runtime_says_who_it_is(#[case] version: ContainerdVersion, #[case] expected: &str) {
    let node = Node::start(version).await;
    let said = node.runtime.version().await.unwrap().to_string();
    assert!(said.starts_with(expected), "{said}");
}

#[rstest]
#[case::v1_6_knows_no_stream(ContainerdVersion::V1_6, 1)]
#[case::v2_streams(ContainerdVersion::V2, 0)]
#[tokio::test]
async fn lists_come_in_pieces_where_the_runtime_can(#[case] version: ContainerdVersion, #[case] in_one_piece: usize) {
    let node = Node::start(version).await;
    let proxy = CriProxy::start(&node.containerd.socket()).unwrap();
    let runtime = connect(&RuntimeEndpoint::at(proxy.socket()), Path::new("/"))
        .await
        .unwrap();
    assert_eq!(runtime.list().await.unwrap(), []);
    assert_eq!(proxy.calls_of("StreamImages").len(), 1);
    assert_eq!(proxy.calls_of("ListImages").len(), in_one_piece);
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_pulled_image_is_there_by_tag_and_by_digest(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let built = Recipe::random(1, 3, 20_000).build();
    let pushed = registry.push(&built, "team/app", "v1").await.unwrap();
    let (tag, digest) = (image(&pushed.reference), image(&pushed.by_digest));
    let node = Node::start(version).await;
    let runtime = &node.runtime;

    assert_eq!(runtime.status(&tag).await.unwrap(), None);
    assert_eq!(runtime.list().await.unwrap(), []);

    let pulled = runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    assert_eq!(pulled.digest, Some(Digest::parse(&pushed.digest).unwrap()));
    assert_eq!(pulled.id, built.config().digest());
    assert!(ByteSize(built.content_size()) <= pulled.size, "{:?}", pulled.size);

    for name in [&tag, &digest] {
        let there = runtime.status(name).await.unwrap().unwrap();
        assert!(there.answers_to(name), "{there:?}");
        assert_eq!(there.id, pulled.id);
        assert!(!there.pinned);
    }
    let listed = runtime.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(
        listed[0].answers_to(&tag) && listed[0].answers_to(&digest),
        "{listed:?}"
    );
    let other_digest = format!("{}@sha256:{}", tag.name(), "a".repeat(64));
    assert_eq!(runtime.status(&image(&other_digest)).await.unwrap(), None);

    runtime.remove(&tag).await.unwrap();
    assert_eq!(runtime.list().await.unwrap(), []);
    runtime.remove(&tag).await.unwrap();

    let by_digest = runtime.pull(&PullRequest::new(digest.clone())).await.unwrap();
    // How much of it was still in the store is the garbage collector's affair.
    let fetched = pulled.fetched;
    assert_eq!(PulledImage { fetched, ..by_digest }, pulled);
    assert!(runtime.status(&digest).await.unwrap().is_some());
    assert_eq!(runtime.status(&tag).await.unwrap(), None, "nobody pulled the tag");
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn of_an_index_the_digest_is_that_of_the_index(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let elsewhere = Recipe::random(10, 1, 5000).platform(Platform::linux("riscv64")).build();
    let here = Recipe::random(20, 1, 5000).build();
    let index = Index::new(Format::Oci, vec![elsewhere, here.clone()]);
    let pushed = registry.push_index(&index, "multi", "v1").await.unwrap();
    let node = Node::start(version).await;

    let pulled = node
        .runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();
    assert_eq!(pulled.digest.unwrap().to_string(), pushed.digest);
    assert_eq!(pulled.id, here.config().digest());
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn private_images_need_the_right_password(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::basic("robot", "right"))
        .await
        .unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "private", "v1")
        .await
        .unwrap();
    let node = Node::start(version).await;
    let with = |password: &str| PullRequest {
        auth: Some(Credential::basic("robot", password)),
        ..PullRequest::new(image(&pushed.reference))
    };

    let anonymous = node
        .runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap_err();
    assert_eq!(anonymous.reason(), Reason::AuthDenied, "{}", anonymous.text());
    let wrong = node.runtime.pull(&with("wrong")).await.unwrap_err();
    assert_eq!(wrong.reason(), Reason::AuthDenied, "{}", wrong.text());
    assert!(!wrong.text().contains("wrong"), "{}", wrong.text());
    node.runtime.pull(&with("right")).await.unwrap();
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn failures_have_their_reasons(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let foreign = Recipe::random(2, 1, 5000).platform(Platform::linux("riscv64")).build();
    let only_foreign = Index::new(Format::Oci, vec![foreign]);
    registry.push_index(&only_foreign, "foreign", "v1").await.unwrap();
    let broken = Recipe::random(3, 2, 5000).build();
    registry.push(&broken, "broken", "v1").await.unwrap();
    registry
        .delete_blob("broken", broken.layers()[1].digest())
        .await
        .unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::Refused);

    let node = Node::start(version).await;
    let host = registry.host();
    let cases = [
        (format!("{host}/app:nosuch"), Reason::NotFound),
        (format!("{host}/nosuch:v1"), Reason::NotFound),
        (format!("{host}/app@sha256:{}", "a".repeat(64)), Reason::NotFound),
        (format!("{host}/broken:v1"), Reason::NotFound),
        (format!("{host}/foreign:v1"), Reason::NoPlatform),
        (format!("{}/app:v1", line.host()), Reason::Unreachable),
        ("registry.invalid/app:v1".to_owned(), Reason::Dns),
    ];
    for (name, expected) in cases {
        let error = node.runtime.pull(&PullRequest::new(image(&name))).await.unwrap_err();
        assert_eq!(error.reason(), expected, "{}", error.text());
        assert!(matches!(error, RuntimeError::Refused { .. }), "{error:?}");
        assert_eq!(node.runtime.status(&image(&name)).await.unwrap(), None);
    }
    // After all that, the next one works.
    node.runtime
        .pull(&PullRequest::new(image(&format!("{host}/app:v1"))))
        .await
        .unwrap();
}

/// A registry that speaks plain HTTP where the runtime wants TLS.
#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_registry_without_tls_is_a_tls_failure(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let node = Node::start(version).await;
    let host = registry.host();
    let hosts = format!("server = \"https://{host}\"\n[host.\"https://{host}\"]\n");
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let error = node
        .runtime
        .pull(&PullRequest::new(image(&format!("{host}/app:v1"))))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Reason::Tls, "{}", error.text());
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn the_image_filesystem_is_measured(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 50_000).build(), "app", "v1")
        .await
        .unwrap();
    let node = Node::start_with(larder_testkit::ContainerdOptions {
        disk_size: Some(64 << 20),
        ..larder_testkit::ContainerdOptions::new(version)
    })
    .await;
    node.runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();
    let fs = node.runtime.image_fs().await.unwrap();
    assert_eq!(fs.capacity, ByteSize(64 << 20));
    assert!(fs.free < fs.capacity, "{fs:?}");
    assert!(fs.path.starts_with(node.containerd.root()), "{fs:?}");
    assert!(fs.used_by_images.is_some(), "{fs:?}");
}

/// A small pull is over before anybody looks, and layers may be there from another image.
#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_pull_tells_what_it_brought(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let built = Recipe::random(1, 2, 20_000).build();
    let first = registry.push(&built, "team/app", "v1").await.unwrap();
    let again = registry.push(&built, "team/app", "same").await.unwrap();
    let node = Node::start(version).await;
    let pull = async |reference: &str| node.runtime.pull(&PullRequest::new(image(reference))).await.unwrap();
    let pulled = pull(&first.reference).await;
    assert_eq!(pulled.fetched, pulled.download);
    assert!(Some(ByteSize(20_000)) < pulled.fetched, "{pulled:?}");
    let pulled = pull(&again.reference).await;
    assert_eq!(pulled.fetched, Some(ByteSize(0)), "all of it was there");
}
