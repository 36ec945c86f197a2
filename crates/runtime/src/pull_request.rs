//! What a pull needs to know, and who may see it.

use std::{collections::BTreeMap, time::Duration};

use larder_model::ImageRef;
use larder_registry::{Credential, LoginServers, RegistryWait};

/// Annotation that every pull carries in its sandbox config. Key and value are OpenKruise's, its value included:
/// registries, proxies and snapshotters filter on the pair to tell warm-up pulls from those of pods.
pub const MARKER_ANNOTATION: (&str, &str) = ("apps.kruise.io/pulling-image-by", "kruise-daemon");

/// One pull.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// What to pull.
    pub image: ImageRef,
    /// As whom. `None`: anonymously, or as the runtime itself is configured.
    pub auth: Option<Credential>,
    /// Which hosts may get which login.
    pub login_servers: LoginServers,
    /// What the runtime and its plugins get to see of the job.
    pub sandbox: Sandbox,
    /// How long a registry that asks for time may be waited for in all, where Larder fetches.
    pub patience: Duration,
    /// Shows whether the pull waits because the registry asked for time, where Larder fetches.
    pub wait: RegistryWait,
}

/// Labels and annotations of the pretended pod sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations; [`MARKER_ANNOTATION`] is added by the back end.
    pub annotations: BTreeMap<String, String>,
}

impl PullRequest {
    /// An anonymous pull; a login that is added goes to the registry in the image's name alone.
    pub fn new(image: ImageRef) -> Self {
        Self {
            auth: None,
            login_servers: LoginServers::default_for(&image),
            image,
            sandbox: Sandbox::default(),
            patience: Duration::ZERO,
            wait: RegistryWait::default(),
        }
    }
}
