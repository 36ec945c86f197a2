//! What one change of a node costs the engine in a large fleet: 10,000 nodes with ten entries each, of 200 jobs.
//!
//! `cargo run --profile simulate -p larder-controller --example turn` prints how long the turns of the loop take at the start, from
//! complete lists until everything is decided, the mean time of one turn afterwards (an event, a decision, the writes), and
//! how much memory the engine takes. It needs no server; the figures in docs/benchmarks.md are those of
//! `make bench-controller`, with real ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measurement that cannot go on stops"
)]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use larder_api::node_image::ImageTagSpec;
use larder_api::{NodeImage, NodeImageSpec};
use larder_controller::engine::{Engine, Job, Limits, NodeWrite, NodeWriteResult, WatchEvent, WatchKind};
use larder_controller::facts::NodeFacts;
use larder_controller::kinds;
use larder_planner::NodeKey;
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

/// A NodeImage as an agent left it with its write of this number; `bytes` of each image are there.
fn node_image(node: usize, version: usize, bytes: usize) -> NodeImage {
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
            "bytesTotal": 100_000_000, "bytesDone": bytes,
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

/// How long entries stay after their end, per node and image: what the engine has written into the specs.
type Ttls = BTreeMap<NodeKey, Vec<i32>>;

fn tags(spec: &mut NodeImageSpec) -> impl Iterator<Item = &mut ImageTagSpec> {
    spec.images.values_mut().flat_map(|image| &mut image.tags)
}

fn turn(engine: &mut Engine, ttls: &mut Ttls) {
    engine.decide(now());
    for _ in 0..WRITES {
        let Some((node, write)) = engine.next_node_write(now()) else {
            break;
        };
        let NodeWrite::Patch(patch) = write else {
            panic!("the nodes exist: {write:?}");
        };
        let number = node.strip_prefix("node-").unwrap().parse().unwrap();
        let mut object = serde_json::to_value(node_image(number, 1, 0)).unwrap();
        json_patch::patch(
            &mut object,
            &serde_json::from_value::<json_patch::Patch>(patch).unwrap(),
        )
        .unwrap();
        let mut object: NodeImage = serde_json::from_value(object).unwrap();
        let written = tags(&mut object.spec).map(|entry| entry.pull_policy.ttl_seconds_after_finished);
        ttls.insert(node.clone(), written.collect());
        engine.node_written(&node, NodeWriteResult::Object(Box::new(object)), now());
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
        let image = node_image(node, 0, 0);
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
    let mut ttls = Ttls::new();
    let (mut turns, mut total, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    while turns == 0 || engine.has_queued_nodes() {
        let began = Instant::now();
        turn(&mut engine, &mut ttls);
        let took = began.elapsed();
        (turns, total, longest) = (turns + 1, total + took, longest.max(took));
    }
    println!("start: {turns} turns in {total:?}, the longest {longest:?}");
    println!(
        "{} MB with {NODES} nodes, {JOBS} jobs, {} entries",
        memory() / 1_024,
        NODES * ENTRIES
    );
    // What one turn takes in: the agent wrote something that concerns no image, or the bytes of ten pulls.
    for (what, bytes) in [("sign of life", 0), ("bytes of ten pulls", 1)] {
        let event = |turn| {
            let node = turn * 7 % NODES;
            let mut object = node_image(node, (1 + bytes) * TURNS + turn, bytes * turn);
            let written = &ttls[object.metadata.name.as_deref().unwrap()];
            for (entry, ttl) in tags(&mut object.spec).zip(written) {
                entry.pull_policy.ttl_seconds_after_finished = *ttl;
            }
            object
        };
        let events: Vec<NodeImage> = (0..TURNS).map(event).collect();
        let began = Instant::now();
        for event in events {
            engine.observe(&WatchKind::NodeImage, WatchEvent::NodeImage(Box::new(event)), now());
            turn(&mut engine, &mut ttls);
        }
        let mean = began.elapsed() / u32::try_from(TURNS).unwrap();
        println!("{what}: {mean:?} per turn");
    }
}
