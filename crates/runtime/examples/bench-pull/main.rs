//! `make bench-pull`: our fetcher beside CRI, on real containerds, over lines with limits. Prints the tables of
//! docs/benchmarks.md. `bench-pull child …` is the process that is killed, and whose memory is measured; `bench-pull PERCENT`
//! runs every line with images of that share of their size, which shows that the lines work.
//!
//! The line with a long round trip and loss is emulated by the proxy that limits the other lines: many kernels lack netem.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends where something is wrong"
)]

mod child;
mod lines;
mod world;

use std::time::Duration;

use larder_testkit::{ContainerdVersion, Link};

use self::lines::{RUNS, Scale, SlowLine};
use self::world::{Kind, MB};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("child") {
        child::run(&arguments.collect::<Vec<_>>()).await;
        return;
    }
    let scale = Scale(first.map_or(100, |percent| percent.parse().unwrap()));
    if scale.0 != 100 {
        println!(
            "Images have {} % of the size that the lines name: the figures mean nothing.",
            scale.0
        );
        println!();
    }
    println!("| line | containerd | CRI | Larder | | goal |");
    println!("|---|---|--:|--:|--:|--:|");
    let kinds = [
        Kind::new("1.7.28", ContainerdVersion::V1_7),
        Kind::new("2.4.2", ContainerdVersion::V2),
        Kind::new("2.4.2, multipart", ContainerdVersion::V2).multipart(),
    ];
    for line in slow_lines() {
        for kind in &kinds {
            lines::slow_line(kind, scale, &line).await;
        }
    }
    for kind in &kinds[..2] {
        lines::loopback(kind, scale).await;
    }
    println!();
    println!("| line | containerd | Larder | goal |");
    println!("|---|---|--:|--:|");
    for kind in &kinds[..2] {
        lines::dropped_connections(kind, scale).await;
        lines::killed(kind, scale).await;
        lines::limited(kind, scale).await;
        lines::memory(kind, scale).await;
    }
}

/// Round trip of the far line.
const ROUND_TRIP: Duration = Duration::from_millis(150);

/// What TCP reaches on one connection with that round trip and 0.5 % loss, by the formula of Mathis: 1.22 segments of 1460
/// bytes per round trip, divided by the root of the loss.
const FAR_RATE: u64 = 168_000;

fn slow_lines() -> [SlowLine; 3] {
    let slow = Link::bytes_per_second(8 * MB);
    [
        SlowLine {
            name: "8 MB/s per connection, 100 MB in five layers",
            link: slow,
            layers: 5,
            each: 20,
            runs: RUNS,
            goal: 3.0,
        },
        SlowLine {
            name: "the same, one layer of 400 MB",
            link: slow,
            layers: 1,
            each: 400,
            runs: 1,
            goal: 5.0,
        },
        SlowLine {
            name: "150 ms round trip, 0.5 % loss (emulated), 100 MB",
            link: Link::far(ROUND_TRIP, FAR_RATE),
            layers: 5,
            each: 20,
            runs: 1,
            goal: 2.0,
        },
    ]
}
