//! The logins that jobs bring, read from their Secrets with the rights of whoever asks. They leave this process only sealed
//! to one node, for one question.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use larder_model::ImageRef;
use larder_planner::prepull::SecretRef;
use larder_registry::docker_config::{DockerConfig, Entry};
use larder_registry::{Credential, Keyring};
use larder_seal::Login;

/// Secrets that are read at once.
const AT_ONCE: usize = 8;

/// What the Secrets gave.
#[derive(Default)]
pub(super) struct Purse {
    held: BTreeMap<SecretRef, Held>,
}

enum Held {
    /// Credentials, and which state of the Secret they come from.
    Entries {
        source: String,
        entries: Vec<Entry>,
    },
    Missing,
    /// It holds no docker configuration.
    Unreadable,
    /// Why it cannot be read.
    Refused(String),
}

/// What one image may be asked for with.
#[derive(Clone, Default)]
pub(super) struct Logins {
    pub(super) all: Vec<Login>,
    /// Which states of which Secrets they come from.
    pub(super) source: String,
    /// The job would bring a login that could not be had here.
    pub(super) incomplete: bool,
}

impl Logins {
    /// The same, for somebody who may not have them.
    pub(super) fn withheld(self) -> Self {
        Self {
            incomplete: self.incomplete || !self.all.is_empty(),
            ..Self::default()
        }
    }
}

impl Purse {
    /// Reads these Secrets, once each. One that cannot be read does not stop the others.
    pub(super) async fn open(client: &Client, names: BTreeSet<SecretRef>) -> Self {
        let read = |name: SecretRef| {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
            async move {
                let held = match secrets.get_opt(&name.name).await {
                    Ok(Some(secret)) => held(&secret),
                    Ok(None) => Held::Missing,
                    Err(kube::Error::Api(status)) => Held::Refused(status.message.clone()),
                    Err(error) => Held::Refused(error.to_string()),
                };
                (name, held)
            }
        };
        Self {
            held: stream::iter(names).map(read).buffer_unordered(AT_ONCE).collect().await,
        }
    }

    /// The credentials in these Secrets that fit an image.
    pub(super) fn for_image(&self, image: &ImageRef, secrets: &BTreeSet<SecretRef>) -> Logins {
        let mut keyring = Keyring::default();
        let mut found = Logins::default();
        let mut sources = Vec::new();
        for secret in secrets {
            match self.held.get(secret) {
                Some(Held::Entries { source, entries }) => {
                    keyring.extend(entries.clone());
                    sources.push(source.as_str());
                }
                Some(Held::Missing | Held::Unreadable | Held::Refused(_)) | None => found.incomplete = true,
            }
        }
        let login = |credential: Credential| Login {
            username: credential.username,
            password: credential.password,
            identity_token: credential.identity_token,
        };
        found.all = keyring.lookup(image).into_iter().map(login).collect();
        found.source = sources.join(",");
        found
    }

    /// A sentence for each Secret that could not be used.
    pub(super) fn complaints(&self) -> Vec<String> {
        let complaint = |(name, held): (&SecretRef, &Held)| match held {
            Held::Entries { .. } => None,
            Held::Missing => Some(format!("The Secret {name} does not exist; the job would wait for it.")),
            Held::Unreadable => Some(format!(
                "The Secret {name} holds no docker configuration; the job would wait until it does."
            )),
            Held::Refused(why) => Some(format!(
                "The nodes were asked without the login of the Secret {name}, which cannot be read: {}.",
                why.trim_end_matches('.')
            )),
        };
        self.held.iter().filter_map(complaint).collect()
    }
}

/// Credentials of a Secret of either docker type.
fn held(secret: &Secret) -> Held {
    let data = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.as_slice());
    match DockerConfig::from_secret(data) {
        None => Held::Unreadable,
        Some(config) => Held::Entries {
            source: format!(
                "{}@{}",
                secret.uid().unwrap_or_default(),
                secret.resource_version().unwrap_or_default()
            ),
            entries: config.entries,
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::commands::plan) fn purse(name: &str, secret: Option<serde_json::Value>) -> Purse {
        let held = match secret {
            None => Held::Missing,
            Some(secret) => held(&serde_json::from_value(secret).unwrap()),
        };
        Purse {
            held: [(SecretRef::parse(name).unwrap(), held)].into(),
        }
    }

    pub(in crate::commands::plan) fn login_for(registry: &str) -> serde_json::Value {
        use k8s_openapi::ByteString;
        let config = json!({ "auths": { registry: { "username": "tiger", "password": "pass" } } }).to_string();
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "uid": "u", "resourceVersion": "7" },
            "data": { ".dockerconfigjson": ByteString(config.into_bytes()) },
        })
    }

    fn names() -> BTreeSet<SecretRef> {
        [SecretRef::parse("default/s").unwrap()].into()
    }

    #[test]
    fn only_what_fits_the_image_is_taken() {
        let purse = purse("default/s", Some(login_for("registry.example")));
        let found = purse.for_image(&ImageRef::parse("registry.example/a:1").unwrap(), &names());
        assert_eq!((found.all.len(), found.source.as_str()), (1, "u@7"));
        assert!(!found.incomplete);
        let withheld = found.withheld();
        assert!(withheld.all.is_empty() && withheld.incomplete);
        let other = purse.for_image(&ImageRef::parse("nginx:1").unwrap(), &names());
        assert!(other.all.is_empty());
        assert!(purse.complaints().is_empty());
    }

    #[test]
    fn what_is_missing_is_said() {
        let purse = purse("default/s", None);
        let found = purse.for_image(&ImageRef::parse("nginx:1").unwrap(), &names());
        assert!(found.incomplete && found.all.is_empty());
        assert_eq!(
            purse.complaints(),
            ["The Secret default/s does not exist; the job would wait for it."]
        );
    }
}
