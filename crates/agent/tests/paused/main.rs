//! The agent in one process with an embedded API server and a scripted runtime, on paused time: hours pass at once, and
//! everything that can go wrong with an API goes wrong.

#![expect(clippy::unwrap_used, reason = "what tests share fails by panicking, as tests do")]

mod duplicate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use larder_agent::{Clock, Credentials, FetchMode, Metrics, Parts, RuntimeSource, Settings};
use larder_api::node_image::{ImageSpec, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus};
use larder_api::{NodeImage, NodeImageSpec, crds};
use larder_localplane::{Config, FaultLayer, Faults, Localplane};
use larder_model::{ImageRef, NodeName, Phase, Reason};
use larder_runtime::fake::{FakeRuntime, Script};
use larder_telemetry::{Health, Registry};
use larder_testkit::wait_for;
use rstest::rstest;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

/// Virtual time: reached only if something never happens.
const EVER: Duration = Duration::from_hours(24);

struct World {
    _plane: Localplane,
    images: Api<NodeImage>,
    fake: FakeRuntime,
    _agent: Agent,
}

/// A running agent of `node-1`; it ends when it is dropped.
struct Agent {
    stop: CancellationToken,
    health: Health,
    registry: Registry,
}

impl Agent {
    fn start(client: kube::Client, fake: &FakeRuntime, credentials: Credentials) -> Self {
        let settings = Settings::new(NodeName::parse("node-1").unwrap());
        Self::start_with(settings, client, fake, credentials)
    }

