//! What a pull would do, without doing it.

use larder_model::{Phase, Reason};
use larder_testkit::image::{Image, Layer, Recipe};
use larder_testkit::{Auth, Containerd, ContainerdOptions, ContainerdVersion, Registry};
use rstest::rstest;

use super::containerd::{MIB, connected};
use super::credentials::{claimed, sealed};
use super::scene::{Change, Node};

fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap()
}

/// Two images that have their first layer in common.
fn related(shared: usize, own: usize) -> (Image, Image) {
    let with = |seed| Recipe::new([Layer::random(1, shared), Layer::random(seed, own)]).build();
    (with(2), with(3))
}

#[tokio::test]
async fn a_dry_run_reports_size_and_room_and_pulls_nothing() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(1, 2, MIB).build();
    let pushed = registry.push(&image, "app", "1").await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&pushed.reference, |entry| entry.dry_run = true).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.last_succeeded.is_none()),
        (Phase::Succeeded, true),
        "{status:?}"
    );
    assert_eq!(
        (status.bytes_done, status.bytes_total),
        (Some(0), Some(bytes(image.content_size())))
    );
    assert_eq!(status.digest, Some(pushed.digest));
    let listed = containerd.ctr(["images", "ls", "-q"]).await.unwrap();
    assert!(listed.stdout.is_empty());
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn layers_that_are_there_are_not_counted_as_missing(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (first, second) = related(MIB, 10_000);
    let there = registry.push(&first, "first", "1").await.unwrap();
    let asked = registry.push(&second, "second", "1").await.unwrap();
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&there.reference, |_| {}).await;
    node.until_phase(&wanted, Phase::Succeeded).await;

    let wanted = node.pull(&asked.reference, |entry| entry.dry_run = true).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.bytes_done, status.bytes_total),
        (
            Some(bytes(second.layers()[0].size())),
            Some(bytes(second.content_size()))
        ),
        "{status:?}"
    );

    let wanted = node
        .pull(&there.reference, |entry| {
            entry.dry_run = true;
            entry.version = 1;
        })
        .await;
    let status = node
        .until(&wanted, "the answer of the dry run", |status| {
            status.phase().is_final() && status.version == Some(1)
        })
        .await;
    assert_eq!(status.bytes_done, status.bytes_total, "{status:?}");
    assert!(status.message.unwrap().contains("there already"));
}

#[tokio::test]
async fn room_is_needed_for_what_is_missing_only() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (first, second) = related(5 * MIB, 100_000);
    let there = registry.push(&first, "first", "1").await.unwrap();
    let next = registry.push(&second, "second", "1").await.unwrap();
    let options = ContainerdOptions {
        disk_size: Some(24 * MIB as u64),
        ..ContainerdOptions::new(ContainerdVersion::V2)
    };
    let containerd = Containerd::start_with(options).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&there.reference, |entry| entry.checks = vec!["disk".to_owned()])
        .await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    let fs = connected(&containerd).await.image_fs().await.unwrap();
    assert!(
        fs.used.0 + 3 * second.content_size() > fs.capacity.0 * 85 / 100,
        "all of the second image would fit, so this test shows nothing: {fs:?}"
    );
    let wanted = node
        .pull(&next.reference, |entry| entry.checks = vec!["disk".to_owned()])
        .await;
    let status = node.until_done(&wanted).await;
    assert_eq!(status.phase(), Phase::Succeeded, "{status:?}");
}

#[tokio::test]
async fn a_private_image_is_asked_for_with_its_credentials_which_may_come_later() {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let image = Recipe::random(1, 1, 1000).build();
    let pushed = registry.push(&image, "app", "1").await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let credential = sealed(&node, &pushed.reference, "ann", "s3cret").await;
    let wanted = node
        .pull(&pushed.reference, |entry| {
            entry.dry_run = true;
            claimed(entry, &credential);
        })
        .await;
    let status = node
        .until(&wanted, "a word about the credentials", |status| {
            status.reason().is_some()
        })
        .await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Waiting, Some(Reason::CredentialsUnreadable)),
        "{status:?}"
    );
    node.seal(vec![credential]).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.bytes_total),
        (Phase::Succeeded, Some(bytes(image.content_size()))),
        "{status:?}"
    );

    let wanted = node
        .pull(&pushed.reference, |entry| {
            entry.dry_run = true;
            entry.version = 1;
        })
        .await;
    let status = node
        .until(&wanted, "the answer without credentials", |status| {
            status.version == Some(1) && status.phase().is_final()
        })
        .await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::AuthDenied)),
        "{status:?}"
    );
}
