//! Credentials in a NodeImage: what the owners of an entry may use, sealed to the node, once per claim.

use std::collections::{BTreeMap, BTreeSet};

use larder_api::NodeImage;
use larder_api::node_image::{ImageSpec, NodeImageSpec, PullSecretReference, SealedCredential};
use larder_model::{ImageRef, NodeName};
use larder_planner::node_spec::{Credentials, EntryKey, Order};
use larder_planner::progress::NoLogin;
use larder_planner::secret::SecretNamespaces;
use larder_planner::task::Tasks;
use larder_planner::{NodeKey, SecretRef};
use larder_registry::docker_config::Entry;
use larder_registry::{Credential, Keyring};
use larder_seal::{Binding, Login, PublicKey, seal, sealed_id};
use tracing::warn;

use super::JobId;
use super::jobs::Jobs;
use super::pull_secrets::is_for_hand_written;
use super::secrets::Secrets;

/// What a sealed credential takes beside its logins: id, fingerprint, nonce, field names.
const SEALED_BYTES: usize = 512;

/// Everything that sealing to one node needs.
pub(super) struct SealTarget {
    node: NodeName,
    uid: String,
    key: PublicKey,
}

/// Credentials for one use of one image.
struct LoginSet {
    claim_uid: String,
    source: String,
    logins: Vec<Login>,
}

/// Some owner's Secrets are not known at the moment.
struct NotKnown;

/// What jobs and hand-written entries may pull with.
#[derive(Clone, Copy)]
pub(super) struct Logins<'a> {
    pub(super) jobs: &'a Jobs,
    pub(super) secrets: &'a Secrets,
    /// Secrets that jobs without a namespace may use.
    pub(super) cluster_job_secrets: &'a SecretNamespaces,
}

impl<'a> Logins<'a> {
    /// Which sealed credentials each entry of a node may refer to: those that are there, and those that orders add.
    pub(super) fn credential_ids(
        self,
        node: &NodeKey,
        object: &NodeImage,
        target: &SealTarget,
        orders: &[(&str, &Order)],
    ) -> BTreeMap<EntryKey, Credentials> {
        let uses = self.uses_of(node, object, orders);
        let ids = |((name, tag), owners): (EntryKey, BTreeSet<String>)| {
            let image = ImageRef::from_parts(&name, &tag).ok()?;
            let credentials = match self.login_sets(node, object, target, &image, &owners) {
                Ok(sets) => {
                    let id = |set: &LoginSet| (target.id(&image, set), set.sealed_bytes());
                    Credentials::Ids(sets.iter().map(id).collect())
                }
                Err(NotKnown) => Credentials::NotKnown,
            };
            Some(((name, tag), credentials))
        };
        uses.into_iter().filter_map(ids).collect()
    }

    /// The owners of each entry, with those that orders add. An entry without owners is hand-written.
    fn uses_of(
        self,
        node: &NodeKey,
        object: &NodeImage,
        orders: &[(&str, &Order)],
    ) -> BTreeMap<EntryKey, BTreeSet<String>> {
        let mut uses: BTreeMap<EntryKey, BTreeSet<String>> = BTreeMap::new();
        for (name, image) in &object.spec.images {
            for entry in &image.tags {
                let owners = entry.owner_references.iter().filter_map(|owner| owner.uid.clone());
                uses.insert((name.clone(), entry.tag.clone()), owners.collect());
            }
        }
        for (uid, order) in orders {
            let running = self.jobs.id_of_uid(uid).and_then(|job| self.jobs.running(job));
            let task = running.and_then(|running| running.progress.campaign().tasks.of(node));
            let Some(task) = task.filter(|_| matches!(order, Order::Claim { .. })) else {
                continue;
            };
            for image in task.references() {
                let key = (image.name().to_owned(), image.tag_text());
                uses.entry(key).or_default().insert((*uid).to_owned());
            }
        }
        uses
    }

