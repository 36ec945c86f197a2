//! Connections: one pool per set of trusted certificates, typed name-lookup errors, and rules for redirects: never from
//! HTTPS to plain HTTP, and with a login in the request never to another host.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use larder_model::Reason;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, Identity, redirect};

use super::pauses::Pauses;
use super::{RegistryError, Settings};
use crate::hosts::{ClientCertificate, Endpoint, Trust, is_loopback};

/// Registries redirect once, to where the blobs lie.
const MAX_REDIRECTS: usize = 5;

const USER_AGENT: &str = concat!("larder/", env!("CARGO_PKG_VERSION"));

pub(super) struct Transport {
    pub(super) settings: Settings,
    clients: Mutex<BTreeMap<(Trust, bool), Clients>>,
    pub(super) pauses: Arc<Pauses>,
}

/// The clients for one endpoint.
#[derive(Clone)]
pub(super) struct Clients {
    /// Follows redirects to other hosts, as registries redirect to where the blobs lie. The HTTP library drops the
    /// `Authorization` header there.
    pub(super) content: Client,
    /// Returns a redirect to another host instead of following it: headers of a `hosts.toml` are for one host.
    pub(super) one_host: Client,
    /// Follows redirects within one origin only: the body of a token request may be a login, and a status of 307 or 308
    /// would have it sent again to wherever the answer points.
    pub(super) login: Client,
}

/// What is done with redirects to other hosts.
#[derive(Clone, Copy)]
enum OtherHosts {
    Follow,
    Return,
    Refuse,
}

/// A redirect that is not followed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum RefusedRedirect {
    #[error("the registry redirects in circles")]
    Circle,
    #[error("the registry redirects from https to plain http")]
    Downgrade,
    #[error("the token service redirects to another host; the login was not sent there")]
    OtherHost,
}

/// A host name without an address.
#[derive(Debug, thiserror::Error)]
#[error("the host name `{host}` cannot be resolved")]
pub(super) struct LookupFailed {
    host: String,
    #[source]
    source: io::Error,
}

struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0))
                .await
                .map(Iterator::collect::<Vec<SocketAddr>>);
            match found {
                Ok(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
                Err(source) => Err(LookupFailed { host, source }.into()),
            }
        })
    }
}

impl Transport {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            clients: Mutex::default(),
            pauses: Arc::default(),
        }
    }

    /// With connections and settings of its own.
    pub(super) fn sharing_pauses(settings: Settings, other: &Self) -> Self {
        Self {
            pauses: Arc::clone(&other.pauses),
            ..Self::new(settings)
        }
    }

    /// The pools for an endpoint. A proxy from the environment is used for every host but this machine.
    pub(super) fn clients(&self, endpoint: &Endpoint) -> Result<Clients, RegistryError> {
        let local = is_loopback(&endpoint.base);
        let key = (endpoint.trust.clone(), local);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&key) {
            return Ok(known.clone());
        }
        let made = Clients {
            // Requests over HTTP/2 would share one connection, and with it the rate of one.
            content: self.build(endpoint, local, OtherHosts::Follow, ClientBuilder::http1_only)?,
            one_host: self.build(endpoint, local, OtherHosts::Return, ClientBuilder::http1_only)?,
            login: self.build(endpoint, local, OtherHosts::Refuse, |builder| builder)?,
        };
        clients.insert(key, made.clone());
        Ok(made)
    }

    fn build(
        &self,
        endpoint: &Endpoint,
        local: bool,
        other_hosts: OtherHosts,
        protocol: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, RegistryError> {
        let extra = certificates(&endpoint.trust)?;
        let identity = endpoint.trust.client.as_ref().map(identity).transpose()?;
        let base = || {
            let builder = Client::builder()
                .user_agent(USER_AGENT)
                .connect_timeout(self.settings.connect_timeout)
                .dns_resolver(SystemResolver)
                .redirect(redirects(other_hosts))
                .retry(reqwest::retry::never())
                .referer(false);
            let builder = protocol(builder);
            let builder = match identity.clone() {
                Some(identity) => builder.identity(identity),
                None => builder,
            };
            if local { builder.no_proxy() } else { builder }
        };
        let trusting = |builder: ClientBuilder| {
            if endpoint.trust.skip_verify {
                builder.tls_danger_accept_invalid_certs(true)
            } else {
                builder.tls_certs_merge(extra.clone())
            }
        };
        let built = trusting(base()).build();
        // A machine without any CA certificates can still speak plain HTTP.
        let built = match built {
            Err(_) if endpoint.base.scheme() == "http" => base().tls_certs_only([]).build(),
            other => other,
        };
        built.map_err(|error| {
            let message = "no TLS connection can be made; check the CA certificates of this machine";
            RegistryError::new(Reason::Tls, message).caused_by(error)
        })
    }
}

fn certificates(trust: &Trust) -> Result<Vec<Certificate>, RegistryError> {
    let mut certificates = Vec::new();
    for path in &trust.ca {
        let bad = || RegistryError::new(Reason::Tls, format!("the CA file {} cannot be used", path.display()));
        let pem = std::fs::read(path).map_err(|error| bad().caused_by(error))?;
        let found = Certificate::from_pem_bundle(&pem).map_err(|error| bad().caused_by(error))?;
        if found.is_empty() {
            return Err(bad().caused_by("it holds no certificate"));
        }
        certificates.extend(found);
    }
    Ok(certificates)
}

fn identity(client: &ClientCertificate) -> Result<Identity, RegistryError> {
    let path = &client.certificate;
    let bad = || {
        RegistryError::new(
            Reason::Tls,
            format!("the client certificate {} cannot be used", path.display()),
        )
    };
    let mut pem = std::fs::read(path).map_err(|error| bad().caused_by(error))?;
    if let Some(key) = &client.key {
        pem.push(b'\n');
        pem.extend(std::fs::read(key).map_err(|error| bad().caused_by(error))?);
    }
    Identity::from_pem(&pem).map_err(|error| bad().caused_by(error))
}

fn redirects(other_hosts: OtherHosts) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        let previous = attempt.previous();
        let came_by_https = previous.last().is_some_and(|url| url.scheme() == "https");
        let is_other_host = previous
            .first()
            .is_some_and(|url| url.origin() != attempt.url().origin());
        if MAX_REDIRECTS < previous.len() {
            return attempt.error(RefusedRedirect::Circle);
        }
        if came_by_https && attempt.url().scheme() != "https" {
            return attempt.error(RefusedRedirect::Downgrade);
        }
        match other_hosts {
            OtherHosts::Refuse if is_other_host => attempt.error(RefusedRedirect::OtherHost),
            OtherHosts::Return if is_other_host => attempt.stop(),
            _ => attempt.follow(),
        }
    })
}
