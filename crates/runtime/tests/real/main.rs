//! The back ends against real containerds (Debian's 1.6 and a current 2.x) and a real registry.

#![expect(clippy::unwrap_used, reason = "what tests share fails by panicking, as tests do")]

mod answers;
mod blobs;
mod events;
mod fetching;
mod hostile;
mod layout;
mod logins;
mod misbehaving;
mod pulling;
mod readers;
mod references;
mod slow;
mod stub;
mod survival;

use std::{path::Path, sync::Arc, time::Duration};

use larder_model::ImageRef;
use larder_registry::{
    RegistryClient, Settings,
    fetch::{FetchSettings, Fetcher},
};
use larder_runtime::{FetchOwner, Fetching, ImageRuntime, RuntimeEndpoint, connect, connect_with};
use larder_testkit::{Containerd, ContainerdOptions, ContainerdVersion};

/// Long enough for a busy machine; a test that works never waits that long.
const DEADLINE: Duration = Duration::from_secs(30);

const MIB: usize = 1 << 20;

/// A node as the agent sees it.
struct Node {
    containerd: Containerd,
    runtime: Arc<dyn ImageRuntime>,
}

impl Node {
    async fn start(version: ContainerdVersion) -> Self {
        Self::start_with(ContainerdOptions::new(version)).await
    }

    async fn start_with(options: ContainerdOptions) -> Self {
        let containerd = Containerd::start_with(options).await.unwrap();
        let endpoint = RuntimeEndpoint::at(containerd.socket());
        let runtime = connect(&endpoint, Path::new("/")).await.unwrap();
        Self { containerd, runtime }
    }

    /// The same, with our own fetcher.
    async fn start_fetching(options: ContainerdOptions) -> Self {
        let containerd = Containerd::start_with(options).await.unwrap();
        let runtime = fetching_runtime(&containerd).await;
        Self { containerd, runtime }
    }
}

/// What an agent that has just started makes of a containerd.
async fn fetching_runtime(containerd: &Containerd) -> Arc<dyn ImageRuntime> {
    fetching_runtime_with(containerd, FetchSettings::default()).await
}

async fn fetching_runtime_with(containerd: &Containerd, settings: FetchSettings) -> Arc<dyn ImageRuntime> {
    fetching_runtime_of(FetchOwner::Agent, containerd, settings).await
}

async fn fetching_runtime_of(
    owner: FetchOwner,
    containerd: &Containerd,
    settings: FetchSettings,
) -> Arc<dyn ImageRuntime> {
    let client = RegistryClient::new(Settings::default());
    let fetching = Fetching::new(&client, Fetcher::new(settings), owner);
    let endpoint = RuntimeEndpoint::at(containerd.socket());
    connect_with(&endpoint, Path::new("/"), Some(fetching)).await.unwrap()
}

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}