    /// What the owners of an entry may use.
    fn login_sets(
        self,
        node: &NodeKey,
        object: &NodeImage,
        target: &SealTarget,
        image: &ImageRef,
        owners: &BTreeSet<String>,
    ) -> Result<Vec<LoginSet>, NotKnown> {
        if owners.is_empty() {
            let spec = object.spec.images.get(image.name());
            let secrets = spec.map(hand_written_secrets).unwrap_or_default();
            return Ok(self
                .login_set(&secrets, image, target.uid.clone())?
                .into_iter()
                .collect());
        }
        let mut sets = Vec::new();
        for uid in owners {
            let job = self.jobs.id_of_uid(uid);
            let secrets = job
                .map(|job| self.secrets_for(job, node, image))
                .transpose()?
                .unwrap_or_default();
            sets.extend(self.login_set(&secrets, image, uid.clone())?);
        }
        Ok(sets)
    }

    fn login_set(
        self,
        secrets: &[SecretRef],
        image: &ImageRef,
        claim_uid: String,
    ) -> Result<Option<LoginSet>, NotKnown> {
        if secrets.is_empty() {
            return Ok(None);
        }
        let (source, entries) = self.secrets.credentials(secrets).ok_or(NotKnown)?;
        let logins = fitting(entries, image);
        Ok((!logins.is_empty()).then_some(LoginSet {
            claim_uid,
            source,
            logins,
        }))
    }

    /// Adds the sealed data of credentials that entries refer to and that are not in the spec yet.
    pub(super) fn add_sealed_credentials(
        self,
        node: &NodeKey,
        object: &NodeImage,
        target: &SealTarget,
        spec: &mut NodeImageSpec,
    ) {
        let known: BTreeSet<&str> = spec
            .sealed_credentials
            .iter()
            .map(|sealed| sealed.id.as_str())
            .collect();
        let mut added: Vec<SealedCredential> = Vec::new();
        for (name, image) in &spec.images {
            for entry in &image.tags {
                let mut missing = entry
                    .credentials
                    .iter()
                    .filter(|id| !known.contains(id.as_str()))
                    .peekable();
                let (Some(_), Ok(reference)) = (missing.peek(), ImageRef::from_parts(name, &entry.tag)) else {
                    continue;
                };
                let owners = entry.owner_references.iter().filter_map(|owner| owner.uid.clone());
                let sets = self.login_sets(node, object, target, &reference, &owners.collect());
                let sealed = sets
                    .into_iter()
                    .flatten()
                    .filter_map(|set| target.seal(&reference, &set));
                added.extend(sealed.filter(|sealed| missing.clone().any(|id| *id == sealed.id)));
            }
        }
        if added.is_empty() {
            return;
        }
        spec.sealed_credentials.extend(added);
        spec.sealed_credentials.sort_by(|one, other| one.id.cmp(&other.id));
        spec.sealed_credentials.dedup_by(|one, other| one.id == other.id);
    }

    /// Whether a node that was denied would now be given other credentials than it had.
    pub(super) fn are_newer(self, job: JobId, node: &NodeKey, object: &NodeImage, target: &SealTarget) -> bool {
        let Some(running) = self.jobs.running(job) else {
            return false;
        };
        let campaign = running.progress.campaign();
        let is_newer = |image: &ImageRef| {
            let secrets = self.secrets_for(job, node, image);
            let set = secrets.and_then(|secrets| self.login_set(&secrets, image, campaign.uid().to_owned()));
            let set = set.ok().flatten();
            let entry = object.entry(image.name(), &image.tag_text());
            set.zip(entry)
                .is_some_and(|(set, entry)| !entry.credentials.contains(&target.id(image, &set)))
        };
        let task = campaign.tasks.of(node);
        task.is_some_and(|task| task.references().into_iter().any(is_newer))
    }

    /// The Secrets that a job's image may be pulled with on a node. Those that the job may not use are as good as unknown.
    fn secrets_for(self, job: JobId, node: &NodeKey, image: &ImageRef) -> Result<Vec<SecretRef>, NotKnown> {
        let running = self.jobs.running(job);
        let task = running.and_then(|running| running.progress.campaign().tasks.of(node));
        let secrets = task.map(|task| task.secrets_for(image)).unwrap_or_default();
        if secrets.iter().all(|secret| self.may_use(job, secret)) {
            Ok(secrets)
        } else {
            Err(NotKnown)
        }
    }

