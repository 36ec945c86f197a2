//! A cluster in which parts are killed at random moments of running jobs, and what holds all the same.
//!
//! Each round runs one job over a slow line from a registry that asks for a password, kills one part with SIGKILL
//! somewhere in the middle, starts it again and waits for the job. The job ends well within its bound; the image is on
//! every node; there were never more orders than its parallelism; no success was taken back; and nobody pulled an image
//! that was there already.

mod restores;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_until};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::restores::Restore;
use crate::{Cluster, SOON};

/// How many nodes a storm has.
pub const NODES: usize = 3;

/// Layers of an image, fetched side by side.
const LAYERS: u64 = 2;

/// With the speed of the line, about a second for an image.
const LAYER: usize = 256 * 1024;
const BYTES_PER_SECOND: u64 = 256 * 1024;
const PULL_MILLIS: u64 = 1_200;

/// How long a part stays away at most.
const AWAY_MILLIS: u64 = 2_000;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The controller; its lease has to run out.
    Controller,
    /// The agent of one node.
    Agent,
    /// The runtime of one node.
    Containerd,
    /// kube-apiserver.
    ApiServer,
    /// etcd.
    Etcd,
    /// The registry.
    Registry,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Controller,
        Self::Agent,
        Self::Containerd,
        Self::ApiServer,
        Self::Etcd,
        Self::Registry,
    ];
}

/// A round that went well.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Nodes that were done when the part was killed; [`NODES`] means that the kill came too late to matter.
    pub done_before: usize,
    /// From the kill to the end of the job.
    pub took: Duration,
}

/// A cluster, a registry, a slow line between them, and chance.
pub struct Storm {
    /// The cluster.
    pub cluster: Cluster,
    registry: Registry,
    line: Throttle,
    random: StdRng,
    rounds: u64,
}

impl Storm {
    /// Starts everything. One seed draws the same moments every time.
    pub async fn start(seed: u64) -> Self {
        let registry = Registry::start(Auth::basic("cook", "salt")).await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        line.set(Link::bytes_per_second(BYTES_PER_SECOND));
        let cluster = Cluster::start(NODES).await;
        cluster
            .kubectl(&[
                "create",
                "secret",
                "docker-registry",
                "pantry",
                &format!("--docker-server={}", line.host()),
                "--docker-username=cook",
                "--docker-password=salt",
            ])
            .await
            .unwrap();
        Self {
            cluster,
            registry,
            line,
            random: StdRng::seed_from_u64(seed),
            rounds: 0,
        }
    }

