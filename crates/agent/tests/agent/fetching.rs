//! Agents that fetch layers themselves, on real containerds.

use std::net::SocketAddr;

use larder_agent::FetchMode;
use larder_model::Phase;
use larder_testkit::image::{Image, Recipe};
use larder_testkit::{Auth, Containerd, ContainerdVersion, Link, Registry, Throttle, wait_for, wait_until};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

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

/// Passes connections on to a registry. While it is busy, it answers every request by asking for three seconds.
struct Front {
    host: String,
    is_busy: watch::Sender<bool>,
}

impl Front {
    async fn start(registry: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (is_busy, busy) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut busy = busy.clone();
                tokio::spawn(async move {
                    if *busy.borrow() {
                        let answer =
                            "HTTP/1.1 429 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                        if matches!(client.read(&mut [0; 4096]).await, Ok(1..)) {
                            client.write_all(answer.as_bytes()).await.ok();
                        }
                    } else if let Ok(mut registry) = TcpStream::connect(registry).await {
                        // Connections that are kept for later requests end when it gets busy.
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut client, &mut registry) => {}
                            _ = busy.wait_for(|busy| *busy) => {}
                        }
                    }
                });
            }
        });
        Self { host, is_busy }
    }
}

#[rstest]
#[case::containerd_1_7(ContainerdVersion::V1_7)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn the_status_says_what_a_pull_waits_for_and_where_the_image_came_from(#[case] version: ContainerdVersion) {
    let (registry, line, image) = slow_line(16 * MIB).await;
    let base = Recipe::random(1, 1, 8 * MIB).build();
    registry.push(&base, "base", "1").await.unwrap();
    assert_eq!(base.layers()[0].digest(), image.layers()[0].digest());
    let front = Front::start(line.address()).await;
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let agent = node.containerd(&containerd, fetching());
    let from = &front.host;

    let wanted = node.pull(&format!("{from}/base:1"), |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(status.phase(), Phase::Succeeded, "{status:?}");
    assert_eq!(status.message, Some(format!("All 8.0 MiB came from {from}.")));

    front.is_busy.send_replace(true);
    let wanted = node
        .pull(&format!("{from}/app:1"), |entry| {
            entry.pull_policy.timeout_seconds = 240;
        })
        .await;
    let asks = "The registry asked to retry after 3 s; the pull goes on then.";
    let status = node
        .until(&wanted, "the wait", |status| status.message.as_deref() == Some(asks))
        .await;
    assert_eq!((status.phase(), status.attempts), (Phase::Pulling, Some(1)));
    front.is_busy.send_replace(false);
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.attempts),
        (Phase::Succeeded, Some(1)),
        "{status:?}"
    );
    let both = format!("8.0 MiB came from {from}; 8.0 MiB were on the node already.");
    assert_eq!(status.message, Some(both));
    agent.stop().await;
}
