//! The same machinery once, without any API.

use std::sync::Arc;

use larder_agent::Credentials;
use larder_agent::once::{Request, pull};
use larder_model::{ImageRef, Phase, PullWhen, Reason};
use larder_registry::docker_config::DockerConfig;
use larder_registry::{Keyring, Platform, RegistryClient};
use larder_runtime::layout::LayoutRuntime;
use larder_runtime::{ImageRuntime, RuntimeEndpoint, connect};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdVersion, Link, Registry, Throttle};

use super::containerd::MIB;

fn request(references: &[&str]) -> Request {
    Request {
        images: references
            .iter()
            .map(|reference| ImageRef::parse(reference).unwrap())
            .collect(),
        when: PullWhen::IfNotPresent,
        timeout_seconds: 60,
        retries: 0,
        max_pulls: 2,
        hosts_dir: None,
    }
}

#[tokio::test]
async fn into_a_runtime_with_bytes_on_the_way() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    registry
        .push(&Recipe::random(1, 2, MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let runtime = connect(&RuntimeEndpoint::at(containerd.socket()), std::path::Path::new("/"))
        .await
        .unwrap();
    let request = request(&[&format!("{}/app:1", line.host()), &format!("{}/missing:1", line.host())]);
    let mut most = 0;
    let ended = pull(&request, Arc::clone(&runtime), Credentials::default(), |standings| {
        most = most.max(standings[0].1.bytes_done.unwrap_or(0));
    })
    .await
    .unwrap();
    assert_eq!(
        (ended[0].1.phase(), ended[0].1.attempts),
        (Phase::Succeeded, Some(1)),
        "{ended:?}"
    );
    assert_eq!(
        (ended[1].1.phase(), ended[1].1.reason()),
        (Phase::Failed, Some(Reason::NotFound))
    );
    assert!(most > 0);
    let again = pull(&request, runtime, Credentials::default(), |_| {}).await.unwrap();
    assert_eq!(
        (again[0].1.phase(), again[0].1.attempts),
        (Phase::Succeeded, Some(0)),
        "it was there"
    );
}

#[tokio::test]
async fn into_a_folder_with_a_password_from_dockers_file() {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, MIB).build(), "app", "1")
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let client = RegistryClient::new(larder_registry::Settings::default());
    let layout = LayoutRuntime::open(folder.path(), client, Platform::of_this_machine()).unwrap();
    let layout: Arc<dyn ImageRuntime> = Arc::new(layout);
    let request = request(&[&pushed.reference]);
    let denied = pull(&request, Arc::clone(&layout), Credentials::default(), |_| {})
        .await
        .unwrap();
    assert_eq!(denied[0].1.reason(), Some(Reason::AuthDenied), "{denied:?}");
    let file = serde_json::json!({"auths": {registry.host(): {"username": "ann", "password": "s3cret"}}});
    let mut keyring = Keyring::default();
    keyring.extend(
        DockerConfig::from_config_json(file.to_string().as_bytes())
            .unwrap()
            .entries,
    );
    let credentials = Credentials::default().with_keyring(keyring);
    let pulled = pull(&request, layout, credentials, |_| {}).await.unwrap();
    assert_eq!(
        (pulled[0].1.phase(), pulled[0].1.digest.as_ref()),
        (Phase::Succeeded, Some(&pushed.digest)),
        "{pulled:?}"
    );
    assert!(folder.path().join("index.json").exists());
}