    /// Runs one job and kills this part in the middle; panics if anything is not as it must be.
    pub async fn round(&mut self, part: Part) -> Round {
        let number = self.rounds;
        self.rounds += 1;
        let recipe = Recipe::random(self.random.random(), LAYERS, LAYER);
        let parallelism = self.random.random_range(1..=NODES);
        let batches = NODES.div_ceil(parallelism) as u64;
        let moment = Duration::from_millis(self.random.random_range(0..batches * PULL_MILLIS));
        let away = Duration::from_millis(self.random.random_range(0..AWAY_MILLIS));
        let victim = self.random.random_range(0..NODES);

        let repository = format!("storm/{number}");
        let pushed = self.registry.push(&recipe.build(), &repository, "v1").await.unwrap();
        let name = format!("{}/{repository}", self.line.host());
        let reference = format!("{name}:v1");
        let orders = self.cluster.watch_orders(&name, "v1");
        let job = format!("round-{number}");
        let results = self.cluster.watch_results(&job);
        let fields = json!({ "parallelism": parallelism, "pullSecrets": ["pantry"] });
        self.cluster.submit(&job, &reference, &fields).await;

        sleep(moment).await;
        let done = self.done(&name).await;
        let leader = self.leader().await;
        let killed = Instant::now();
        self.kill(part, victim);
        sleep(away).await;
        self.start_again(part, victim).await;

        let status = self.cluster.finished(&job).await;
        let took = killed.elapsed();
        if part == Part::Controller {
            self.wait_for_leader(leader).await;
        }
        let all = i32::try_from(NODES).unwrap();
        let what = format!("round {number}, {part:?} (node {victim}) killed after {moment:?} for {away:?}");
        let logs = || self.cluster.logs();
        assert_eq!(
            (status.desired, status.succeeded, status.failed),
            (all, all, 0),
            "{what}: {status:?}\n{}",
            logs()
        );
        let seen = orders.end(NODES).await;
        assert!(
            seen.most <= parallelism,
            "{what}: {} nodes at once, {parallelism} allowed\n{}",
            seen.most,
            logs()
        );
        assert!(seen.lost.is_empty(), "{what}: lost {:?}\n{}", seen.lost, logs());
        let back = results.taken_back();
        assert!(back.is_empty(), "{what}: the job's counters went {back:?}\n{}", logs());
        for (index, node) in self.cluster.nodes.iter().enumerate() {
            assert!(
                node.has_image(&reference, &pushed.digest).await,
                "{what}: {} lacks it",
                node.name
            );
            let pulls = node.containerd.pulls(&reference);
            if let Some(before) = done.get(&node.name) {
                assert_eq!(pulls, *before, "{what}: pulls on {}, which was done", node.name);
            }
            if !touches(part, index == victim) {
                assert_eq!(pulls, 1, "{what}: pulls on {}, which lost nothing", node.name);
            }
        }
        Round {
            done_before: done.len(),
            took,
        }
    }

    /// The nodes that have reported success, and how often each has pulled.
    async fn done(&self, name: &str) -> BTreeMap<String, usize> {
        let mut done = BTreeMap::new();
        for node in &self.cluster.nodes {
            let object = self.cluster.node_image(&node.name).await;
            if object
                .result(name, "v1")
                .is_some_and(|result| result.last_succeeded.is_some())
            {
                let pulls = node.containerd.pulls(&format!("{name}:v1"));
                done.insert(node.name.clone(), pulls);
            }
        }
        done
    }

    /// A controller that was killed when its job was done is still missed by the next one: waits until another leads.
    async fn wait_for_leader(&self, killed: Option<String>) {
        wait_until(SOON, "the new controller to lead", async || {
            self.leader().await != killed
        })
        .await
        .unwrap();
    }

    async fn leader(&self) -> Option<String> {
        let leases = Api::<Lease>::namespaced(self.cluster.client(), "larder-system");
        let lease = leases.get("larder-controller").await.unwrap();
        lease.spec.and_then(|spec| spec.holder_identity)
    }

    fn kill(&mut self, part: Part, victim: usize) {
        match part {
            Part::Controller => self.cluster.controller.kill(),
            Part::Agent => self.cluster.nodes[victim].agent.kill(),
            Part::Containerd => self.cluster.nodes[victim].containerd.kill(),
            Part::ApiServer => self.cluster.plane.kill_api_server(),
            Part::Etcd => self.cluster.plane.kill_etcd(),
            Part::Registry => self.registry.kill(),
        }
        .unwrap();
    }

    async fn start_again(&mut self, part: Part, victim: usize) {
        match part {
            Part::Controller => self.cluster.controller.restart(),
            Part::Agent => self.cluster.nodes[victim].agent.restart(),
            Part::Containerd => self.cluster.nodes[victim].containerd.restart().await,
            Part::ApiServer => self.cluster.plane.restart_api_server().await,
            Part::Etcd => self.cluster.plane.restart_etcd().await,
            Part::Registry => self.registry.restart().await,
        }
        .unwrap();
    }
}

/// Whether a pull under way on a node breaks off when this part dies: an agent, its runtime and the registry take it
/// along; without the controller or the API it goes on.
fn touches(part: Part, victim: bool) -> bool {
    match part {
        Part::Controller | Part::ApiServer | Part::Etcd => false,
        Part::Agent | Part::Containerd => victim,
        Part::Registry => true,
    }
}
