//! Images that somebody else removes: through CRI, as the kubelet and `crictl` do, or with the whole disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_model::{ImageRef, Phase, Reason};
use larder_runtime::{ImageRuntime, RuntimeEndpoint, connect};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, ContainerRuntime, ContainerdVersion, Registry, RuntimeKind, RuntimeOptions, wait_until};
use rstest::rstest;

use super::containerd::MIB;
use super::scene::{Change, EntryName, Node, SOON};

const OFTEN: Duration = Duration::from_millis(500);

/// An agent with an image on a runtime of its own.
struct Scene {
    node: Node,
    server: ContainerRuntime,
    runtime: Arc<dyn ImageRuntime>,
    image: ImageRef,
    entry: EntryName,
    _agent: super::scene::Agent,
    _registry: Registry,
}

impl Scene {
    /// Without events of the runtime, the agent inspects it often enough for a test; with events it has to rely on them.
    async fn start(options: &RuntimeOptions) -> Self {
        let registry = Registry::start(Auth::Open).await.unwrap();
        let built = Recipe::random(1, 1, 4 * MIB).build();
        let pushed = registry.push(&built, "app", "1").await.unwrap();
        let server = ContainerRuntime::start_with(options).await.unwrap();
        let endpoint = RuntimeEndpoint::at(server.socket());
        let runtime = connect(&endpoint, Path::new("/")).await.unwrap();
        let has_events = runtime.capabilities().await.unwrap().events.is_yes();
        let inspects_often = !has_events || options.disk_size.is_some();
        let node = Node::new().await;
        let change = Change {
            inspect_every: inspects_often.then_some(OFTEN),
            ..Change::default()
        };
        let agent = node.runtime(&server.socket(), change);
        let entry = node.pull(&pushed.reference, |_| {}).await;
        node.until_phase(&entry, Phase::Succeeded).await;
        Self {
            node,
            server,
            runtime,
            image: ImageRef::parse(&pushed.reference).unwrap(),
            entry,
            _agent: agent,
            _registry: registry,
        }
    }

    async fn until_it_is_back(&self) {
        wait_until(SOON, "the image", async || {
            matches!(self.runtime.status(&self.image).await, Ok(Some(_)))
        })
        .await
        .unwrap();
        let status = self.node.until_phase(&self.entry, Phase::Succeeded).await;
        assert_eq!(status.version(), 0, "it was ordered once: {status:?}");
    }
}

#[rstest]
#[case::containerd_1_6(RuntimeKind::Containerd(ContainerdVersion::V1_6))]
#[case::containerd_1_7(RuntimeKind::Containerd(ContainerdVersion::V1_7))]
#[case::containerd_2(RuntimeKind::Containerd(ContainerdVersion::V2))]
#[case::cri_o(RuntimeKind::CriO)]
#[case::docker(RuntimeKind::Docker)]
#[tokio::test]
async fn an_image_that_is_removed_through_cri_comes_back(#[case] kind: RuntimeKind) {
    let scene = Scene::start(&RuntimeOptions::new(kind)).await;
    scene.runtime.remove(&scene.image).await.unwrap();
    scene.until_it_is_back().await;
}

#[rstest]
#[case::containerd_1_6(RuntimeKind::Containerd(ContainerdVersion::V1_6))]
#[case::containerd_1_7(RuntimeKind::Containerd(ContainerdVersion::V1_7))]
#[case::containerd_2(RuntimeKind::Containerd(ContainerdVersion::V2))]
#[case::cri_o(RuntimeKind::CriO)]
#[case::docker(RuntimeKind::Docker)]
#[tokio::test]
async fn an_image_comes_back_after_the_disk_was_wiped(#[case] kind: RuntimeKind) {
    let mut scene = Scene::start(&RuntimeOptions::new(kind)).await;
    scene.server.kill().unwrap();
    for entry in std::fs::read_dir(scene.server.root()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }
    scene.server.restart().await.unwrap();
    scene.until_it_is_back().await;
}

/// The kubelet would remove it again, and so on: each pull would only move bytes.
#[tokio::test]
async fn an_image_that_is_removed_from_a_full_disk_waits_for_room() {
    let options = RuntimeOptions {
        disk_size: Some(64 * MIB as u64),
        ..RuntimeOptions::new(RuntimeKind::Containerd(ContainerdVersion::V2))
    };
    let scene = Scene::start(&options).await;
    let filler = scene.server.root().join("filler");
    std::fs::write(&filler, vec![1; 52 * MIB]).unwrap();
    scene.runtime.remove(&scene.image).await.unwrap();
    let waits = scene
        .node
        .until(&scene.entry, "a wait for room", |status| {
            status.phase() == Phase::Waiting && status.reason() == Some(Reason::NoSpace)
        })
        .await;
    assert!(waits.last_succeeded.is_some() && waits.message.unwrap().contains("when there is room"));
    assert_eq!(scene.runtime.status(&scene.image).await.unwrap(), None);
    std::fs::remove_file(&filler).unwrap();
    scene.until_it_is_back().await;
}
