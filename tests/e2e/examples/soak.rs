//! Kills parts of a cluster at random moments of running jobs, round after round: `make soak`.
//!
//! Each round runs one job over a slow line, kills one part with SIGKILL in the middle, starts it again and waits for the
//! job. Every job must end well, with the image on every node, and never above its parallelism. The seed that is printed
//! repeats a run: `cargo run -p larder-e2e --example soak -- ROUNDS SEED`.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::time::Duration;

use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

const NODES: usize = 3;

/// Half a second for an image, so that a kill hits every phase of a job.
const BYTES_PER_SECOND: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy)]
enum Part {
    Controller,
    Agent(usize),
    Containerd(usize),
    ApiServer,
    Etcd,
    Registry,
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(20, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or_else(rand::random, |text| text.parse().unwrap());
    println!("soak: {rounds} rounds of each part, seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);

    let mut registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(BYTES_PER_SECOND));
    let mut cluster = Cluster::start(NODES).await;
    for round in 0..rounds * 6 {
        let node = random.random_range(0..NODES);
        let part = match round % 6 {
            0 => Part::Controller,
            1 => Part::Agent(node),
            2 => Part::Containerd(node),
            3 => Part::ApiServer,
            4 => Part::Etcd,
            _ => Part::Registry,
        };
        let began = Instant::now();
        one(&mut cluster, &mut registry, &line, &mut random, round, part).await;
        println!(
            "soak: round {round}, {part:?} killed, done after {:.1} s",
            began.elapsed().as_secs_f64()
        );
    }
}

async fn one(
    cluster: &mut Cluster,
    registry: &mut Registry,
    line: &Throttle,
    random: &mut StdRng,
    round: u64,
    part: Part,
) {
    let recipe = Recipe::random(random.random(), 2, 256 * 1024);
    let repository = format!("soak/{round}");
    let pushed = registry.push(&recipe.build(), &repository, "v1").await.unwrap();
    let name = format!("{}/{repository}", line.address());
    let parallelism = random.random_range(1..=NODES);
    let orders = cluster.watch_orders(&name, "v1");
    let job = format!("round-{round}");
    cluster
        .submit(&job, &format!("{name}:v1"), &json!({ "parallelism": parallelism }))
        .await;

    sleep(Duration::from_millis(random.random_range(0..1_500))).await;
    let away = Duration::from_millis(random.random_range(0..1_000));
    match part {
        Part::Controller => {
            cluster.controller.kill().unwrap();
            sleep(away).await;
            cluster.controller.restart().unwrap();
        }
        Part::Agent(node) => {
            cluster.nodes[node].agent.kill().unwrap();
            sleep(away).await;
            cluster.nodes[node].agent.restart().unwrap();
        }
        Part::Containerd(node) => {
            cluster.nodes[node].containerd.kill().unwrap();
            sleep(away).await;
            cluster.nodes[node].containerd.restart().await.unwrap();
        }
        Part::ApiServer => {
            cluster.plane.kill_api_server().unwrap();
            sleep(away).await;
            cluster.plane.restart_api_server().await.unwrap();
        }
        Part::Etcd => {
            cluster.plane.kill_etcd().unwrap();
            sleep(away).await;
            cluster.plane.restart_etcd().await.unwrap();
        }
        Part::Registry => {
            registry.kill().unwrap();
            sleep(away).await;
            registry.restart().await.unwrap();
        }
    }

    let status = cluster.finished(&job).await;
    let all = i32::try_from(NODES).unwrap();
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (all, all, 0),
        "round {round}: {status:?}\n{}",
        cluster.logs()
    );
    for node in &cluster.nodes {
        assert!(
            node.has_image(&format!("{name}:v1"), &pushed.digest).await,
            "round {round}: {} lacks it",
            node.name
        );
    }
    let most = orders.most_at_once(SOON).await;
    assert!(
        most <= parallelism,
        "round {round}: {most} nodes at once, {parallelism} allowed"
    );
}
