//! Agents that fetch layers themselves (`--fetch=auto`), with the real program and a real containerd.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_for};
use rstest::rstest;
use serde_json::json;

const MIB: usize = 1 << 20;

/// kill -9 in the middle of a fetch: the next process goes on where containerd's store ends, and hardly a byte comes twice.
#[rstest]
#[tokio::test]
async fn an_agent_that_is_killed_in_mid_fetch_goes_on_at_the_byte(#[values(30, 60, 90)] percent: u64) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(4 * MIB as u64));
    let built = Recipe::random(11, 3, 32 * MIB).build();
    registry.push(&built, "app", "v1").await.unwrap();
    let mut cluster = Cluster::start_with(Setup {
        agent: vec!["--fetch=auto".to_owned()],
        ..Setup::nodes(1)
    })
    .await;
    cluster
        .submit("job", &format!("{}/app:v1", line.host()), &json!({}))
        .await;
    let until = built.content_size() * percent / 100;
    wait_for(SOON, "bytes on the line", async || {
        let bytes = line.bytes();
        if until <= bytes { Ok(()) } else { Err(bytes) }
    })
    .await
    .unwrap();
    cluster.nodes[0].agent.kill().unwrap();
    let killed_at = line.bytes();
    assert!(killed_at < built.content_size(), "it was done already");
    cluster.nodes[0].agent.restart().unwrap();
    assert_eq!(cluster.finished("job").await.succeeded, 1);

    let (moved, size) = (line.bytes(), built.content_size());
    assert!(
        moved * 100 <= size * 105,
        "{moved} bytes for {size}, killed at {killed_at}"
    );
    let logs = cluster.logs();
    assert!(logs.contains("layers were fetched"), "{logs}");
    let leases = cluster.nodes[0].containerd.ctr(["leases", "ls", "-q"]).await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&leases.stdout).trim(),
        "",
        "nothing of ours stays"
    );
}
