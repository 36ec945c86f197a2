//! Things break in the middle of a pull: the registry, the runtime, the disk.

use larder_model::{Phase, Reason};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdOptions, ContainerdVersion, Link, Registry, Throttle, wait_until};
use rstest::rstest;

use super::containerd::MIB;
use super::scene::{Change, Node, SOON};

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_registry_that_goes_down_in_mid_pull_is_tried_again(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 4 * MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.backoff_limit = 20;
        })
        .await;
    node.until(&wanted, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    line.set(Link::Refused);
    let status = node
        .until(&wanted, "a reason", |status| status.reason().is_some())
        .await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Pulling, Some(Reason::Unreachable)),
        "{status:?}"
    );
    assert!(status.message.unwrap().ends_with(Reason::Unreachable.advice()));
    line.set(Link::Open);
    let status = node.until_done(&wanted).await;
    assert_eq!((status.phase(), status.digest), (Phase::Succeeded, Some(pushed.digest)));
    assert!(status.attempts > Some(1));
}

#[tokio::test]
async fn a_registry_that_stays_down_fails_after_all_tries() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::Refused);
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.backoff_limit = 1;
        })
        .await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason(), status.attempts),
        (Phase::Failed, Some(Reason::Unreachable), Some(2)),
        "{status:?}"
    );
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_runtime_killed_in_mid_pull_is_waited_for(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 4 * MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::bytes_per_second(500_000));
    let mut containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.backoff_limit = 0;
        })
        .await;
    node.until(&wanted, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    containerd.kill().unwrap();
    let status = node
        .until(&wanted, "a reason", |status| {
            status.reason() == Some(Reason::RuntimeDown)
        })
        .await;
    assert_eq!(status.phase(), Phase::Waiting, "it is not the image's fault");
    let told = async || agent.health.not_ready().is_some_and(|why| why.contains("runtime: "));
    wait_until(SOON, "readiness to end", told).await.unwrap();
    line.set(Link::Open);
    containerd.restart().await.unwrap();
    let status = node.until_done(&wanted).await;
    assert_eq!((status.phase(), status.digest), (Phase::Succeeded, Some(pushed.digest)));
    assert_eq!(status.attempts, Some(1), "the interrupted try does not count");
}

#[tokio::test]
async fn a_runtime_that_comes_late_is_waited_for() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let mut containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    containerd.kill().unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&pushed.reference, |_| {}).await;
    node.until(&wanted, "a reason", |status| {
        status.reason() == Some(Reason::RuntimeDown)
    })
    .await;
    containerd.restart().await.unwrap();
    node.until_phase(&wanted, Phase::Succeeded).await;
}

fn small_disk(version: ContainerdVersion) -> ContainerdOptions {
    ContainerdOptions {
        disk_size: Some(16 * MIB as u64),
        ..ContainerdOptions::new(version)
    }
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_full_disk_says_so(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 24 * MIB).build(), "big", "1")
        .await
        .unwrap();
    let containerd = Containerd::start_with(small_disk(version)).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&pushed.reference, |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::NoSpace)),
        "{status:?}"
    );
    assert!(status.message.unwrap().ends_with(Reason::NoSpace.advice()));
}

#[tokio::test]
async fn the_disk_check_refuses_what_would_not_fit_before_a_byte_is_fetched() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let big = Recipe::random(1, 1, 8 * MIB).build();
    registry.push(&big, "big", "1").await.unwrap();
    registry
        .push(&Recipe::random(2, 1, MIB).build(), "small", "1")
        .await
        .unwrap();
    let containerd = Containerd::start_with(small_disk(ContainerdVersion::V2)).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let check = |entry: &mut larder_api::node_image::ImageTagSpec| entry.checks = vec!["disk".into()];
    let wanted = node.pull(&format!("{}/big:1", line.host()), check).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::CheckFailed)),
        "{status:?}"
    );
    assert!(line.bytes() < MIB as u64, "{} bytes were fetched", line.bytes());
    let wanted = node.pull(&format!("{}/small:1", line.host()), check).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
}

#[tokio::test]
async fn a_pull_that_stands_still_says_so_and_not_that_it_took_too_long() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, 8 * MIB).build(), "app", "1")
        .await
        .unwrap();
    // All of it would take twice the timeout, and half of the timeout is left to see the first bytes.
    line.set(Link::bytes_per_second(100_000));
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.timeout_seconds = 40;
            entry.pull_policy.backoff_limit = 0;
        })
        .await;
    node.until(&wanted, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    line.set(Link::Stalled);
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::Stalled)),
        "{status:?}"
    );
    let message = status.message.unwrap();
    assert!(
        message.contains("nothing arrived") && message.ends_with(Reason::Stalled.advice()),
        "{message}"
    );
}
