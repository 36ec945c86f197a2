//! Agents that fetch layers themselves, on real containerds.

use larder_agent::FetchMode;
use larder_testkit::image::{Image, Recipe};
use larder_testkit::{Auth, Containerd, ContainerdVersion, Link, Registry, Throttle, wait_for, wait_until};
use rstest::rstest;

use super::containerd::MIB;
use super::scene::{Change, Node, SOON};

fn fetching() -> Change {
    Change {
        fetch: FetchMode::Auto,
        ..Change::default()
    }
}

/// A registry with one image, behind a line that is slow for each connection.
async fn slow_line(bytes_per_second: usize) -> (Registry, Throttle, Image) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let image = Recipe::random(1, 2, 8 * MIB).build();
    registry.push(&image, "app", "1").await.unwrap();
    line.set(Link::bytes_per_second(bytes_per_second as u64));
    (registry, line, image)
}

async fn leases(containerd: &Containerd) -> String {
    let leases = containerd.ctr(["leases", "ls", "-q"]).await.unwrap();
    assert!(leases.status.success(), "{leases:?}");
    String::from_utf8_lossy(&leases.stdout).trim().to_owned()
}

/// The order is withdrawn while containerd is away, so that nothing can be thrown away then.
#[rstest]
#[case::containerd_1_7(ContainerdVersion::V1_7)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn what_was_fetched_leaves_a_containerd_that_was_away_when_the_order_was_withdrawn(
    #[case] version: ContainerdVersion,
) {
    let (_registry, line, image) = slow_line(MIB / 2).await;
    let mut containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let agent = node.containerd(&containerd, fetching());
    let wanted = node.pull(&format!("{}/app:1", line.host()), |_| {}).await;
    wait_until(SOON, "bytes on the line", async || {
        image.content_size() / 4 <= line.bytes()
    })
    .await
    .unwrap();
    assert_ne!(leases(&containerd).await, "", "layers are being fetched");
    containerd.kill().unwrap();
    node.until(&wanted, "the failure", |status| status.reason().is_some())
        .await;
    node.order(&[]).await;
    wait_until(SOON, "the agent to have taken up the order", async || {
        let status = node.get().await.status.unwrap_or_default();
        status.image_statuses.is_empty()
    })
    .await
    .unwrap();
    containerd.restart().await.unwrap();
    wait_for(SOON, "no lease", async || {
        let leases = leases(&containerd).await;
        if leases.is_empty() { Ok(()) } else { Err(leases) }
    })
    .await
    .unwrap();
    agent.stop().await;
}
