//! With which credentials an entry is pulled: those sealed for it, then the node's own, then those of its
//! credential-provider plugins.
//!
//! Where credentials were asked for and cannot be had, the pull waits or fails: it never goes on without them.

use larder_api::NodeImageSpec;
use larder_api::contract::{self, OrderId};
use larder_api::node_image::{ImageTagSpec, SealedCredential};
use larder_model::{ImageRef, NodeName, Reason};
use larder_planner::node::Entry;
use larder_registry::provider::Providers;
use larder_registry::{Credential, Keyring};
use larder_seal::{Binding, KeyPair, Login, Sealed, open};

use crate::pull::Failure;

/// What an entry may be pulled with.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    /// To be tried in turn; none means anonymously.
    pub(crate) credentials: Vec<Credential>,
    /// A plugin that should have known more, to be told where the registry says no.
    pub(crate) plugin_failure: Option<String>,
}

impl Logins {
    fn add(&mut self, credentials: Vec<Credential>) {
        for credential in credentials {
            if !self.credentials.contains(&credential) {
                self.credentials.push(credential);
            }
        }
    }
}

/// The node's key, its own credentials and its plugins.
#[derive(Default)]
pub struct Credentials {
    key: Option<KeyPair>,
    keyring: Keyring,
    providers: Option<Providers>,
}

impl Credentials {
    /// With this key (none: nothing can be sealed for this node) and these plugins.
    pub fn new(key: Option<KeyPair>, providers: Option<Providers>) -> Self {
        Self {
            key,
            keyring: Keyring::default(),
            providers,
        }
    }

    /// With these credentials of the node itself, as a docker configuration file holds them.
    #[must_use]
    pub fn with_keyring(self, keyring: Keyring) -> Self {
        Self { keyring, ..self }
    }

    /// The credentials of the node itself.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// What the NodeImage shall show, so that others can seal for this node.
    pub(crate) fn public_key(&self) -> Option<String> {
        self.key.as_ref().map(|key| key.public().to_string())
    }

    /// What this entry may be pulled with.
    pub(crate) async fn for_entry(
        &self,
        node: &NodeName,
        order: &OrderId,
        spec: &NodeImageSpec,
        entry: &Entry,
        image: &ImageRef,
    ) -> Result<Logins, Failure> {
        if entry.secrets_named && entry.credentials.is_empty() {
            let words = format!(
                "the entry names pull secrets, and nothing from them has been sealed for this node; they must exist and \
                 hold credentials for {}",
                image.registry()
            );
            return Err(Failure::new(Reason::SecretMissing, words));
        }
        let mut found = Logins::default();
        if let Some(wanted) = tag_of(spec, entry) {
            found.credentials = self.sealed(node, order, spec, wanted, image)?;
        }
        found.add(self.keyring.lookup(image));
        if let Some(providers) = &self.providers {
            let more = providers.lookup(image).await;
            found.add(more.credentials);
            found.plugin_failure = more.failures.first().map(|failure| {
                let cause = std::error::Error::source(failure).map(ToString::to_string);
                format!("{failure}: {}", cause.unwrap_or_default())
            });
        }
        Ok(found)
    }

    fn sealed(
        &self,
        node: &NodeName,
        order: &OrderId,
        spec: &NodeImageSpec,
        wanted: &ImageTagSpec,
        image: &ImageRef,
    ) -> Result<Vec<Credential>, Failure> {
        let unreadable = |words: String| Failure::new(Reason::CredentialsUnreadable, words);
        let sealed = contract::credentials(spec, wanted).map_err(|missing| unreadable(missing.to_string()))?;
        if sealed.is_empty() {
            return Ok(Vec::new());
        }
        let Some(key) = &self.key else {
            return Err(unreadable(
                "this agent has no key; start it with --state-dir".to_owned(),
            ));
        };
        let mut found: Vec<Credential> = Vec::new();
        let mut refused = None;
        for sealed in sealed {
            match open_for_any_claim(key, node, order, wanted, image, sealed) {
                Ok(logins) => found.extend(logins.into_iter().map(credential_of)),
                Err(words) => {
                    tracing::warn!(credential = sealed.id, image = %image, "sealed credentials do not open");
                    refused = Some(words);
                }
            }
        }
        match refused {
            Some(words) if found.is_empty() => Err(unreadable(words)),
            _ => Ok(found),
        }
    }
}

fn tag_of<'a>(spec: &'a NodeImageSpec, entry: &Entry) -> Option<&'a ImageTagSpec> {
    spec.images
        .get(&entry.key.name)?
        .tags
        .iter()
        .find(|tag| tag.tag == entry.key.tag)
}

/// A credential serves one claim, and does not say which: each of the entry's claims is held against it. For an entry
/// that was written by hand the work is done for the NodeImage itself.
fn open_for_any_claim(
    key: &KeyPair,
    node: &NodeName,
    order: &OrderId,
    wanted: &ImageTagSpec,
    image: &ImageRef,
    sealed: &SealedCredential,
) -> Result<Vec<Login>, String> {
    let fingerprint = key.public().fingerprint();
    if sealed.key != fingerprint {
        return Err(format!(
            "the credentials {} were sealed for the key {}, this node has the key {fingerprint}",
            sealed.id, sealed.key
        ));
    }
    let parcel = Sealed {
        id: sealed.id.clone(),
        key: sealed.key.clone(),
        data: sealed.data.clone(),
    };
    let claims = wanted.claims.iter().map(|claim| claim.uid.as_str());
    let owners = wanted.owner_references.iter().filter_map(|owner| owner.uid.as_deref());
    let mut refused = String::new();
    for claim_uid in claims.chain(owners).chain([order.uid.as_str()]) {
        let binding = Binding {
            node,
            node_image_uid: &order.uid,
            image,
            claim_uid,
        };
        match open(key, &binding, &parcel) {
            Ok(logins) => return Ok(logins),
            Err(error) => refused = error.to_string(),
        }
    }
    Err(refused)
}

fn credential_of(login: Login) -> Credential {
    Credential {
        username: login.username,
        password: login.password,
        identity_token: login.identity_token,
    }
}

#[cfg(test)]
mod tests;
