//! The fields of one `hosts.toml`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Endpoint, HostsError, Trust, address, authority};

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
    ca: Option<OneOrMany>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    client: Option<toml::Value>,
    header: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(PathBuf),
    Many(Vec<PathBuf>),
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
        let unsupported = [("client", self.client.is_some()), ("header", self.header.is_some())];
        if let Some((field, _)) = unsupported.into_iter().find(|(_, present)| *present) {
            return Err(HostsError::Unsupported {
                path: file.display().to_string(),
                field,
            });
        }
        let base = address(host, self.override_path)?;
        let can = |word: &str| {
            self.capabilities
                .as_ref()
                .is_none_or(|words| words.is_empty() || words.iter().any(|known| known == word))
        };
        let (resolves, serves) = (can("resolve"), can("pull"));
        let ca = match self.ca {
            None => Vec::new(),
            Some(OneOrMany::One(path)) => vec![path],
            Some(OneOrMany::Many(paths)) => paths,
        };
        let here = file.parent().unwrap_or(Path::new(""));
        let trust = Trust {
            ca: ca.into_iter().map(|path| here.join(path)).collect(),
            skip_verify: self.skip_verify,
        };
        Ok(Endpoint {
            base,
            authority: authority(host).to_owned(),
            resolves,
            serves,
            trust,
            is_mirror,
        })
    }
}
