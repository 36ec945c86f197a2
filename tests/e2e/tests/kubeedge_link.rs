//! A site whose line to the cloud is cut, as a cable is, before, during and after a pull.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use larder_api::node_image::ImageTagStatus;
use larder_e2e::kubeedge::{phases, text};
use larder_e2e::{Cluster, EdgeSite, SOON, StatusHistory};
use larder_model::Phase;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Pushed, Registry, Throttle, wait_until};
use serde_json::json;

const MIB: usize = 1 << 20;
const REGISTRY_PORT: u16 = 5000;

/// One edge node on a site of its own, and an image in the registry of its region.
struct Scene {
    cluster: Cluster,
    image: Pushed,
    /// The image as the site names it.
    reference: String,
    /// Its name without the tag.
    name: String,
    /// Between the site and the registry.
    region: Throttle,
    /// Between the site and the API server.
    _cloud: Throttle,
    _registry: Registry,
    // Dropped last: the agent inside goes first.
    site: EdgeSite,
}

impl Scene {
    async fn start(seed: u64) -> Self {
        let site = EdgeSite::create();
        let registry = Registry::start(Auth::Open).await.unwrap();
        let recipe = Recipe::random(seed, 2, 2 * MIB).build();
        let image = registry.push(&recipe, "edge/app", "v1").await.unwrap();
        let region = site.region.serve(REGISTRY_PORT, registry.address()).await;
        let mut cluster = Cluster::start(0).await;
        cluster.create_edge_node("edge-0", &json!({})).await;
        let cloud = cluster.join_at("edge-0", &site).await;
        // No registry but one on loopback is spoken to in plain HTTP, unless the node says so.
        let host = region.host();
        let plain = format!("server = \"http://{host}\"\n");
        cluster.nodes[0].containerd.set_hosts(&host, &plain).unwrap();
        cluster.wait_until_ready().await;
        Self {
            cluster,
            image,
            reference: format!("{host}/edge/app:v1"),
            name: format!("{host}/edge/app"),
            region,
            _cloud: cloud,
            _registry: registry,
            site,
        }
    }

    async fn submit(&self) -> StatusHistory {
        let history = self.cluster.watch_result("edge-0", &self.name, "v1").await;
        self.cluster
            .prepull("job", json!({ "images": [self.reference], "nodeNames": ["edge-0"] }))
            .await;
        history
    }

    async fn until_ordered(&self) {
        wait_until(SOON, "the order", async || {
            self.cluster
                .node_image("edge-0")
                .await
                .entry(&self.name, "v1")
                .is_some()
        })
        .await
        .unwrap();
    }

    async fn until_pulling(&self) {
        let pulling = async || self.cluster.nodes[0].containerd.pulls(&self.reference) == 1;
        wait_until(SOON, "the pull", pulling).await.unwrap();
    }

    async fn is_there(&self) -> bool {
        let node = &self.cluster.nodes[0];
        node.has_image(&self.reference, &self.image.digest).await
    }

    async fn until_there(&self) {
        wait_until(SOON, "the image", async || self.is_there().await)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.cluster.logs()));
    }

    async fn until_cut_is_noticed(&self) {
        let node = &self.cluster.nodes[0];
        let noticed = async || node.agent.log_tail().contains("the API is away");
        wait_until(SOON, "the agent to notice", noticed).await.unwrap();
    }

    /// The job ended well, one pull was enough, and its result was told once.
    async fn ended_well(&self, history: &StatusHistory) {
        let status = self.cluster.prepull_finished("job").await;
        assert_eq!(text(status.phase.as_ref()), "Completed", "{status:?}");
        assert_eq!(phases(&status), [("edge-0", "Successful")]);
        assert!(self.is_there().await);
        let pulls = self.cluster.nodes[0].containerd.pulls(&self.reference);
        assert_eq!(pulls, 1, "nothing is pulled twice");
        let size = 4 * MIB as u64;
        assert!(
            self.region.bytes() < size * 3 / 2,
            "{} bytes for {size}",
            self.region.bytes()
        );
        let succeeded = |said: &&ImageTagStatus| said.phase() == Phase::Succeeded;
        wait_until(SOON, "the watch to see it", async || {
            history.all().iter().any(|said| succeeded(&said))
        })
        .await
        .unwrap();
        let said = history.all();
        assert_eq!(
            said.iter().filter(succeeded).count(),
            1,
            "the result is told once: {said:?}"
        );
        assert_eq!(said.last().unwrap().attempts, Some(1), "{said:?}");
    }
}

