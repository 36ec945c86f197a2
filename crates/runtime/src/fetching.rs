//! Fetching layers ourselves, and why that is left to the runtime where it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use larder_registry::{RegistryClient, fetch::Fetcher};
use tokio::time::Instant;

/// How long a connection to a registry may take before the runtime pulls instead. The runtime may have a proxy that we are
/// not told of.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long a registry that could not be connected to is left to the runtime.
const UNREACHED_FOR: Duration = Duration::from_mins(10);

/// What fetches layers before the runtime does.
#[derive(Clone)]
pub struct Fetching {
    /// Access to registries.
    pub(crate) client: RegistryClient,
    /// Connections, with the limits that all pulls share.
    pub(crate) fetcher: Fetcher,
    pub(crate) owner: FetchOwner,
    pub(crate) unreached: Unreached,
}

/// What kind of process fetches. Both may work on one node at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchOwner {
    /// The node's agent, of which there is one. What it finds of its kind and does not hold itself was left by an earlier one.
    Agent,
    /// A command such as `larder pull`. The agent cannot know whether it still runs.
    Command,
}

impl FetchOwner {
    /// A word for labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Command => "command",
        }
    }
}

impl Fetching {
    /// Fetches from registries by this client, with the limits of this fetcher.
    pub fn new(client: &RegistryClient, fetcher: Fetcher, owner: FetchOwner) -> Self {
        Self {
            client: client.giving_up_unconnected(CONNECT_LIMIT),
            fetcher,
            owner,
            unreached: Unreached::default(),
        }
    }
}

/// Registries that could not be connected to a short while ago.
#[derive(Clone, Default)]
pub(crate) struct Unreached(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Unreached {
    /// Takes note of one.
    pub(crate) fn add(&self, registry: &str) {
        self.lock().insert(registry.to_owned(), Instant::now() + UNREACHED_FOR);
    }

    /// Whether this is one.
    pub(crate) fn contains(&self, registry: &str) -> bool {
        let mut unreached = self.lock();
        let now = Instant::now();
        unreached.retain(|_, until| now < *until);
        unreached.contains_key(registry)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who fetched an image's layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchPath {
    /// The back end's only way.
    Runtime,
    /// Larder's fetcher, from these hosts. None of them: everything was there.
    Fetcher(BTreeSet<String>),
    /// The runtime, at least in part, although Larder's fetcher is on.
    LeftToRuntime(LeftToRuntime),
}

/// Why the runtime fetches by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeftToRuntime {
    /// It is none whose content store we can write to.
    OtherRuntime,
    /// Its snapshotter fetches layers by itself, or is not known.
    Snapshotter,
    /// Layers that are encrypted, lie elsewhere, or are of an unknown kind.
    Layers,
    /// It does not offer the services that are needed.
    Services,
    /// So little is missing that nothing is gained.
    Small,
    /// The line is so fast that nothing is gained.
    FastLine,
    /// The registry, or the way to it, failed for us. The runtime may be configured differently.
    Registry,
    /// We cannot connect to the registry. The runtime may have a proxy.
    Unconnected,
    /// The content store failed.
    Store,
}

impl LeftToRuntime {
    /// A word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherRuntime => "runtime",
            Self::Snapshotter => "snapshotter",
            Self::Layers => "layers",
            Self::Services => "services",
            Self::Small => "small",
            Self::FastLine => "fast-line",
            Self::Registry => "registry",
            Self::Unconnected => "unconnected",
            Self::Store => "store",
        }
    }

    /// Whether something is in the way, rather than nothing to be gained.
    pub const fn is_fallback(self) -> bool {
        !matches!(self, Self::Small | Self::FastLine)
    }
}

impl fmt::Display for LeftToRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherRuntime => {
                "this container runtime has no content store to fetch into; it pulls images by itself"
            }
            Self::Snapshotter => {
                "the snapshotter fetches layers by itself, or is not known; the runtime pulls the image by itself"
            }
            Self::Layers => {
                "the image has layers that are encrypted, foreign or of an unknown kind; the runtime pulls it by itself"
            }
            Self::Services => "containerd does not offer the services for fetching; it pulls the image by itself",
            Self::Small => "little of the image is missing; the runtime pulls it by itself",
            Self::FastLine => "the line is fast; the runtime pulls the rest by itself",
            Self::Registry => "fetching layers failed; the runtime pulls the image by itself",
            Self::Unconnected => {
                "the agent cannot connect to the registry; the runtime pulls the image by itself, and other images of the \
                 registry for some minutes. If containerd uses a proxy, set HTTPS_PROXY for the agent too"
            }
            Self::Store => "the content store refused a layer; the runtime pulls the image by itself",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_registry_is_left_to_the_runtime_for_a_while() {
        let unreached = Unreached::default();
        assert!(!unreached.contains("a.example"));
        unreached.add("a.example");
        assert!(unreached.contains("a.example") && !unreached.contains("b.example"));
        tokio::time::advance(UNREACHED_FOR).await;
        assert!(!unreached.contains("a.example"));
    }
}
