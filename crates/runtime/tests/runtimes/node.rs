//! A runtime as the agent sees it, and images for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_model::ImageRef;
use larder_runtime::{ImageRuntime, PullRequest, PulledImage, RuntimeEndpoint, RuntimeError, connect};
use larder_testkit::image::{Image, Recipe};
use larder_testkit::{Auth, ContainerRuntime, Link, Registry, RuntimeKind, RuntimeOptions, Throttle, wait_until};
use tokio::task::JoinHandle;

/// Long enough for a busy machine; a test that works never waits that long.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) const MIB: usize = 1 << 20;

/// Large enough to be watched while it comes over a slow line.
const LARGE: usize = 8 * MIB;

pub(crate) struct Node {
    pub(crate) server: ContainerRuntime,
    pub(crate) runtime: Arc<dyn ImageRuntime>,
}

impl Node {
    pub(crate) async fn start(kind: RuntimeKind) -> Self {
        Self::start_with(&RuntimeOptions::new(kind)).await
    }

    pub(crate) async fn start_with(options: &RuntimeOptions) -> Self {
        let server = ContainerRuntime::start_with(options).await.unwrap();
        let runtime = connected(&server.socket()).await;
        Self { server, runtime }
    }

    /// Starts a pull and leaves it to run.
    pub(crate) fn start_pull(&self, image: &ImageRef) -> JoinHandle<Result<PulledImage, RuntimeError>> {
        let (runtime, request) = (Arc::clone(&self.runtime), PullRequest::new(image.clone()));
        tokio::spawn(async move { runtime.pull(&request).await })
    }

    pub(crate) async fn pull(&self, image: &ImageRef) -> Result<PulledImage, RuntimeError> {
        self.runtime.pull(&PullRequest::new(image.clone())).await
    }

    pub(crate) async fn has(&self, image: &ImageRef) -> bool {
        self.runtime.status(image).await.unwrap().is_some()
    }
}

pub(crate) async fn connected(socket: &Path) -> Arc<dyn ImageRuntime> {
    connect(&RuntimeEndpoint::at(socket), Path::new("/")).await.unwrap()
}

pub(crate) fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

pub(crate) async fn open_registry() -> Registry {
    Registry::start(Auth::Open).await.unwrap()
}

/// A registry behind a slow line, with an image that takes seconds.
pub(crate) struct SlowImage {
    pub(crate) line: Throttle,
    pub(crate) built: Image,
    pub(crate) name: ImageRef,
    _registry: Registry,
}

impl SlowImage {
    pub(crate) async fn start() -> Self {
        let registry = open_registry().await;
        let built = Recipe::random(1, 1, LARGE).build();
        registry.push(&built, "app", "v1").await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        line.set(Link::bytes_per_second(2 * MIB as u64));
        let name = image(&format!("{}/app:v1", line.host()));
        Self {
            line,
            built,
            name,
            _registry: registry,
        }
    }

    /// Waits until a part of the layer has come over the line.
    pub(crate) async fn wait_for_bytes(&self) {
        wait_until(DEADLINE, "the first bytes of a layer", async || {
            self.line.bytes() > MIB as u64
        })
        .await
        .unwrap();
    }
}
