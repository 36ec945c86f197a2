//! Which hosts may get a login for an image: the registry that its name says, and mirrors that have logins of their own.

use larder_model::ImageRef;

use super::Settings;
use crate::Credential;
use crate::hosts::{Endpoint, default_host};

/// The hosts that may get a login for one image. Addresses are `scheme://host[:port]`, as the runtime's own `hosts.toml`
/// or the image's name has them.
#[derive(Debug, Clone, PartialEq)]
pub struct LoginServers {
    /// The registry itself: the only host for the logins that were given for the image.
    pub registry: String,
    /// Mirrors with logins of their own, in the order in which the runtime asks them.
    pub mirrors: Vec<MirrorLogin>,
}

/// A login of a mirror.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorLogin {
    /// The mirror: the only host that may get it.
    pub server: String,
    /// The login.
    pub credential: Credential,
}

impl LoginServers {
    /// Without any `hosts.toml`: the registry in the image's name. The scheme says nothing about how it is reached.
    pub fn default_for(image: &ImageRef) -> Self {
        Self {
            registry: format!("https://{}", default_host(image.registry())),
            mirrors: Vec::new(),
        }
    }

    pub(super) fn of(image: &ImageRef, settings: &Settings) -> Self {
        let mut servers = Self::default_for(image);
        // A file that cannot be read names no mirrors; pulls by the runtime report it.
        let endpoints = settings.hosts.endpoints(image.registry()).unwrap_or_default();
        for endpoint in endpoints {
            let server = format!("{}://{}", endpoint.base.scheme(), endpoint.authority);
            if endpoint.is_mirror {
                let logins = mirror_logins(image, &endpoint, settings).into_iter();
                servers.mirrors.extend(logins.map(|credential| MirrorLogin {
                    server: server.clone(),
                    credential,
                }));
            } else {
                servers.registry = server;
            }
        }
        servers
    }
}

/// The logins that were configured for the mirror's own host.
pub(super) fn mirror_logins(image: &ImageRef, mirror: &Endpoint, settings: &Settings) -> Vec<Credential> {
    let repository = mirror.repository(image.repository());
    settings.mirror_logins.lookup_at(&mirror.authority, &repository)
}