#[tokio::test]
async fn cut_before_the_order_and_back_later() {
    let scene = Scene::start(81).await;
    scene.site.cloud.cut();
    let history = scene.submit().await;
    scene.until_ordered().await;
    assert!(!scene.is_there().await);
    assert_eq!(
        text(scene.cluster.prepull_status("job").await.phase.as_ref()),
        "InProgress"
    );
    scene.site.cloud.join();
    scene.ended_well(&history).await;
}

#[tokio::test]
async fn cut_during_the_pull_which_goes_on() {
    let scene = Scene::start(82).await;
    scene.region.set(Link::bytes_per_second(1_000_000));
    let history = scene.submit().await;
    scene.until_pulling().await;
    scene.site.cloud.cut();
    scene.until_there().await;
    assert_eq!(
        text(scene.cluster.prepull_status("job").await.phase.as_ref()),
        "InProgress"
    );
    scene.site.cloud.join();
    scene.ended_well(&history).await;
}

#[tokio::test]
async fn cut_after_the_pull_before_it_could_be_told_and_the_agent_killed_meanwhile() {
    let mut scene = Scene::start(83).await;
    scene.region.set(Link::bytes_per_second(1_000_000));
    let history = scene.submit().await;
    scene.until_pulling().await;
    // The last bytes come only when the line to the cloud is cut.
    scene.region.set(Link::Stalled);
    scene.site.cloud.cut();
    scene.region.set(Link::Open);
    scene.until_there().await;
    let told = async || scene.cluster.nodes[0].agent.log_tail().contains("pull succeeded");
    wait_until(SOON, "the end of the pull", told).await.unwrap();
    scene.cluster.nodes[0].agent.restart().unwrap();
    scene.until_cut_is_noticed().await;
    scene.site.cloud.join();
    scene.ended_well(&history).await;
}

#[tokio::test]
async fn the_line_flaps() {
    let scene = Scene::start(84).await;
    scene.region.set(Link::bytes_per_second(300_000));
    let history = scene.submit().await;
    scene.until_pulling().await;
    // By what arrives on the site, not by time: cut for half a MiB, joined for the next.
    for part in 1..=3_u64 {
        let arrived = async |halves: u64| {
            let enough = halves * MIB as u64 / 2;
            wait_until(SOON, "more bytes", async || scene.region.bytes() > enough)
                .await
                .unwrap();
        };
        scene.site.cloud.cut();
        arrived(2 * part - 1).await;
        scene.site.cloud.join();
        arrived(2 * part).await;
    }
    scene.ended_well(&history).await;
}

/// Set in the second process, which is this same test and is killed by the first.
const VICTIM: &str = "LARDER_E2E_VICTIM";

fn names_of(kind: &[&str]) -> String {
    let output = Command::new("/bin/ip").args(kind).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "the variable tells the second process what it is"
)]
#[allow(clippy::print_stdout, reason = "the first process reads it")]
async fn a_killed_test_leaves_no_network_behind() {
    if std::env::var_os(VICTIM).is_some() {
        let site = EdgeSite::create();
        println!("made {}", site.name());
        std::future::pending::<()>().await;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_test_leaves_no_network_behind", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let made = lines.into_iter().find(|line| line.contains("made ")).unwrap();
    let name = made.rsplit(' ').next().unwrap().to_owned();
    let id = name.trim_start_matches("larder-");
    let left = || {
        (
            names_of(&["netns", "list"]).contains(&name),
            names_of(&["link", "show"]).contains(id),
        )
    };
    assert_eq!(left(), (true, true));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until(SOON, "the end of the site", async || left() == (false, false))
        .await
        .unwrap();
}
