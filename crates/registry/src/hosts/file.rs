//! The fields of one `hosts.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::{ClientCertificate, Endpoint, HostsError, Trust, address, authority};

#[derive(Deserialize)]
struct HostsFile {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    own: HostFields,
}

#[derive(Deserialize, Default)]
struct HostFields {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMany<PathBuf>>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    client: Option<ClientField>,
    #[serde(default)]
    header: BTreeMap<String, OneOrMany<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// `"both.pem"`, `["both.pem"]` or `[["certificate.pem", "key.pem"]]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum ClientField {
    One(PathBuf),
    Many(Vec<OneOrMany<PathBuf>>),
}

impl ClientField {
    /// `None`: more than one certificate, or none.
    fn files(self) -> Option<ClientCertificate> {
        let mut files = match self {
            Self::One(path) => vec![path],
            Self::Many(entries) => match <[_; 1]>::try_from(entries) {
                Ok([entry]) => entry.into_vec(),
                Err(_) => return None,
            },
        };
        let key = (files.len() == 2).then(|| files.pop()).flatten();
        let [certificate] = <[_; 1]>::try_from(files).ok()?;
        // An empty key means that it is in the certificate's file.
        let key = key.filter(|key| !key.as_os_str().is_empty());
        Some(ClientCertificate { certificate, key })
    }
}

pub(super) fn endpoints(text: &str, path: &Path, default_server: &str) -> Result<Vec<Endpoint>, HostsError> {
    let malformed = |source| HostsError::Malformed {
        path: path.display().to_string(),
        source: Box::new(source),
    };
    let file: HostsFile = toml::from_str(text).map_err(malformed)?;
    let mut endpoints = Vec::new();
    for (name, fields) in file.host {
        let fields: HostFields = fields.try_into().map_err(malformed)?;
        endpoints.push(fields.endpoint(&name, path, true)?);
    }
    let server = file.server.filter(|server| !server.is_empty());
    let own = HostFields {
        override_path: file.own.override_path && server.is_some(),
        ..file.own
    };
    endpoints.push(own.endpoint(server.as_deref().unwrap_or(default_server), path, false)?);
    Ok(endpoints)
}

impl HostFields {
    fn endpoint(self, host: &str, file: &Path, is_mirror: bool) -> Result<Endpoint, HostsError> {
        let base = address(host, self.override_path)?;
        let can = |word: &str| {
            self.capabilities
                .as_ref()
                .is_none_or(|words| words.is_empty() || words.iter().any(|known| known == word))
        };
        let (resolves, serves) = (can("resolve"), can("pull"));
        let here = file.parent().unwrap_or(Path::new(""));
        let ca = self.ca.map(OneOrMany::into_vec).unwrap_or_default();
        let unusable = |field| HostsError::Unusable {
            path: file.display().to_string(),
            field,
        };
        let client = match self.client.map(ClientField::files) {
            None => None,
            Some(None) => return Err(unusable("client, which must be one certificate with its key")),
            Some(Some(files)) => Some(files.below(here)),
        };
        let headers =
            headers(self.header).ok_or_else(|| unusable("header, which must be names of HTTP headers with texts"))?;
        let trust = Trust {
            ca: ca.into_iter().map(|path| here.join(path)).collect(),
            skip_verify: self.skip_verify,
            client,
        };
        Ok(Endpoint {
            base,
            authority: authority(host).to_owned(),
            resolves,
            serves,
            trust,
            headers,
            is_mirror,
        })
    }
}

impl ClientCertificate {
    fn below(self, folder: &Path) -> Self {
        Self {
            certificate: folder.join(self.certificate),
            key: self.key.map(|key| folder.join(key)),
        }
    }
}

/// Values may be logins: they are marked, so that they are not printed.
fn headers(fields: BTreeMap<String, OneOrMany<String>>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, values) in fields {
        let name: HeaderName = name.parse().ok()?;
        for value in values.into_vec() {
            let mut value: HeaderValue = value.parse().ok()?;
            value.set_sensitive(true);
            headers.append(&name, value);
        }
    }
    Some(headers)
}
