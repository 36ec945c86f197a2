//! containerd's `certs.d/<registry>/hosts.toml`: where a registry's content may be fetched from, and which
//! certificates to trust there.
//!
//! Understood are `server`, `[host."…"]` with `capabilities`, `ca`, `client`, `header`, `skip_verify`, `override_path`, and the
//! same fields for the server itself. What cannot be used, such as several client certificates, is refused with a sentence
//! rather than ignored, because a pull without it would go wrong in a way that is hard to understand.

mod file;

use std::io;
use std::path::{Path, PathBuf};

use reqwest::Url;
use reqwest::header::HeaderMap;

/// The host at which Docker Hub's registry answers.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

/// One place that serves a registry's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address of the registry API, ending in `/v2/` unless the file says otherwise.
    pub base: Url,
    /// `host[:port]` as it was written. A URL drops a port that is its scheme's default; keys of logins, and containerd
    /// when it compares hosts, keep it.
    pub authority: String,
    /// Whether it may say what a tag points at.
    pub resolves: bool,
    /// Whether it may serve content.
    pub serves: bool,
    /// Certificates to trust, and to show.
    pub trust: Trust,
    /// Headers of every request to this host, and to no host to which it redirects.
    pub headers: HeaderMap,
    /// Whether this is a mirror rather than the registry itself. Mirrors do not get the registry's logins, only logins
    /// that were configured for their own host.
    pub is_mirror: bool,
}

/// Whom to trust behind `https`, and as whom to appear there.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trust {
    /// Files of certificates to trust beside the system's.
    pub ca: Vec<PathBuf>,
    /// Trust anybody.
    pub skip_verify: bool,
    /// A certificate of our own.
    pub client: Option<ClientCertificate>,
}

/// Files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientCertificate {
    /// The certificate, with its chain.
    pub certificate: PathBuf,
    /// The key. `None`: it is in the same file.
    pub key: Option<PathBuf>,
}

/// The directory of `hosts.toml` files, or none.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    dir: Option<PathBuf>,
}

/// Why a registry's `hosts.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file is there and cannot be opened.
    #[error("{path} cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path} is not a valid hosts.toml")]
    Malformed {
        /// The file.
        path: String,
        /// What the parser said.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// An address that is none.
    #[error("`{0}` is not the address of a registry; write it as https://host[:port]")]
    Address(String),
    /// A field that would change how the registry is talked to, and that we cannot honour.
    #[error("{path} has a field that cannot be used: {field}")]
    Unusable {
        /// The file.
        path: String,
        /// The field, and how it should be.
        field: &'static str,
    },
}

impl Hosts {
    /// Reads files below `dir`, usually `/etc/containerd/certs.d`.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()) }
    }

    /// The places to ask for a registry's content, in order. The registry itself is the last one.
    pub fn endpoints(&self, registry: &str) -> Result<Vec<Endpoint>, HostsError> {
        let default_server = default_host(registry);
        let Some(path) = self.dir.as_deref().and_then(|dir| find_file(dir, registry)) else {
            return Ok(vec![Endpoint::server(default_server)?]);
        };
        let text = std::fs::read_to_string(&path).map_err(|source| HostsError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        file::endpoints(&text, &path, default_server)
    }
}

impl Endpoint {
    fn server(host: &str) -> Result<Self, HostsError> {
        Ok(Self {
            base: address(host, false)?,
            authority: authority(host).to_owned(),
            resolves: true,
            serves: true,
            trust: Trust::default(),
            headers: HeaderMap::new(),
            is_mirror: false,
        })
    }

    /// The name that an image of the registry has on this host, for keys of logins that have a path: mirrors often keep
    /// each registry under a path of its own.
    pub(crate) fn repository(&self, repository: &str) -> String {
        let prefix = self.base.path_segments().into_iter().flatten();
        let prefix = prefix.filter(|segment| !segment.is_empty() && *segment != "v2");
        prefix.chain([repository]).collect::<Vec<_>>().join("/")
    }
}

/// The host that answers for a registry where no `hosts.toml` names another.
pub fn default_host(registry: &str) -> &str {
    if registry == "docker.io" {
        DOCKER_HUB_HOST
    } else {
        registry
    }
}

/// `host[:port]` of an address with or without scheme and path.
fn authority(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(authority, _)| authority)
}

/// `host:port` may also be written `host_port_`; `_default` serves registries that have no directory of their own.
fn find_file(dir: &Path, registry: &str) -> Option<PathBuf> {
    let with_underscores = match registry.rsplit_once(':') {
        Some((host, port)) => format!("{host}_{port}_"),
        None => registry.to_owned(),
    };
    [with_underscores.as_str(), registry, "_default"]
        .map(|name| dir.join(name))
        .into_iter()
        .find(|dir| dir.is_dir())
        .map(|dir| dir.join("hosts.toml"))
        .filter(|file| file.exists())
}

/// Reads an address with or without scheme. Without one it is `https`, except on this machine itself.
fn address(text: &str, keep_path: bool) -> Result<Url, HostsError> {
    let bad = || HostsError::Address(text.to_owned());
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        let https = Url::parse(&format!("https://{text}")).map_err(|_| bad())?;
        format!("{}://{text}", if is_loopback(&https) { "http" } else { "https" })
    };
    let mut url = Url::parse(&with_scheme).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(bad());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if keep_path || path.ends_with("/v2") {
        path
    } else {
        path + "/v2"
    };
    url.set_path(&(path + "/"));
    Ok(url)
}

/// Whether the address is this very machine, where plain HTTP is no risk.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// For fuzzing: a file is refused or names hosts that can be asked, the registry itself last.
#[cfg(test)]
pub(crate) fn check_hosts_file(text: &str) {
    use reqwest::header::HeaderValue;

    let Ok(endpoints) = file::endpoints(text, Path::new("/certs/a.example/hosts.toml"), "a.example") else {
        return;
    };
    let (registry, mirrors) = endpoints
        .split_last()
        .map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
    assert!(registry.is_some_and(|registry| !registry.is_mirror));
    assert!(mirrors.iter().all(|mirror| mirror.is_mirror));
    for endpoint in &endpoints {
        assert!(matches!(endpoint.base.scheme(), "http" | "https") && endpoint.base.host_str().is_some());
        assert!(endpoint.base.path().ends_with('/'), "{}", endpoint.base);
        assert!(endpoint.headers.values().all(HeaderValue::is_sensitive));
    }
}

#[cfg(test)]
mod tests;
