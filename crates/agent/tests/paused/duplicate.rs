//! Two agents with the name of one node: they find each other, write rarely, say so, and recover when one of them ends.

use std::time::Duration;

use kube::api::Api;
use larder_agent::Credentials;
use larder_api::NodeImage;
use larder_api::node_image::AgentStatus;
use larder_localplane::Localplane;
use larder_runtime::fake::FakeRuntime;
use larder_seal::KeyPair;
use larder_testkit::wait_for;
use tokio::time::sleep;

use super::{Agent, EVER, plane, version_of};

/// An agent with the key in this folder and a machine of its own.
fn start(plane: &Localplane, folder: &tempfile::TempDir) -> Agent {
    let client = kube::Client::new(plane.service(), "default");
    let key = KeyPair::load_or_create(&folder.path().join("node.key")).unwrap();
    Agent::start(client, &FakeRuntime::new(), Credentials::new(Some(key), None))
}

fn key_in(folder: &tempfile::TempDir) -> String {
    let key = KeyPair::load_or_create(&folder.path().join("node.key")).unwrap();
    key.public().to_string()
}

async fn until(images: &Api<NodeImage>, what: &str, good: impl Fn(&AgentStatus) -> bool) -> AgentStatus {
    let question = async || {
        let object = images.get("node-1").await.map_err(|error| error.to_string())?;
        let agent = object.status.and_then(|status| status.agent).unwrap_or_default();
        if good(&agent) {
            Ok(agent)
        } else {
            Err(format!("{agent:?}"))
        }
    };
    wait_for(EVER, what, question).await.unwrap()
}

impl Agent {
    fn conflicts(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("status_conflicts_total "));
        line.unwrap().parse().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn two_agents_of_one_name_write_rarely_and_say_so_until_one_ends() {
    let (plane, images) = plane().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = start(&plane, &folders[0]);
    until(&images, "the first agent", |agent| agent.instance.is_some()).await;
    let second = start(&plane, &folders[1]);
    let before = version_of(&images).await;

    let told = until(&images, "the conflict", |agent| agent.conflicts_with.is_some()).await;
    assert_ne!(told.conflicts_with, told.instance);
    let waits: Vec<String> = [&first, &second]
        .iter()
        .filter_map(|agent| agent.health.not_ready())
        .collect();
    assert!(waits.iter().any(|why| why.contains("--node-name")), "{waits:?}");
    sleep(Duration::from_hours(1)).await;
    let in_the_first_hour = version_of(&images).await - before;
    assert!((4..=24).contains(&in_the_first_hour), "{in_the_first_hour} writes");
    sleep(Duration::from_hours(1)).await;
    let in_the_second = version_of(&images).await - before - in_the_first_hour;
    assert!((4..=16).contains(&in_the_second), "{in_the_second} writes");
    assert!(2 <= first.conflicts() && 2 <= second.conflicts());

    drop(first);
    let own = Some(key_in(&folders[1]));
    until(&images, "the one that is left", |agent| {
        agent.public_key == own && agent.conflicts_with.is_none()
    })
    .await;
    assert_eq!(second.health.not_ready(), None);
    let quiet = version_of(&images).await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(version_of(&images).await, quiet, "nothing is left to write");
}

#[tokio::test(start_paused = true)]
async fn two_agents_with_the_same_key_find_each_other() {
    let (plane, images) = plane().await;
    let folder = tempfile::tempdir().unwrap();
    let _first = start(&plane, &folder);
    until(&images, "the first agent", |agent| agent.instance.is_some()).await;
    let _second = start(&plane, &folder);
    until(&images, "the conflict", |agent| agent.conflicts_with.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_and_a_replaced_machine_take_over_at_once() {
    let (plane, images) = plane().await;
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut last = until_taken_over(&plane, &images, &old, None).await;
    for folder in [&old, &new] {
        last = until_taken_over(&plane, &images, folder, last).await;
    }
}

/// Starts an agent, waits until the status is its own, lets an hour pass and ends it.
async fn until_taken_over(
    plane: &Localplane,
    images: &Api<NodeImage>,
    folder: &tempfile::TempDir,
    before: Option<String>,
) -> Option<String> {
    let began = tokio::time::Instant::now();
    let agent = start(plane, folder);
    let key = Some(key_in(folder));
    let status = until(images, "the new agent", |agent| {
        agent.instance.is_some() && agent.instance != before && agent.public_key == key
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let writes = version_of(images).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(version_of(images).await, writes);
    assert_eq!((agent.conflicts(), status.conflicts_with), (0, None));
    status.instance
}
