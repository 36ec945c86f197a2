//! Images that testkit builds reach both containerds from both kinds of registry, over good lines and bad ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Output;
use std::time::Duration;

use larder_testkit::image::{Compression, Format, Index, Layer, Platform, Recipe};
use larder_testkit::{Auth, Containerd, ContainerdOptions, ContainerdVersion, Link, Registry, Throttle};
use rstest::rstest;

const KIB: usize = 1024;

/// An image with everything in it that an image may have: several platforms, layers of both kinds, shared ones.
fn index(format: Format) -> Index {
    let layers = [
        Layer::random(1, 300 * KIB),
        Layer::random(2, 20 * KIB).compression(Compression::None),
    ];
    let here = Recipe::new(layers.clone()).format(format);
    let there = Recipe::new([layers[0].clone(), Layer::random(3, KIB)]).platform(Platform::linux("riscv64"));
    Index::new(format, vec![there.format(format).build(), here.build()])
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn bad(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[rstest]
#[tokio::test]
async fn containerd_pulls_and_unpacks(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[values(Format::Oci, Format::Docker)] format: Format,
) {
    let containerd = Containerd::start(version).await.unwrap();
    let index = index(format);

    let open = Registry::start(Auth::Open).await.unwrap();
    let pushed = open.push_index(&index, "guide/app", "v1").await.unwrap();
    good(
        &containerd
            .ctr(["images", "pull", "--plain-http", &pushed.reference])
            .await
            .unwrap(),
    );
    let listed = good(&containerd.ctr(["images", "ls"]).await.unwrap());
    assert!(
        listed.contains(&pushed.reference) && listed.contains(index.manifest().digest()),
        "{listed}"
    );
    let snapshots = good(&containerd.ctr(["snapshots", "ls"]).await.unwrap());
    assert_eq!(
        snapshots.lines().filter(|line| line.contains("Committed")).count(),
        2,
        "{snapshots}"
    );

    let locked = Registry::start(Auth::basic("ada", "open sesame")).await.unwrap();
    let pushed = locked.push(&index.images()[1], "guide/app", "v1").await.unwrap();
    let pull = ["images", "pull", "--plain-http", &pushed.by_digest];
    let refused = bad(&containerd.ctr(pull).await.unwrap());
    assert!(
        refused.contains("no basic auth credentials") || refused.contains("401"),
        "{refused}"
    );
    let with_password = [&pull[..3], &["--user", "ada:open sesame", &pushed.by_digest]].concat();
    good(&containerd.ctr(with_password).await.unwrap());
}

#[rstest]
#[tokio::test]
async fn containerd_keeps_its_images_over_a_restart(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
) {
    let mut containerd = Containerd::start(version).await.unwrap();
    let mut registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, KIB).build(), "app", "v1")
        .await
        .unwrap();
    registry.kill().unwrap();
    bad(&containerd
        .ctr(["images", "pull", "--plain-http", &pushed.reference])
        .await
        .unwrap());
    registry.restart().await.unwrap();
    good(
        &containerd
            .ctr(["images", "pull", "--plain-http", &pushed.reference])
            .await
            .unwrap(),
    );

    let old = containerd.pid();
    containerd.kill().unwrap();
    bad(&containerd.ctr(["images", "ls"]).await.unwrap());
    containerd.restart().await.unwrap();
    assert_ne!(containerd.pid(), old);
    assert!(good(&containerd.ctr(["images", "ls"]).await.unwrap()).contains(&pushed.reference));
}

#[rstest]
#[tokio::test]
async fn a_small_disk_fills_up(#[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion) {
    let options = ContainerdOptions {
        disk_size: Some(4 << 20),
        ..ContainerdOptions::new(version)
    };
    let containerd = Containerd::start_with(options).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 6 << 20).build(), "app", "v1")
        .await
        .unwrap();
    let said = bad(&containerd
        .ctr(["images", "pull", "--plain-http", &pushed.reference])
        .await
        .unwrap());
    assert!(said.contains("no space left on device"), "{said}");
}

#[tokio::test]
async fn a_cut_line_fails_the_pull_and_an_open_one_heals_it() {
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let image = Recipe::random(1, 1, 2 << 20).build();
    registry.push(&image, "app", "v1").await.unwrap();
    let reference = format!("{}/app:v1", line.host());
    // containerd goes on where a download broke off, again and again; so not even an answer's head may come through.
    line.set(Link::CutAfter(50));
    bad(&containerd
        .ctr(["images", "pull", "--plain-http", &reference])
        .await
        .unwrap());
    line.set(Link::Open);
    good(
        &containerd
            .ctr(["images", "pull", "--plain-http", &reference])
            .await
            .unwrap(),
    );
    assert!(
        line.bytes() >= image.content_size(),
        "{} bytes came through",
        line.bytes()
    );
}

#[tokio::test]
async fn a_frozen_registry_answers_when_it_thaws() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(1, 1, KIB).build();
    registry.freeze().unwrap();
    let mut push = std::pin::pin!(registry.push(&image, "app", "v1"));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), &mut push)
            .await
            .is_err(),
        "nobody answers"
    );
    registry.thaw().unwrap();
    push.await.unwrap();
}
