//! Orders from a real API server, carried out by a scripted runtime, answered in the API.

use std::time::Duration;

use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use larder_api::NodeImageStatus;
use larder_model::{ImageRef, Phase, Reason};
use larder_runtime::ImageRuntime as _;
use larder_runtime::fake::{Call, FakeRuntime, Script};
use larder_testkit::wait_until;

use super::scene::{EntryName, Node, SOON, if_not_present, says, tag};

fn image(reference: &str) -> ImageRef {
    ImageRef::parse(reference).unwrap()
}

/// Counts the changes of the status that the API shows, from now on.
pub(crate) async fn count_writes(node: &Node) -> tokio::sync::watch::Receiver<usize> {
    let (sender, mut receiver) = tokio::sync::watch::channel(0);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", node.name));
    let stream = watcher(node.images.clone(), config).default_backoff();
    tokio::spawn(async move {
        let mut last: Option<NodeImageStatus> = None;
        let mut stream = std::pin::pin!(stream.applied_objects());
        while let Ok(Some(object)) = stream.try_next().await {
            if sender.is_closed() {
                return;
            }
            if object.status.is_some() && object.status != last {
                last = object.status;
                sender.send_modify(|count| *count += 1);
            } else if object.status.is_none() {
                sender.send_modify(|_| {});
            }
        }
    });
    receiver.changed().await.unwrap();
    receiver
}

#[tokio::test]
async fn an_order_becomes_a_pull_and_a_status() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    let status = node.until_phase(&wanted, Phase::Succeeded).await;
    assert_eq!(
        (status.attempts, status.progress, status.version),
        (Some(1), Some(100), Some(0))
    );
    assert!(status.digest.unwrap().starts_with("sha256:"));
    assert!(status.image_id.unwrap().starts_with("app@sha256:"));
    let pull = fake.pulls().pop().unwrap();
    assert_eq!(pull.annotations["apps.kruise.io/pulling-image-by"], "kruise-daemon");
    let object = node.get().await;
    let status = object.status.unwrap();
    assert_eq!((status.desired, status.succeeded, status.failed), (1, 1, 0));
    let about = status.agent.unwrap();
    assert_eq!(about.runtime.as_deref(), Some("fake 1.0.0"));
    assert!(about.public_key.is_some() && about.last_seen.is_some());
    assert!(status.image_fs.unwrap().capacity > 0);
    assert_eq!(agent.health.not_ready(), None);
}

#[tokio::test]
async fn a_fast_pull_costs_one_write_and_clean_up_another() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let agent = node.fake(&fake);
    wait_until(SOON, "the agent's first word", async || {
        node.get().await.status.is_some()
    })
    .await
    .unwrap();
    let writes = count_writes(&node).await;
    let before = *writes.borrow();
    let names = ["a", "b", "c"];
    node.order(&names.map(|name| (name, tag("1")))).await;
    for name in names {
        node.until_phase(&EntryName::new(name, "1"), Phase::Succeeded).await;
    }
    let pulled = *writes.borrow();
    assert_eq!(pulled - before, 1, "three results that come together are one write");
    node.order(&[]).await;
    wait_until(SOON, "an empty status", async || {
        node.get().await.status.unwrap().image_statuses.is_empty()
    })
    .await
    .unwrap();
    agent.stop().await;
    assert_eq!(*writes.borrow() - pulled, 1);
}

#[tokio::test]
async fn a_slow_pull_is_seen_pulling_with_growing_bytes() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_secs(6)));
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    let first = node
        .until(&wanted, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    assert_eq!(first.phase(), Phase::Pulling);
    let later = node
        .until(&wanted, "more bytes", |status| status.bytes_done > first.bytes_done)
        .await;
    assert_eq!(later.bytes_total, Some(1 << 20));
    assert!(later.progress > first.progress);
    node.until_phase(&wanted, Phase::Succeeded).await;
}

#[tokio::test]
async fn an_image_that_is_there_is_answered_without_a_pull() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.put(&image("app:1"));
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", if_not_present).await;
    let status = node.until_phase(&wanted, Phase::Succeeded).await;
    assert_eq!(status.attempts, Some(0));
    assert!(fake.pulls().is_empty());
}

