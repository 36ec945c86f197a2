//! Talking to registries: what a reference points at, manifests by platform, blobs checked by digest.
//!
//! A [`Repository`] is one image's home with the credentials that may open it; it remembers which of them did. Every
//! wait has a limit, every failure a [`Reason`](larder_model::Reason), and only reads are sent, so that repeating one is
//! safe. Plain HTTP is spoken to this very machine, or where a `hosts.toml` asks for it, and nowhere else.
//!
//! A login is for one host. The registry's logins go to the registry and to the token service that it names (see
//! `access`), not to mirrors, not to hosts to which a request is redirected, and not from HTTPS to plain HTTP.

mod access;
mod blob;
mod challenge;
mod documents;
mod error;
mod host_health;
mod login_servers;
mod pauses;
mod range;
mod repository;
#[cfg(test)]
pub(crate) mod tests;
mod transport;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use larder_model::ImageRef;

use crate::hosts::Hosts;
use crate::{Credential, Keyring};
#[cfg(test)]
pub(crate) use blob::digest_of;
pub use blob::{BlobWriter, ContentHasher, Progress};
pub use documents::KnownContent;
pub use error::RegistryError;
pub(crate) use host_health::Failures;
pub use login_servers::{LoginServers, MirrorLogin};
#[cfg(test)]
pub(crate) use range::check_content_range;
pub(crate) use range::{BlobRange, RangeBody};
pub use repository::Repository;
pub(crate) use repository::pause_after;
use transport::Transport;
pub use wait::RegistryWait;

/// Limits on waiting, and where mirrors are described.
#[derive(Clone)]
pub struct Settings {
    /// Mirrors and certificates.
    pub hosts: Hosts,
    /// Logins for mirrors, each under the mirror's own host.
    pub mirror_logins: Keyring,
    /// For name lookup, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// From sending a request to the head of the answer, and for the whole of a manifest.
    pub request_timeout: Duration,
    /// How long a blob may stand still.
    pub stall_after: Duration,
    /// How often a request is sent that meets a broken connection or a server error, and how often in a row a blob may
    /// break off without having moved.
    pub tries: u32,
    /// Whether a connection that could not be made is tried again, like one that broke.
    pub retries_connecting: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            mirror_logins: Keyring::default(),
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
            stall_after: Duration::from_mins(1),
            tries: 3,
            retries_connecting: true,
        }
    }
}

/// Access to any registry. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RegistryClient {
    transport: Arc<Transport>,
}

impl RegistryClient {
    /// A client with these limits. Nothing is opened yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            transport: Arc::new(Transport::new(settings)),
        }
    }

    /// The same for requests that something else can do instead: a host that cannot be connected to within this time is given
    /// up at once. Pauses that registries ask for are shared.
    #[must_use]
    pub fn giving_up_unconnected(&self, connect_timeout: Duration) -> Self {
        let settings = Settings {
            connect_timeout,
            retries_connecting: false,
            ..self.transport.settings.clone()
        };
        Self {
            transport: Arc::new(Transport::sharing_pauses(settings, &self.transport)),
        }
    }

    /// An image's repository, to be opened with the first of the credentials that the registry accepts. Without any it
    /// is opened anonymously; with some it is not, because a private name should fail rather than be shadowed.
    pub fn repository(&self, image: &ImageRef, credentials: Vec<Credential>) -> Result<Repository, RegistryError> {
        Repository::new(Arc::clone(&self.transport), image.clone(), credentials)
    }

    /// Which hosts may get a login for an image, for a container runtime that pulls by itself.
    pub fn login_servers(&self, image: &ImageRef) -> LoginServers {
        LoginServers::of(image, &self.transport.settings)
    }
}
