//! Resident memory of the agent, idle and while three pulls run.

use std::time::Duration;

use larder_testkit::image::Recipe;
use larder_testkit::{Access, Containerd, Link, Registry, Throttle};
use tokio::time::{Instant, sleep};

use crate::node::node;

const MIB: usize = 1 << 20;

/// Long enough for start-up to be over and for pulls to be in full swing.
const WATCHED: Duration = Duration::from_secs(5);

pub(crate) async fn measure(access: &Access, registry: &Registry, containerd: &Containerd) {
    let line = Throttle::start(registry.address()).await.unwrap();
    let mut references = Vec::new();
    for number in 0..3 {
        let name = format!("memory-{number}");
        registry
            .push(&Recipe::random(900 + number, 4, 8 * MIB).build(), &name, "1")
            .await
            .unwrap();
        references.push(format!("{}/{name}:1", line.host()));
    }
    line.set(Link::bytes_per_second(1_000_000));
    let node = node(access).await;
    let agent = node.agent(access, &containerd.socket()).await;
    let pid = agent.pid().unwrap();
    rows("idle", pid).await;
    node.order(&references).await;
    rows("three pulls running", pid).await;
    node.order(&[]).await;
}

/// The most that the process has while it is watched: all of it, its share of what several processes have, and what it
/// has written itself. The rest are pages of the program file, which the kernel can drop and read again.
async fn rows(when: &str, pid: u32) {
    let end = Instant::now() + WATCHED;
    let (mut all, mut share, mut private) = (0, 0, 0);
    while Instant::now() < end {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        all = all.max(kilobytes(&status, "VmRSS:"));
        private = private.max(kilobytes(&status, "RssAnon:"));
        let shares = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        share = share.max(kilobytes(&shares, "Pss:"));
        sleep(Duration::from_millis(100)).await;
    }
    println!("| resident memory, {when} | {} MB | | |", megabytes(all));
    println!("| its proportional share (PSS), {when} | {} MB | | |", megabytes(share));
    println!("| of that private | {} MB | | |", megabytes(private));
}

fn megabytes(kilobytes: u64) -> String {
    let tenths = kilobytes * 1024 * 10 / 1_000_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
