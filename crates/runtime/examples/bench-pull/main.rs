//! `make bench-pull`: our fetcher beside CRI, on real containerds, over lines with limits. Prints the tables of
//! docs/benchmarks.md. `bench-pull child …` is the process that is killed, and whose memory is measured.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends where something is wrong"
)]

mod child;
mod lines;
mod world;

use larder_testkit::ContainerdVersion;

use self::world::Kind;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("child") {
        child::run(&arguments.collect::<Vec<_>>()).await;
        return;
    }
    println!("| line | containerd | CRI | Larder | | goal |");
    println!("|---|---|--:|--:|--:|--:|");
    let kinds = [
        Kind::new("1.7.28", ContainerdVersion::V1_7),
        Kind::new("2.4.2", ContainerdVersion::V2),
        Kind::new("2.4.2, multipart", ContainerdVersion::V2).multipart(),
    ];
    for kind in &kinds {
        lines::slow_connections(kind, "8 MB/s per connection, 100 MB in five layers", 5, 20, 3.0).await;
    }
    for kind in &kinds {
        lines::slow_connections(kind, "the same, one layer of 400 MB", 1, 400, 5.0).await;
    }
    for kind in &kinds[..2] {
        lines::loopback(kind).await;
    }
    println!();
    println!("| line | containerd | Larder | goal |");
    println!("|---|---|--:|--:|");
    for kind in &kinds[..2] {
        lines::dropped_connections(kind).await;
        lines::killed(kind).await;
        lines::limited(kind).await;
        lines::memory(kind).await;
    }
}
