//! `make bench-agent`: what the agent costs, against a real kube-apiserver, a real containerd and a real registry.
//!
//! Prints one table row per figure. Everything that is compared is measured in the same run on the same machine.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing to say")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod latency;
mod memory;
mod node;
mod pulls;

use larder_api::crds;
use larder_testkit::{Auth, Containerd, ContainerdVersion, ControlPlane, Registry};

#[tokio::main]
async fn main() {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    println!("| what | median | p99 | runs |");
    println!("|---|--:|--:|--:|");
    memory::measure(&access, &registry, &containerd).await;
    latency::order_to_call(&access, &registry, &containerd).await;
    latency::end_to_status(&access).await;
    pulls::overhead(&access, &registry, &containerd).await;
}

/// Prints a row of times in milliseconds.
fn row(what: &str, mut samples: Vec<std::time::Duration>) -> std::time::Duration {
    samples.sort();
    let at = |share: usize| samples[(samples.len() * share / 100).min(samples.len() - 1)];
    let text = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    println!("| {what} | {} | {} | {} |", text(at(50)), text(at(99)), samples.len());
    at(50)
}