#[tokio::test]
async fn a_withdrawn_order_cancels_the_pull() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_hours(1)));
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    node.until_phase(&wanted, Phase::Pulling).await;
    node.order(&[]).await;
    wait_until(SOON, "the cancellation", async || {
        fake.calls().contains(&Call::Cancelled(image("app:1")))
    })
    .await
    .unwrap();
    wait_until(SOON, "an empty status", async || {
        node.get().await.status.unwrap().image_statuses.is_empty()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_deleted_object_cancels_and_a_new_one_is_obeyed() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script(&image("app:1"), Script::takes(Duration::from_hours(1)));
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    node.until_phase(&wanted, Phase::Pulling).await;
    node.delete().await;
    wait_until(SOON, "the cancellation", async || fake.running() == 0)
        .await
        .unwrap();
    let again = larder_api::NodeImage::new(node.name.as_str(), larder_api::NodeImageSpec::default());
    node.images
        .create(&kube::api::PostParams::default(), &again)
        .await
        .unwrap();
    let wanted = node.pull("app:2", |_| {}).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
}

#[tokio::test]
async fn a_raised_version_is_pulled_again_and_a_failure_keeps_the_last_success() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    let first = node.until_phase(&wanted, Phase::Succeeded).await;
    fake.script_all(Script::always_fails(Reason::NotFound));
    node.pull("app:1", |entry| entry.version = 1).await;
    let second = node
        .until(&wanted, "the second answer", |status| {
            status.version == Some(1) && status.phase().is_final()
        })
        .await;
    assert_eq!(
        (second.phase(), second.reason()),
        (Phase::Failed, Some(Reason::NotFound))
    );
    assert_eq!(second.last_succeeded, first.last_succeeded);
    let message = second.message.unwrap();
    assert!(
        message.starts_with("Failed to pull image reference \"app:1\": "),
        "{message}"
    );
    assert!(message.ends_with(Reason::NotFound.advice()), "{message}");
}

#[tokio::test]
async fn two_images_with_the_limit_at_one_come_one_after_the_other() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_millis(1500)));
    let change = super::scene::Change {
        max_pulls: Some(1),
        ..super::scene::Change::default()
    };
    let _agent = node.start(
        larder_agent::RuntimeSource::Given(std::sync::Arc::new(fake.clone())),
        change,
    );
    node.order(&[("a", tag("1")), ("b", tag("1"))]).await;
    node.until_phase(&EntryName::new("b", "1"), Phase::Waiting).await;
    node.until_phase(&EntryName::new("a", "1"), Phase::Succeeded).await;
    node.until_phase(&EntryName::new("b", "1"), Phase::Succeeded).await;
    assert_eq!(fake.most_running(), 1);
}

#[tokio::test]
async fn an_image_removed_behind_our_back_comes_back() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    let first = node.until_phase(&wanted, Phase::Succeeded).await;
    wait_until(SOON, "a listener", async || {
        fake.evict(&image("app:1"));
        fake.pulls().len() == 2
    })
    .await
    .unwrap();
    let again = node
        .until(&wanted, "the second success", |status| {
            status.phase() == Phase::Succeeded
        })
        .await;
    assert_eq!(again.version, first.version);
}

#[tokio::test]
async fn pins_and_aliases_follow_the_entry() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let _agent = node.fake(&fake);
    let wanted = node
        .pull("mirror.example/app:1", |entry| {
            entry.pin = true;
            entry.alias = Some("app:1".to_owned());
        })
        .await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    let (real, name) = (image("mirror.example/app:1"), image("app:1"));
    assert!(
        fake.calls().contains(&Call::Alias(real.clone(), name.clone())),
        "pods that start on the news look for the alias"
    );
    wait_until(SOON, "the pin", async || {
        fake.calls().contains(&Call::Pin(real.clone()))
    })
    .await
    .unwrap();
    node.order(&[]).await;
    wait_until(SOON, "the end of the pin", async || {
        fake.calls().contains(&Call::Unpin(real.clone()))
    })
    .await
    .unwrap();
    let alias = fake.status(&name).await.unwrap();
    assert!(alias.is_some(), "pods may still use the alias");
}

#[tokio::test]
async fn a_pin_beyond_the_budget_is_refused_and_the_image_stays() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    // Half of it is for pins, and the image takes a mebibyte.
    fake.set_image_fs(larder_runtime::ImageFs {
        path: "/images".into(),
        capacity: larder_model::ByteSize(3 << 19),
        used: larder_model::ByteSize(0),
        free: larder_model::ByteSize(3 << 19),
        used_by_images: None,
    });
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |entry| entry.pin = true).await;
    let status = node
        .until(&wanted, "a word about the pin", |status| says(status, "not pinned"))
        .await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Succeeded, Some(Reason::NoSpace)),
        "{status:?}"
    );
    assert!(!fake.calls().contains(&Call::Pin(image("app:1"))));
}

#[tokio::test]
async fn a_wrong_tag_fails_alone() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    fake.script(&image("bad:1"), Script::always_fails(Reason::NotFound));
    let _agent = node.fake(&fake);
    node.order(&[("bad", tag("1")), ("good", tag("1"))]).await;
    node.until_phase(&EntryName::new("good", "1"), Phase::Succeeded).await;
    node.until_phase(&EntryName::new("bad", "1"), Phase::Failed).await;
}