    /// Whether a job may use a Secret: one of its own namespace, or if it has none, one that the settings allow.
    pub(super) fn may_use(self, job: JobId, secret: &SecretRef) -> bool {
        let namespace = self.jobs.get(job).map(|record| record.key.namespace.as_str());
        match namespace {
            None | Some("") => self.cluster_job_secrets.allow(secret),
            Some(namespace) => namespace == secret.namespace,
        }
    }

    /// The registries for which a job's Secrets hold no login.
    pub(super) fn missing(self, job: JobId) -> BTreeSet<NoLogin> {
        let tasks = self.jobs.running(job).map(|running| &running.progress.campaign().tasks);
        // Most nodes have the same task.
        let mut uses: BTreeSet<(&'a ImageRef, Vec<SecretRef>)> = BTreeSet::new();
        for task in tasks.into_iter().flat_map(Tasks::iter) {
            let images = task.references().into_iter();
            uses.extend(images.map(|image| (image, task.secrets_for(image))));
        }
        // A Secret that the job may not use may be known all the same, because another job uses it.
        let useless = |(image, secrets): &(&ImageRef, Vec<SecretRef>)| {
            !secrets.is_empty()
                && secrets.iter().all(|secret| self.may_use(job, secret))
                && self.holds_no_login(image, secrets)
        };
        let missing = uses.into_iter().filter(useless).map(|(image, secrets)| NoLogin {
            registry: image.registry().to_owned(),
            secrets: secrets.iter().map(ToString::to_string).collect(),
        });
        missing.collect()
    }

    /// Whether these Secrets are known, and hold no login that fits an image.
    fn holds_no_login(self, image: &ImageRef, secrets: &[SecretRef]) -> bool {
        let known = self.secrets.credentials(secrets);
        known.is_some_and(|(_, entries)| fitting(entries, image).is_empty())
    }
}

impl LoginSet {
    /// About how many bytes of a NodeImage the set takes, once it is sealed.
    fn sealed_bytes(&self) -> usize {
        // The sealed bytes stand there in base64.
        SEALED_BYTES + self.logins.iter().map(Login::bytes).sum::<usize>() * 4 / 3
    }
}

impl SealTarget {
    pub(super) fn of(node: &NodeKey, object: &NodeImage) -> Option<Self> {
        let key = object.status.as_ref()?.agent.as_ref()?.public_key.as_deref()?;
        Some(Self {
            node: NodeName::parse(node).ok()?,
            uid: object.metadata.uid.clone()?,
            key: PublicKey::parse(key).ok()?,
        })
    }

    fn binding<'a>(&'a self, image: &'a ImageRef, set: &'a LoginSet) -> Binding<'a> {
        Binding {
            node: &self.node,
            node_image_uid: &self.uid,
            image,
            claim_uid: &set.claim_uid,
        }
    }

    fn id(&self, image: &ImageRef, set: &LoginSet) -> String {
        sealed_id(&self.key, &self.binding(image, set), &set.source)
    }

    fn seal(&self, image: &ImageRef, set: &LoginSet) -> Option<SealedCredential> {
        match seal(&self.key, &self.binding(image, set), &set.source, &set.logins) {
            Ok(sealed) => Some(SealedCredential {
                id: sealed.id,
                key: sealed.key,
                data: sealed.data,
            }),
            Err(error) => {
                warn!(node = %self.node, image = %image, error = %error, "credentials could not be sealed");
                None
            }
        }
    }
}

/// The Secrets that a hand-written entry names, as far as it may.
pub(super) fn hand_written_secrets(image: &ImageSpec) -> Vec<SecretRef> {
    let secret = |reference: &PullSecretReference| {
        let namespace = reference.namespace.clone();
        Some(SecretRef {
            namespace: namespace.filter(|namespace| is_for_hand_written(namespace))?,
            name: reference.name.clone()?,
        })
    };
    image.pull_secrets.iter().filter_map(secret).collect()
}

/// The credentials that fit an image, best first.
fn fitting(entries: Vec<Entry>, image: &ImageRef) -> Vec<Login> {
    let mut keyring = Keyring::default();
    keyring.extend(entries);
    let login = |credential: Credential| Login {
        username: credential.username,
        password: credential.password,
        identity_token: credential.identity_token,
    };
    keyring.lookup(image).into_iter().map(login).collect()
}