    fn start_with(settings: Settings, client: kube::Client, fake: &FakeRuntime, credentials: Credentials) -> Self {
        let health = Health::default();
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let parts = Parts {
            client,
            runtime: RuntimeSource::Given(Arc::new(fake.clone())),
            credentials,
            clock: Clock::new("boot", Duration::ZERO, || Timestamp::UNIX_EPOCH),
            metrics,
            health: health.clone(),
        };
        let stop = CancellationToken::new();
        let agent = larder_agent::run(settings, parts, stop.clone());
        tokio::spawn(async move { agent.await.unwrap() });
        Self { stop, health, registry }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An API server with the NodeImage of `node-1`.
async fn plane() -> (Localplane, Api<NodeImage>) {
    let plane = Localplane::start(Config::new(crds())).await.unwrap();
    let images = Api::<NodeImage>::all(kube::Client::new(plane.service(), "default"));
    images
        .create(
            &PostParams::default(),
            &NodeImage::new("node-1", NodeImageSpec::default()),
        )
        .await
        .unwrap();
    (plane, images)
}

/// A node whose agent reaches the API through these faults.
async fn world(faults: Faults) -> World {
    let (plane, images) = plane().await;
    let through_faults = kube::Client::new(FaultLayer::new(faults).layer(plane.service()), "default");
    let fake = FakeRuntime::new();
    let agent = Agent::start(through_faults, &fake, Credentials::default());
    World {
        _plane: plane,
        images,
        fake,
        _agent: agent,
    }
}

impl World {
    async fn order(&self, tags: &[(&str, i64)], change: impl Fn(&mut ImageTagSpec)) {
        let mut images: BTreeMap<&str, ImageSpec> = BTreeMap::new();
        for (name, version) in tags {
            let mut tag = ImageTagSpec {
                tag: "1".into(),
                version: *version,
                pull_policy: ImageTagPullPolicy {
                    backoff_limit: 3,
                    ttl_seconds_after_finished: 60,
                    ..ImageTagPullPolicy::default()
                },
                ..ImageTagSpec::default()
            };
            change(&mut tag);
            images.entry(name).or_default().tags.push(tag);
        }
        let patch: json_patch::Patch =
            serde_json::from_value(json!([{"op": "add", "path": "/spec/images", "value": images}])).unwrap();
        self.images
            .patch("node-1", &PatchParams::default(), &Patch::Json::<()>(patch))
            .await
            .unwrap();
    }

    async fn until(&self, name: &str, what: &str, good: impl Fn(&ImageTagStatus) -> bool) -> ImageTagStatus {
        let question = async || {
            let object = self.images.get("node-1").await.map_err(|error| error.to_string())?;
            match object.result(name, "1") {
                Some(status) if good(status) => Ok(status.clone()),
                other => Err(format!("{other:?}")),
            }
        };
        wait_for(EVER, what, question).await.unwrap()
    }

    async fn until_done(&self, name: &str, version: i64) -> ImageTagStatus {
        let done = |status: &ImageTagStatus| status.version() == version && status.phase().is_final();
        self.until(name, "an answer", done).await
    }
}

fn image(name: &str) -> ImageRef {
    ImageRef::from_parts(name, "1").unwrap()
}

#[tokio::test(start_paused = true)]
async fn pauses_between_tries_are_one_two_and_four_seconds() {
    let world = world(Faults::default()).await;
    world.fake.script_all(Script::always_fails(Reason::Unreachable));
    world.order(&[("app", 0)], |_| {}).await;
    let status = world.until_done("app", 0).await;
    assert_eq!((status.phase(), status.attempts), (Phase::Failed, Some(4)));
    let starts: Vec<Instant> = world.fake.pulls().iter().map(|pull| pull.at).collect();
    let pauses: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn layers_of_images_that_are_not_to_be_pulled_any_more_are_dropped() {
    let (plane, images) = plane().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_mins(1)));
    let settings = Settings {
        fetch: FetchMode::Auto,
        ..Settings::new(NodeName::parse("node-1").unwrap())
    };
    let client = kube::Client::new(plane.service(), "default");
    let world = World {
        _agent: Agent::start_with(settings, client, &fake, Credentials::default()),
        _plane: plane,
        images,
        fake,
    };
    let until_kept = async |names: &[&str]| {
        let want: BTreeSet<ImageRef> = names.iter().map(|name| image(name)).collect();
        wait_for(EVER, "the images that are kept", async || {
            let kept = world.fake.kept_unfinished();
            if kept.as_ref() == Some(&want) {
                Ok(())
            } else {
                Err(format!("{kept:?}"))
            }
        })
        .await
        .unwrap();
    };
    // At the start: an earlier process may have left something.
    until_kept(&[]).await;
    world.order(&[("app", 0), ("other", 0)], |_| {}).await;
    until_kept(&["app", "other"]).await;
    // Withdrawn in the middle.
    world.order(&[("app", 0)], |_| {}).await;
    until_kept(&["app"]).await;
    // Done.
    world.until_done("app", 0).await;
    world.order(&[("app", 0), ("third", 0)], |_| {}).await;
    until_kept(&["third"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_try_that_hangs_ends_with_its_timeout() {
    let world = world(Faults::default()).await;
    world.fake.script_all(Script::takes(Duration::from_hours(100)));
    world
        .order(&[("app", 0)], |tag| tag.pull_policy.timeout_seconds = 600)
        .await;
    let status = world.until_done("app", 0).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::Timeout))
    );
    assert_eq!((world.fake.pulls().len(), world.fake.running()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_for_hours_uses_up_no_try() {
    let world = world(Faults::default()).await;
    world.fake.go_down();
    world
        .order(&[("app", 0)], |tag| tag.pull_policy.backoff_limit = 0)
        .await;
    world
        .until("app", "a reason", |status| status.reason() == Some(Reason::RuntimeDown))
        .await;
    tokio::time::advance(Duration::from_hours(5)).await;
    world.fake.come_up();
    let back = Instant::now();
    let status = world.until_done("app", 0).await;
    assert_eq!((status.phase(), status.attempts), (Phase::Succeeded, Some(1)));
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn bytes_are_written_as_seldom_as_the_entry_asks() {
    let world = world(Faults::default()).await;
    world.fake.script_all(Script::takes(Duration::from_mins(10)));
    world
        .order(&[("app", 0)], |tag| {
            tag.progress_seconds = Some(60);
            tag.pull_policy.timeout_seconds = 3600;
        })
        .await;
    world
        .until("app", "the pull", |status| status.phase() == Phase::Pulling)
        .await;
    let before = version_of(&world.images).await;
    world.until_done("app", 0).await;
    let writes = version_of(&world.images).await - before;
    assert!((8..=13).contains(&writes), "{writes} writes in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_nothing_to_say_writes_nothing() {
    let world = world(Faults::default()).await;
    world.order(&[("app", 0)], |_| {}).await;
    world.until_done("app", 0).await;
    let before = version_of(&world.images).await;
    // In steps, so that every watch that ends, every silence and every snapshot of the runtime has its turn.
    for _ in 0..24 * 60 {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert_eq!(version_of(&world.images).await, before, "no heartbeat in a day");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_says_done_and_has_no_image_is_not_believed() {
    let world = world(Faults::default()).await;
    world.fake.script_all(Script {
        lies: true,
        ..Script::default()
    });
    world.order(&[("app", 0)], |_| {}).await;
    let status = world.until_done("app", 0).await;
    assert_eq!(
        (status.phase(), status.reason(), status.last_succeeded.is_none()),
        (Phase::Failed, Some(Reason::Internal), true),
        "{status:?}"
    );
    assert!(status.message.unwrap().contains("does not have it"));
}

#[tokio::test(start_paused = true)]
async fn images_of_one_job_start_in_the_order_that_it_says() {
    let world = world(Faults::default()).await;
    world.fake.script_all(Script::takes(Duration::from_secs(30)));
    let wanted = ["d", "b", "f", "a", "e", "c"];
    let next = std::cell::Cell::new(0);
    let tags: Vec<(&str, i64)> = wanted.iter().map(|name| (*name, 0)).collect();
    world
        .order(&tags, |tag| {
            tag.position = Some(next.get());
            tag.image_pull_policy = Some("IfNotPresent".into());
            tag.claims = vec![larder_api::node_image::Claim {
                uid: "job".into(),
                version: 0,
            }];
            next.set(next.get() + 1);
        })
        .await;
    for name in wanted {
        world.until_done(name, 0).await;
    }
    let started: Vec<String> = world
        .fake
        .pulls()
        .iter()
        .map(|pull| pull.image.name().to_owned())
        .collect();
    assert_eq!(started, wanted);
}

/// The embedded server counts its writes in resource versions, and only the agent writes here.
async fn version_of(images: &Api<NodeImage>) -> u64 {
    let object = images.get("node-1").await.unwrap();
    object.metadata.resource_version.unwrap().parse().unwrap()
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn whatever_the_api_does_every_image_is_pulled_once_and_answered(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let world = world(Faults {
        seed,
        conflict: 0.1,
        too_many: 0.1,
        failed: 0.2,
        lost_answer: 0.2,
        lost_watch: 0.3,
        slow: 0.2,
        slowness: Duration::from_secs(20),
    })
    .await;
    world
        .fake
        .script(&image("b"), Script::fails([Reason::Unreachable, Reason::RuntimeDown]));
    world.fake.script(&image("c"), Script::takes(Duration::from_secs(30)));
    world.fake.script(&image("d"), Script::always_fails(Reason::NotFound));
    world.order(&[("a", 0), ("b", 0), ("c", 0)], |_| {}).await;
    assert_eq!(world.until_done("a", 0).await.phase(), Phase::Succeeded);
    world.order(&[("a", 1), ("b", 0), ("c", 0), ("d", 0)], |_| {}).await;
    let phases = [("a", 1), ("b", 0), ("c", 0), ("d", 0)];
    let mut found = Vec::new();
    for (name, version) in phases {
        found.push(world.until_done(name, version).await.phase());
    }
    assert_eq!(
        found,
        [Phase::Succeeded, Phase::Succeeded, Phase::Succeeded, Phase::Failed]
    );
    let count = |name: &str| {
        world
            .fake
            .pulls()
            .iter()
            .filter(|pull| pull.image == image(name))
            .count()
    };
    assert_eq!([count("a"), count("b"), count("c"), count("d")], [2, 3, 1, 1]);
    world.order(&[], |_| {}).await;
    let empty = async || {
        let status = world.images.get("node-1").await.unwrap().status.unwrap();
        if status.image_statuses.is_empty() {
            Ok(status)
        } else {
            Err("not yet")
        }
    };
    let status = wait_for(EVER, "an empty status", empty).await.unwrap();
    assert_eq!((status.desired, status.succeeded, status.failed), (0, 0, 0));
}
