//! Jobs with windows: they wait outside, say until when, and go on inside. Windows of the whole fleet, and refresh schedules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use jiff::{Timestamp, ToSpan as _, Zoned};
use larder_api::ImageListPullJob;
use larder_e2e::{Cluster, SOON, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Link, Registry, Throttle, wait_for, wait_until};
use serde_json::{Value, json};

const ZONE: &str = "Asia/Shanghai";

/// Without other replicas the controller need not wait for a lease.
const ALONE: &str = "--leader-elect=false";

/// A window that opens and closes this many hours from now, by the clocks of [`ZONE`].
#[expect(clippy::disallowed_methods, reason = "the controller has the clock of this machine")]
fn window(from: i64, to: i64) -> Value {
    let now = Timestamp::now().in_tz(ZONE).unwrap();
    let time = |hours: i64| -> Zoned { now.checked_add(hours.hours()).unwrap() };
    let text = |hours| time(hours).strftime("%H:%M").to_string();
    json!([{"from": text(from), "to": text(to), "timeZone": ZONE}])
}

fn closed() -> Value {
    window(2, 3)
}

fn open() -> Value {
    window(-1, 1)
}

/// A window that is open, and also while that of [`closed`] is.
fn long() -> Value {
    window(-1, 6)
}

async fn offer(registry: &Registry, repository: &str, seed: u64) -> String {
    let image = Recipe::random(seed, 1, 16 * 1024).build();
    registry.push(&image, repository, "v1").await.unwrap().reference
}

/// Waits until an object says that it is outside its windows.
async fn waits_outside(cluster: &Cluster, object: &str) {
    waits_because(cluster, object, "outside its windows until ").await;
}

