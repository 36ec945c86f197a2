//! The logins of a plan's jobs, read from their Secrets with the rights of the kubeconfig's user. They leave this process only
//! sealed to one node, for one question.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use larder_model::ImageRef;
use larder_planner::SecretRef;
use larder_registry::docker_config::{DockerConfig, Entry};
use larder_registry::{Credential, Keyring};
use larder_seal::Login;

/// Secrets that are read at once.
const AT_ONCE: usize = 8;

/// The Secrets that were read.
#[derive(Default)]
pub(super) struct PullSecrets {
    states: BTreeMap<SecretRef, SecretState>,
}

enum SecretState {
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
    /// The same without the logins, for a node that may not have them.
    pub(super) fn withheld(self) -> Self {
        Self {
            incomplete: self.incomplete || !self.all.is_empty(),
            ..Self::default()
        }
    }
}

impl PullSecrets {
    /// Reads these Secrets, once each. One that cannot be read does not stop the others.
    pub(super) async fn read(client: &Client, names: BTreeSet<SecretRef>) -> Self {
        let read = |name: SecretRef| {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
            async move {
                let state = match secrets.get_opt(&name.name).await {
                    Ok(Some(secret)) => state_of(&secret),
                    Ok(None) => SecretState::Missing,
                    Err(kube::Error::Api(status)) => SecretState::Refused(status.message.clone()),
                    Err(error) => SecretState::Refused(error.to_string()),
                };
                (name, state)
            }
        };
        Self {
            states: stream::iter(names).map(read).buffer_unordered(AT_ONCE).collect().await,
        }
    }

    /// The credentials in these Secrets that fit an image.
    pub(super) fn for_image(&self, image: &ImageRef, secrets: &BTreeSet<SecretRef>) -> Logins {
        let mut keyring = Keyring::default();
        let mut found = Logins::default();
        let mut sources = Vec::new();
        for secret in secrets {
            match self.states.get(secret) {
                Some(SecretState::Entries { source, entries }) => {
                    keyring.extend(entries.clone());
                    sources.push(source.as_str());
                }
                Some(SecretState::Missing | SecretState::Unreadable | SecretState::Refused(_)) | None => {
                    found.incomplete = true;
                }
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
    pub(super) fn problems(&self) -> Vec<String> {
        let problem = |(name, state): (&SecretRef, &SecretState)| match state {
            SecretState::Entries { .. } => None,
            SecretState::Missing => Some(format!("The Secret {name} does not exist; the job would wait for it.")),
            SecretState::Unreadable => Some(format!(
                "The Secret {name} holds no docker configuration; the job would wait until it does."
            )),
            SecretState::Refused(why) => Some(format!(
                "The nodes were asked without the login of the Secret {name}, which cannot be read: {}.",
                why.trim_end_matches('.')
            )),
        };
        self.states.iter().filter_map(problem).collect()
    }
}

/// Credentials of a Secret of either docker type.
fn state_of(secret: &Secret) -> SecretState {
    let data = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.as_slice());
    match DockerConfig::from_secret(data) {
        None => SecretState::Unreadable,
        Some(config) => SecretState::Entries {
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

    pub(in crate::commands::plan) fn pull_secrets(name: &str, secret: Option<serde_json::Value>) -> PullSecrets {
        let state = match secret {
            None => SecretState::Missing,
            Some(secret) => state_of(&serde_json::from_value(secret).unwrap()),
        };
        PullSecrets {
            states: [(SecretRef::parse(name).unwrap(), state)].into(),
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
        let pull_secrets = pull_secrets("default/s", Some(login_for("registry.example")));
        let found = pull_secrets.for_image(&ImageRef::parse("registry.example/a:1").unwrap(), &names());
        assert_eq!((found.all.len(), found.source.as_str()), (1, "u@7"));
        assert!(!found.incomplete);
        let withheld = found.withheld();
        assert!(withheld.all.is_empty() && withheld.incomplete);
        let other = pull_secrets.for_image(&ImageRef::parse("nginx:1").unwrap(), &names());
        assert!(other.all.is_empty());
        assert!(pull_secrets.problems().is_empty());
    }

    #[test]
    fn what_is_missing_is_said() {
        let pull_secrets = pull_secrets("default/s", None);
        let found = pull_secrets.for_image(&ImageRef::parse("nginx:1").unwrap(), &names());
        assert!(found.incomplete && found.all.is_empty());
        assert_eq!(
            pull_secrets.problems(),
            ["The Secret default/s does not exist; the job would wait for it."]
        );
    }
}
