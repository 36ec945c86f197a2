//! Fetching layers ourselves, and why that is left to the runtime where it is.

use std::{collections::BTreeSet, fmt};

use larder_registry::{RegistryClient, fetch::Fetcher};

/// What fetches layers before the runtime does.
#[derive(Clone)]
pub struct Fetching {
    /// Access to registries.
    pub client: RegistryClient,
    /// Connections, with the limits that all pulls share.
    pub fetcher: Fetcher,
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
            Self::Store => "the content store refused a layer; the runtime pulls the image by itself",
        })
    }
}
