//! What one change of a node costs the engine in a large fleet: 10,000 nodes with ten entries each, of 200 jobs.
//!
//! `cargo run --release -p larder-controller --example turn` prints how long the turns of the loop take at the start, from
//! complete lists until everything is decided, the mean time of one turn afterwards (an event, a decision, the writes), and
//! how much memory the engine takes. It needs no server; the figures in docs/benchmarks.md are those of
//! `make bench-controller`, with real ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measurement that cannot go on stops"
)]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_controller::engine::{Engine, Job, Limits, NodeWriteResult, WatchEvent, WatchKind};
use larder_controller::facts::NodeFacts;
use larder_controller::kinds;
use larder_planner::kruise::PullJobs;
use serde_json::{Value, json};

const NODES: usize = 10_000;
const JOBS: usize = 200;
const ENTRIES: usize = 10;
const TURNS: usize = 20_000;

/// Writes of one turn: as many as the core has in flight at once.
const WRITES: usize = 64;

fn now() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap()
}

/// The jobs that a node belongs to: its group's.
fn jobs_of(node: usize) -> impl Iterator<Item = usize> {
    let group = node % (JOBS / ENTRIES);
    (0..ENTRIES).map(move |entry| group * ENTRIES + entry)
}

fn node_image(node: usize, version: usize) -> NodeImage {
    let (mut images, mut results) = (json!({}), json!({}));
    for job in jobs_of(node) {
        let name = format!("registry.example.com/team-{job}/application");
        let uid = format!("5e3c8d9e-0000-4000-8000-{job:012}");
        images[&name] = json!({"tags": [{
            "tag": "v1.2.3", "createdAt": "2026-01-01T00:00:00Z", "imagePullPolicy": "IfNotPresent",
            "claims": [{"uid": uid, "version": 0}], "progressSeconds": 2,
            "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "name": format!("job-{job}"),
                "namespace": "team", "uid": uid}],
            "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 86400},
        }]});
        results[&name] = json!({"tags": [{
            "tag": "v1.2.3", "phase": "Pulling", "version": 0, "attempts": 1, "startTime": "2026-01-01T00:00:00Z",
            "bytesTotal": 100_000_000, "bytesDone": version,
        }]});
    }
    serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": format!("node-{node:05}"), "uid": format!("uid-{node}"), "generation": 2,
            "resourceVersion": (version * NODES + node + 1).to_string(),
            "labels": {"group": (node % (JOBS / ENTRIES)).to_string(), "kubernetes.io/hostname": format!("node-{node:05}")}},
        "spec": {"images": images},
        "status": {"desired": ENTRIES, "pulling": ENTRIES, "imageStatuses": results,
            "agent": {"version": "0.1.0", "runtime": "containerd 2.4.2", "lastSeen": "2026-01-01T00:00:00Z"}},
    }))
    .unwrap()
}

fn job(number: usize) -> Box<dyn Job> {
    let job: Value = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": format!("job-{number}"), "namespace": "team", "uid": format!("5e3c8d9e-0000-4000-8000-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "resourceVersion": "1"},
        "spec": {"image": format!("registry.example.com/team-{number}/application:v1.2.3"), "parallelism": NODES,
            "selector": {"matchLabels": {"group": (number / ENTRIES).to_string()}}},
    });
    kinds::job::<PullJobs>(serde_json::from_value(job).unwrap()).expect("a served kind")
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn turn(engine: &mut Engine) {
    engine.decide(now());
    for _ in 0..WRITES {
        match engine.next_node_write(now()) {
            Some((node, _)) => engine.node_written(&node, NodeWriteResult::Unknown, now()),
            None => break,
        }
    }
    while engine.next_job_write(now()).is_some() {}
}

fn main() {
    let mut engine = Engine::new(Limits {
        accept_unenforced_node_policy: true,
        ..Limits::default()
    });
    let kinds: Vec<WatchKind> = WatchKind::of_engine().collect();
    for kind in &kinds {
        engine.observe(kind, WatchEvent::ListBegins, now());
    }
    for node in 0..NODES {
        let image = node_image(node, 0);
        let facts = NodeFacts {
            name: format!("node-{node:05}"),
            ready: true,
            labels: image.metadata.labels.clone(),
            ..NodeFacts::default()
        };
        engine.observe(&WatchKind::Node, WatchEvent::Node(facts), now());
        engine.observe(&WatchKind::NodeImage, WatchEvent::NodeImage(Box::new(image)), now());
    }
    for number in 0..JOBS {
        let job = job(number);
        let kind = WatchKind::Job(job.kind());
        engine.observe(&kind, WatchEvent::Job(job), now());
    }
    for kind in &kinds {
        engine.observe(kind, WatchEvent::ListComplete, now());
    }
    let (mut turns, mut total, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    while turns == 0 || engine.has_queued_nodes() {
        let began = Instant::now();
        turn(&mut engine);
        let took = began.elapsed();
        (turns, total, longest) = (turns + 1, total + took, longest.max(took));
    }
    println!("start: {turns} turns in {total:?}, the longest {longest:?}");
    println!(
        "{} MB with {NODES} nodes, {JOBS} jobs, {} entries",
        memory() / 1_024,
        NODES * ENTRIES
    );
    let events: Vec<NodeImage> = (0..TURNS).map(|turn| node_image(turn * 7 % NODES, 1 + turn)).collect();
    let began = Instant::now();
    for event in events {
        engine.observe(&WatchKind::NodeImage, WatchEvent::NodeImage(Box::new(event)), now());
        turn(&mut engine);
    }
    let mean = began.elapsed() / u32::try_from(TURNS).unwrap();
    println!("{mean:?} per turn, {} MB afterwards", memory() / 1_024);
}