/// Waits until an object says that it is outside certain windows.
async fn waits_because(cluster: &Cluster, object: &str, outside: &str) {
    let why =
        "{.status.conditions[?(@.type=='Progressing')].reason}: {.status.conditions[?(@.type=='Progressing')].message}";
    let output = format!("jsonpath={why}");
    let waited = wait_for(SOON, format!("{object} to wait"), async || {
        let said = cluster.kubectl(&["get", object, "-o", &output]).await.unwrap();
        let waits = said.starts_with("OutsideWindow: ") && said.contains(outside) && said.contains(ZONE);
        if waits { Ok(()) } else { Err(said) }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

async fn set(cluster: &Cluster, object: &str, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    let arguments = ["patch", object, "--type=merge", "-p", &patch];
    cluster.kubectl(&arguments).await.unwrap();
}

#[tokio::test]
async fn jobs_of_each_kind_wait_outside_their_windows_and_go_on_inside() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (one, two, three) = (
        offer(&registry, "windows/one", 130).await,
        offer(&registry, "windows/two", 131).await,
        offer(&registry, "windows/three", 132).await,
    );
    let cluster = Cluster::start(1).await;
    cluster
        .kubectl(&["label", "node", "node-0", "node-role.kubernetes.io/edge="])
        .await
        .unwrap();

    cluster.submit("job", &one, &json!({ "windows": closed() })).await;
    cluster
        .apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
            "metadata": {"name": "list", "namespace": "default"},
            "spec": {"images": [two], "windows": closed(), "completionPolicy": {"type": "Always"}},
        }))
        .await;
    let template =
        |windows: Value| json!({"images": [three], "nodeNames": ["node-0"], "checkItems": [], "windows": windows});
    cluster.prepull("prepull", template(closed())).await;
    for object in ["imagepulljob/job", "imagelistpulljob/list", "imageprepulljob/prepull"] {
        waits_outside(&cluster, object).await;
    }
    assert!(
        cluster.node_image("node-0").await.spec.images.is_empty(),
        "nothing is handed out"
    );

    for object in ["imagepulljob/job", "imagelistpulljob/list"] {
        set(&cluster, object, &json!({ "windows": open() })).await;
    }
    set(
        &cluster,
        "imageprepulljob/prepull",
        &json!({"imagePrePullTemplate": {"windows": open()}}),
    )
    .await;
    assert_eq!(cluster.finished("job").await.succeeded, 1);
    let lists = kube::Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    let waited = wait_until(SOON, "the list to be done", async || {
        let status = lists.get("list").await.unwrap().status.unwrap_or_default();
        status.completion_time.is_some() && status.succeeded == 1
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let status = cluster.prepull_finished("prepull").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"), "{status:?}");

    // What cannot be meant is refused, or named in the status.
    let spec = json!({"image": one, "windowEnd": "Stop", "completionPolicy": {"type": "Always"}});
    let refused = cluster
        .try_apply(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": "refused", "namespace": "default"}, "spec": spec,
        }))
        .await
        .unwrap_err();
    assert!(
        refused.contains("windowEnd has no meaning without windows"),
        "{refused}"
    );
    let atlantis = json!([{"from": "22:00", "to": "06:00", "timeZone": "Europe/Atlantis"}]);
    cluster.submit("atlantis", &one, &json!({ "windows": atlantis })).await;
    let waited = wait_for(SOON, "the zone to be named", async || {
        let said = cluster.status("atlantis").await.message.unwrap_or_default();
        if said.contains("Europe/Atlantis") {
            Ok(())
        } else {
            Err(said)
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

/// The windows are edited, because waiting for a minute to end takes up to one.
#[tokio::test]
async fn a_pull_is_stopped_at_the_end_of_the_last_window_and_goes_on_in_the_next() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(64 * 1024));
    let image = Recipe::random(133, 1, 8 * 1024 * 1024).build();
    registry.push(&image, "windows/large", "v1").await.unwrap();
    let cluster = Cluster::start(1).await;
    let reference = format!("{}/windows/large:v1", line.host());
    let fields = json!({ "windows": open(), "windowEnd": "Stop" });
    cluster.submit("job", &reference, &fields).await;
    wait_until(SOON, "bytes on the line", async || 128 * 1024 < line.bytes())
        .await
        .unwrap();

    set(&cluster, "imagepulljob/job", &json!({ "windows": closed() })).await;
    waits_outside(&cluster, "imagepulljob/job").await;
    assert!(
        cluster.node_image("node-0").await.spec.images.is_empty(),
        "the order is taken back"
    );
    let status = cluster.status("job").await;
    assert_eq!((status.active, status.failed), (0, 0), "{status:?}");

    line.set(Link::bytes_per_second(64 * 1024 * 1024));
    set(&cluster, "imagepulljob/job", &json!({ "windows": open() })).await;
    assert_eq!(cluster.finished("job").await.succeeded, 1);
}

#[tokio::test]
async fn jobs_of_each_kind_wait_outside_the_windows_of_the_fleet() {
    const FLEET: &str = "outside the fleet's windows until ";
    let registry = Registry::start(Auth::Open).await.unwrap();
    let (one, two, three) = (
        offer(&registry, "windows/four", 134).await,
        offer(&registry, "windows/five", 135).await,
        offer(&registry, "windows/six", 136).await,
    );
    let setup = Setup {
        controller: vec![format!("--windows={}", closed()), ALONE.to_owned()],
        ..Setup::nodes(1)
    };
    let mut cluster = Cluster::start_with(setup).await;
    cluster
        .kubectl(&["label", "node", "node-0", "node-role.kubernetes.io/edge="])
        .await
        .unwrap();
    cluster.submit("plain", &one, &json!({})).await;
    cluster.submit("open", &two, &json!({ "windows": long() })).await;
    cluster.submit("closed", &two, &json!({ "windows": closed() })).await;
    cluster
        .prepull(
            "prepull",
            json!({"images": [three], "nodeNames": ["node-0"], "checkItems": []}),
        )
        .await;
    waits_because(&cluster, "imagepulljob/plain", FLEET).await;
    waits_because(&cluster, "imagepulljob/open", FLEET).await;
    waits_because(
        &cluster,
        "imagepulljob/closed",
        "outside its windows and the fleet's until ",
    )
    .await;
    waits_because(&cluster, "imageprepulljob/prepull", FLEET).await;
    assert!(
        cluster.node_image("node-0").await.spec.images.is_empty(),
        "nothing is handed out"
    );

    // Killed, and started with windows that are open: what has none of its own, or an open one, goes on.
    let windows = format!("--windows={}", long());
    cluster.restart_controller(&[&windows, ALONE]).await;
    assert_eq!(cluster.finished("plain").await.succeeded, 1);
    assert_eq!(cluster.finished("open").await.succeeded, 1);
    let status = cluster.prepull_finished("prepull").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"), "{status:?}");
    waits_outside(&cluster, "imagepulljob/closed").await;
}

/// Whether the node says that it has what this digest names.
async fn has_digest(cluster: &Cluster, digest: &str) -> bool {
    let status = cluster.node_image("node-0").await.status.unwrap_or_default();
    let mut tags = status.image_statuses.values().flat_map(|image| &image.tags);
    tags.any(|tag| tag.phase == "Succeeded" && tag.digest.as_deref() == Some(digest))
}

/// Refreshes begin within a minute of each full minute.
const REFRESHED: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_never_job_follows_a_moved_tag_by_its_schedule() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let push = async |seed| {
        let image = Recipe::random(seed, 1, 16 * 1024).build();
        registry.push(&image, "schedule/app", "v1").await.unwrap()
    };
    let first = push(137).await;
    let image = first.reference;
    let mut cluster = Cluster::start(1).await;
    let never = json!({"type": "Never"});
    let fields = json!({
        "imagePullPolicy": "Always", "completionPolicy": never,
        "refreshSchedule": "* * * * *", "refreshTimeZone": ZONE,
    });
    cluster.submit("job", &image, &fields).await;
    wait_until(SOON, "the image", async || has_digest(&cluster, &first.digest).await)
        .await
        .unwrap();
    let waited = wait_for(SOON, "the next refresh to be told", async || {
        let said = cluster.status("job").await.message.unwrap_or_default();
        if said.contains("; next refresh ") && said.ends_with(ZONE) {
            Ok(())
        } else {
            Err(said)
        }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    // A controller that is killed finds out from the nodes when they were served.
    cluster.restart_controller(&[ALONE]).await;
    let second = push(138).await;
    let waited = wait_until(REFRESHED, "the moved tag", async || {
        has_digest(&cluster, &second.digest).await
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));

    // What cannot be meant is refused, or named in the status.
    let job = |name: &str, spec: Value| {
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        })
    };
    let ends = json!({"image": image, "completionPolicy": {"type": "Always"}, "refreshSchedule": "@daily"});
    let refused = cluster.try_apply(&job("ends", ends)).await.unwrap_err();
    assert!(
        refused.contains("can only work with the Never completion policy"),
        "{refused}"
    );
    let hour = json!({"image": image, "completionPolicy": never, "refreshSchedule": "0 24 * * *"});
    let refused = cluster.try_apply(&job("hour", hour)).await.unwrap_err();
    assert!(refused.contains("refreshSchedule: the hour must be"), "{refused}");
    let fields = json!({"completionPolicy": never, "refreshSchedule": "0 3 30 2 *"});
    cluster.submit("february", &image, &fields).await;
    let waited = wait_for(SOON, "the day to be named", async || {
        let said = cluster.status("february").await.message.unwrap_or_default();
        if said.contains("never runs") { Ok(()) } else { Err(said) }
    });
    waited
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}
