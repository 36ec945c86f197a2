//! The servers of the benchmark.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_model::ImageRef;
use larder_registry::fetch::{FetchSettings, Fetcher};
use larder_registry::{RegistryClient, Settings};
use larder_runtime::{FetchOwner, FetchPath, Fetching, ImageRuntime, PullRequest, RuntimeEndpoint, connect_with};
use larder_testkit::image::Image;
use larder_testkit::{Auth, Containerd, ContainerdOptions, ContainerdVersion, Registry, Throttle};
use tokio::time::Instant;

/// A megabyte, as lines are sold.
pub(crate) const MB: u64 = 1_000_000;

/// Which containerd.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    options: ContainerdOptions,
}

impl Kind {
    pub(crate) fn new(name: &'static str, version: ContainerdVersion) -> Self {
        let options = ContainerdOptions::new(version);
        Self { name, options }
    }

    /// containerd's own parallel ranges, of 4 MiB.
    pub(crate) fn multipart(mut self) -> Self {
        self.options.layer_fetch_buffer = Some(4 << 20);
        self
    }

    pub(crate) async fn start(&self) -> Containerd {
        Containerd::start_with(self.options.clone()).await.unwrap()
    }
}

/// A registry behind a line.
pub(crate) struct World {
    registry: Registry,
    pub(crate) line: Throttle,
}

impl World {
    pub(crate) async fn start() -> Self {
        let registry = Registry::start(Auth::Open).await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        Self { registry, line }
    }

    pub(crate) async fn push(&self, image: &Image, name: &str) -> ImageRef {
        self.registry.push(image, name, "v1").await.unwrap();
        ImageRef::parse(&format!("{}/{name}:v1", self.line.host())).unwrap()
    }

    /// The name without the line in between.
    pub(crate) fn direct(&self, name: &str) -> ImageRef {
        ImageRef::parse(&format!("{}/{name}:v1", self.registry.host())).unwrap()
    }
}

pub(crate) async fn runtime(socket: &Path, fetch: Option<FetchSettings>) -> Arc<dyn ImageRuntime> {
    let client = RegistryClient::new(Settings::default());
    let fetching = fetch.map(|settings| Fetching::new(&client, Fetcher::new(settings), FetchOwner::Agent));
    connect_with(&RuntimeEndpoint::at(socket), Path::new("/"), fetching)
        .await
        .unwrap()
}

/// Pulls onto an empty node and gives back how long it took and who fetched.
pub(crate) async fn pull(kind: &Kind, image: &ImageRef, fetch: Option<FetchSettings>) -> (Duration, FetchPath) {
    let containerd = kind.start().await;
    let runtime = runtime(&containerd.socket(), fetch).await;
    let start = Instant::now();
    let pulled = runtime.pull(&PullRequest::new(image.clone())).await.unwrap();
    (start.elapsed(), pulled.path)
}
