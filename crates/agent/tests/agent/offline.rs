//! Without the API: the agent goes on, remembers, and reports once when it is back.

use std::sync::Arc;
use std::time::Duration;

use larder_agent::RuntimeSource;
use larder_api::crds;
use larder_api::node_image::ImageTagStatus;
use larder_model::{ImageRef, Phase, Reason};
use larder_runtime::fake::{FakeRuntime, Script};
use larder_testkit::{ControlPlane, Link, Throttle, wait_until};

use super::scene::{Change, EntryName, Node, SOON, tag};

/// A node whose line to the API can be cut.
async fn node_behind_a_line() -> (Node, Node, Throttle) {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let line = Throttle::start(access.address()).await.unwrap();
    let direct = Node::on(access.clone()).await;
    let behind = Node {
        name: direct.name.clone(),
        access: access.through(line.address()).unwrap(),
        images: direct.images.clone(),
        state: tempfile::tempdir().unwrap(),
    };
    (direct, behind, line)
}

#[tokio::test]
async fn a_pull_goes_on_while_the_api_is_away_and_is_told_when_it_is_back() {
    let (node, behind, line) = node_behind_a_line().await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(Duration::from_secs(3)));
    let agent = behind.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    wait_until(SOON, "the pull", async || fake.running() == 1)
        .await
        .unwrap();
    line.set(Link::Refused);
    wait_until(SOON, "the image", async || fake.running() == 0)
        .await
        .unwrap();
    wait_until(SOON, "the outage to show", async || agent.health.not_ready().is_some())
        .await
        .unwrap();
    assert_ne!(
        node.get().await.result("app", "1").map(ImageTagStatus::phase),
        Some(Phase::Succeeded)
    );
    line.set(Link::Open);
    node.until_phase(&wanted, Phase::Succeeded).await;
    assert_eq!(fake.pulls().len(), 1);
    wait_until(SOON, "readiness", async || agent.health.not_ready().is_none())
        .await
        .unwrap();
}

#[tokio::test]
async fn orders_and_results_survive_a_restart_without_the_api() {
    let (node, behind, line) = node_behind_a_line().await;
    let fake = FakeRuntime::new();
    let second = ImageRef::parse("b:1").unwrap();
    fake.script(&second, Script::takes(Duration::from_hours(1)));
    let first_life = behind.fake(&fake);
    node.order(&[("a", tag("1")), ("b", tag("1"))]).await;
    node.until_phase(&EntryName::new("a", "1"), Phase::Succeeded).await;
    node.until_phase(&EntryName::new("b", "1"), Phase::Pulling).await;
    line.set(Link::Refused);
    first_life.stop().await;
    fake.script(&second, Script::default());
    let _second_life = behind.fake(&fake);
    wait_until(SOON, "the second image", async || {
        fake.pulls().len() == 3 && fake.running() == 0
    })
    .await
    .unwrap();
    let names: Vec<String> = fake.pulls().iter().map(|pull| pull.image.name().to_owned()).collect();
    assert_eq!(
        names.iter().filter(|name| *name == "a").count(),
        1,
        "a finished image is not pulled again: {names:?}"
    );
    line.set(Link::Open);
    let status = node.until_phase(&EntryName::new("b", "1"), Phase::Succeeded).await;
    assert_eq!(status.attempts, Some(1));
}

#[tokio::test]
async fn an_api_that_hangs_is_given_up_and_tried_again() {
    let (node, behind, line) = node_behind_a_line().await;
    let fake = FakeRuntime::new();
    let agent = behind.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    line.set(Link::Stalled);
    fake.script_all(Script::always_fails(Reason::NotFound));
    fake.evict(&ImageRef::parse("app:1").unwrap());
    wait_until(SOON, "the second pull", async || fake.pulls().len() == 2)
        .await
        .unwrap();
    // The write hangs on a connection that moves nothing, and is given up after its own limit.
    let given_up = async || agent.counts("api_writes_total{result=\"failed\"} 1");
    wait_until(SOON, "the end of the write", given_up).await.unwrap();
    line.set(Link::Open);
    node.until_phase(&wanted, Phase::Failed).await;
}

#[tokio::test]
async fn a_lost_ledger_is_made_up_for_by_what_the_api_remembers() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let first_life = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    let before = node.until_phase(&wanted, Phase::Succeeded).await;
    first_life.stop().await;
    let forgetful = Node {
        name: node.name.clone(),
        access: node.access.clone(),
        images: node.images.clone(),
        state: tempfile::tempdir().unwrap(),
    };
    let agent = forgetful.fake(&fake);
    let old_key = Some(node.public_key());
    let told = async || {
        let about = node.get().await.status.unwrap().agent.unwrap();
        about.public_key != old_key
    };
    wait_until(SOON, "the new key", told).await.unwrap();
    agent.stop().await;
    let after = node.until_phase(&wanted, Phase::Succeeded).await;
    assert_eq!(after.last_succeeded, before.last_succeeded);
    assert_eq!(fake.pulls().len(), 1);
}

#[tokio::test]
async fn a_second_agent_with_the_same_folder_does_not_start() {
    let node = Node::new().await;
    let fake = FakeRuntime::new();
    let _agent = node.fake(&fake);
    let wanted = node.pull("app:1", |_| {}).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    let second = node.start(RuntimeSource::Given(Arc::new(fake)), Change::default());
    let ended = second.ended().await;
    assert!(ended.contains("--state-dir"), "{ended}");
}
