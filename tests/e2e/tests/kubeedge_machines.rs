//! Machines that are not as they should be: their clocks are wrong, their disks too small.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimePlace, RuntimeSource, Settings};
use larder_e2e::kubeedge::{phases, task, text};
use larder_e2e::{Cluster, SOON};
use larder_model::NodeName;
use larder_runtime::RuntimeEndpoint;
use larder_telemetry::Health;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdOptions, ContainerdVersion, Link, Registry, Throttle, wait_until};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const MIB: usize = 1 << 20;
const TODAY: i64 = 1_800_000_000;

/// A node whose agent runs in this process: its wall clock shows what the test says, its disk is as small as the test
/// says.
struct Machine {
    shows: Arc<AtomicI64>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), larder_agent::AgentError>>,
    containerd: Containerd,
}

impl Machine {
    async fn start(cluster: &Cluster, node: &str, seconds: i64, disk_size: Option<u64>) -> Self {
        cluster.create_edge_node(node, &json!({})).await;
        let options = ContainerdOptions {
            disk_size,
            ..ContainerdOptions::new(ContainerdVersion::V2)
        };
        let containerd = Containerd::start_with(options).await.unwrap();
        let access = cluster.plane.access();
        let token = access
            .service_account_token("larder-system", "larder-agent", Some(node))
            .await
            .unwrap();
        let shows = Arc::new(AtomicI64::new(seconds));
        let reads = Arc::clone(&shows);
        let clock = Clock::new(node, Duration::from_secs(3), move || {
            Timestamp::from_second(reads.load(Ordering::Relaxed)).unwrap()
        });
        let endpoint = format!("unix://{}", containerd.socket().display());
        let parts = Parts {
            client: access.client_with_token(&token).unwrap(),
            runtime: RuntimeSource::Found(RuntimePlace {
                endpoint: Some(RuntimeEndpoint::parse(&endpoint).unwrap()),
                ..RuntimePlace::default()
            }),
            credentials: Credentials::default(),
            clock,
            metrics: Metrics::default(),
            health: Health::default(),
        };
        let stop = CancellationToken::new();
        let settings = Settings::new(NodeName::parse(node).unwrap());
        Self {
            shows,
            task: tokio::spawn(larder_agent::run(settings, parts, stop.clone())),
            stop,
            containerd,
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn wrong_clocks_on_the_nodes_change_nothing() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(124, 2, MIB).build();
    let image = registry.push(&recipe, "faults/clock", "v1").await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(500_000));
    let reference = format!("{}/faults/clock:v1", line.host());
    let cluster = Cluster::start(0).await;
    // A board without a battery, and one that is a century ahead.
    let past = Machine::start(&cluster, "past", 7, None).await;
    let future = Machine::start(&cluster, "future", 4_950_000_000, None).await;
    let template = json!({
        "images": [reference], "nodeNames": ["past", "future"], "concurrency": 2, "timeoutSeconds": 60,
        "activeDeadlineSeconds": 100,
    });
    cluster.prepull("skewed", template).await;
    let pulls = async || past.containerd.pulls(&reference) == 1 && future.containerd.pulls(&reference) == 1;
    wait_until(SOON, "both pulls", pulls).await.unwrap();
    // Both learn the time in the middle of it, one forwards and one back.
    past.shows.store(TODAY, Ordering::Relaxed);
    future.shows.store(7, Ordering::Relaxed);
    line.set(Link::Open);
    let status = cluster.prepull_finished("skewed").await;
    assert_eq!(text(status.phase.as_ref()), "Completed", "{status:?}");
    assert_eq!(phases(&status), [("past", "Successful"), ("future", "Successful")]);
    for node in [&past, &future] {
        let listed = node.containerd.ctr(["images", "ls"]).await.unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains(&image.digest), "{listed}");
    }
    // Times of the job itself are the controller's: neither of 1970 nor of the next century.
    let time = text(status.time.as_ref());
    assert!(time.starts_with("202"), "{time}");
    past.end().await;
    future.end().await;
}

#[tokio::test]
async fn a_disk_that_is_too_small_is_noticed_before_the_pull() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let recipe = Recipe::random(127, 1, 20 * MIB).build();
    let image = registry.push(&recipe, "faults/big", "v1").await.unwrap();
    let cluster = Cluster::start(0).await;
    let small = Machine::start(&cluster, "small", TODAY, Some(32 << 20)).await;
    let large = Machine::start(&cluster, "large", TODAY, Some(128 << 20)).await;
    // The check of the disk is what a job has that says nothing about checks.
    let template = json!({ "images": [image.reference], "nodeNames": ["small", "large"], "failureTolerate": "0.5" });
    cluster.prepull("room", template).await;
    let status = cluster.prepull_finished("room").await;
    assert_eq!(text(status.phase.as_ref()), "Completed", "{status:?}");
    assert_eq!(phases(&status), [("small", "Failure"), ("large", "Successful")]);
    let refused = task(&status, "small");
    let actions: Vec<_> = refused
        .action_flow
        .iter()
        .map(|entry| text(entry.action.as_ref()))
        .collect();
    assert_eq!(actions, ["Check"], "{refused:?}");
    assert_eq!(text(refused.action_flow[0].status.as_ref()), "False");
    assert!(!text(refused.reason.as_ref()).is_empty(), "{refused:?}");
    assert_eq!(small.containerd.pulls(&image.reference), 0, "nothing was tried");
    let event = status.status[0]
        .node_status
        .as_ref()
        .and_then(|node| node.event.as_deref());
    assert_eq!(event, Some("Check"));

    // Without checks it is tried, and fails for what it is.
    let template = json!({ "images": [image.reference], "nodeNames": ["small"], "checkItems": [] });
    cluster.prepull("unchecked", template).await;
    let status = cluster.prepull_finished("unchecked").await;
    assert_eq!(text(status.phase.as_ref()), "Failure", "{status:?}");
    assert!(
        status.progress.reasons.contains_key("NoSpace"),
        "{:?}",
        status.progress.reasons
    );
    small.end().await;
    large.end().await;
}
