//! Credentials in a NodeImage: what the owners of an entry may use, sealed to the node, once per claim.

use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::NodeImage;
use larder_api::names::EDGE_NODE_LABEL;
use larder_api::node_image::{ImageSpec, ImageTagSpec, NodeImageSpec, SealedCredential};
use larder_model::{ImageRef, NodeName};
use larder_planner::NodeKey;
use larder_planner::prepull::SecretRef;
use larder_registry::docker_config::Entry;
use larder_registry::{Credential, Keyring};
use larder_seal::{Binding, Login, PublicKey, seal, sealed_id};
use tracing::warn;

use super::jobs::{JobRecord, JobState};
use super::objects::JobObject;
use super::secrets::{SecretKey, is_for_hand_written};
use super::{Index, JobId};

/// Everything that sealing to one node needs.
struct Envelope {
    node: NodeName,
    uid: String,
    key: PublicKey,
}

/// Credentials for one use of one image.
struct Parcel {
    claim_uid: String,
    source: String,
    logins: Vec<Login>,
}

/// Some owner's Secrets are not known at the moment: the entry keeps what it has.
struct NotKnown;

impl Index {
    /// Gives every entry the credentials that its owners may use, and forgets the others.
    pub(super) fn put_credentials(&self, node: &NodeKey, object: &NodeImage, spec: &mut NodeImageSpec) {
        let needless = spec.sealed_credentials.is_empty()
            && spec.images.values().all(|image| image.pull_secrets.is_empty())
            && self.jobs.values().all(|job| !names_secrets(job));
        if needless {
            return;
        }
        let Some(envelope) = self.envelope(node, object) else {
            return;
        };
        let mut sealed = Vec::new();
        for (name, image) in &mut spec.images {
            let secrets = hand_written_secrets(image);
            for entry in &mut image.tags {
                let Ok(reference) = ImageRef::from_parts(name, &entry.tag) else {
                    continue;
                };
                let Ok(parcels) = self.parcels(entry, &reference, &secrets, (node, &envelope.uid)) else {
                    continue;
                };
                // Whoever asks a question brings the login for it, and takes it away again.
                let is_question = entry.dry_run && entry.owner_references.is_empty();
                // What an ended job used goes when the entry goes: taking it away earlier would cost a write.
                if !is_question && entry.owner_references.iter().all(|owner| self.is_running_owner(owner)) {
                    entry.credentials.clear();
                }
                for parcel in parcels {
                    let id = envelope.id(&reference, &parcel);
                    let known = object
                        .spec
                        .sealed_credentials
                        .iter()
                        .find(|known| known.id == id)
                        .cloned();
                    let Some(one) = known.or_else(|| envelope.seal(&reference, &parcel)) else {
                        continue;
                    };
                    if !entry.credentials.contains(&id) {
                        entry.credentials.push(id);
                    }
                    sealed.push(one);
                }
            }
        }
        let kept = spec.sealed_credentials.iter().filter(|known| {
            let mut entries = spec.images.values().flat_map(|image| &image.tags);
            !sealed.iter().any(|one| one.id == known.id) && entries.any(|entry| entry.credentials.contains(&known.id))
        });
        let mut all: Vec<SealedCredential> = kept.cloned().collect();
        all.extend(sealed);
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.dedup_by(|one, other| one.id == other.id);
        if all != spec.sealed_credentials {
            spec.sealed_credentials = all;
        }
    }

    /// What an entry's owners may use.
    fn parcels(
        &self,
        entry: &ImageTagSpec,
        image: &ImageRef,
        hand_written: &[SecretKey],
        (node, node_image_uid): (&NodeKey, &str),
    ) -> Result<Vec<Parcel>, NotKnown> {
        if entry.owner_references.is_empty() {
            let parcel = self.parcel(hand_written, image, node_image_uid.to_owned())?;
            return Ok(parcel.into_iter().collect());
        }
        let mut parcels = Vec::new();
        for reference in &entry.owner_references {
            let uid = reference.uid.clone().unwrap_or_default();
            let job = self.job_uids.get(&uid).copied();
            let keys = job.map(|job| self.secrets_for(job, node, image)).unwrap_or_default();
            parcels.extend(self.parcel(&keys, image, uid)?);
        }
        Ok(parcels)
    }

    fn is_running_owner(&self, owner: &ObjectReference) -> bool {
        let job = owner.uid.as_ref().and_then(|uid| self.job_uids.get(uid));
        job.is_some_and(|job| self.running(*job).is_some())
    }

    fn parcel(&self, keys: &[SecretKey], image: &ImageRef, claim_uid: String) -> Result<Option<Parcel>, NotKnown> {
        if keys.is_empty() {
            return Ok(None);
        }
        let (source, entries) = self.secrets.credentials(keys).ok_or(NotKnown)?;
        let logins = fitting(entries, image);
        Ok((!logins.is_empty()).then_some(Parcel {
            claim_uid,
            source,
            logins,
        }))
    }

    /// Whether a node that was denied would now be given other credentials than it had.
    pub(super) fn has_newer_credentials(&self, job: JobId, node: &NodeKey, object: &NodeImage) -> bool {
        let Some(running) = self.running(job) else {
            return false;
        };
        let Some(envelope) = self.envelope(node, object) else {
            return false;
        };
        let campaign = running.progress.campaign();
        let is_newer = |image: &ImageRef| {
            let keys = self.secrets_for(job, node, image);
            let parcel = self.parcel(&keys, image, campaign.uid().to_owned()).ok().flatten();
            let entry = object.entry(image.name(), &image.tag_text());
            let (Some(parcel), Some(entry)) = (parcel, entry) else {
                return false;
            };
            !entry.credentials.contains(&envelope.id(image, &parcel))
        };
        match running.work.as_ref().map(|work| work.tasks.get(node)) {
            None => is_newer(&campaign.image),
            Some(task) => task.is_some_and(|task| task.references().into_iter().any(is_newer)),
        }
    }

    fn envelope(&self, node: &NodeKey, object: &NodeImage) -> Option<Envelope> {
        self.may_seal_for(object).then(|| Envelope::of(node, object)).flatten()
    }

    /// Whether a node may be sent credentials. A key is worth nothing where somebody else may have published it.
    pub(super) fn may_seal_for(&self, object: &NodeImage) -> bool {
        let labels = object.metadata.labels.as_ref();
        !(self.accepts_cloudcore && labels.is_some_and(|labels| labels.contains_key(EDGE_NODE_LABEL)))
    }

    /// The Secrets that a job's image may be pulled with on a node.
    pub(super) fn secrets_for(&self, job: JobId, node: &NodeKey, image: &ImageRef) -> Vec<SecretKey> {
        let Some(work) = self.running(job).and_then(|running| running.work.as_ref()) else {
            return self.secrets_of(job);
        };
        let key = |secret: &SecretRef| SecretKey {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
        };
        let task = work.tasks.get(node);
        let secrets = task.map(|task| task.secrets_for(image)).unwrap_or_default();
        secrets.into_iter().map(key).collect()
    }

    /// Secrets that hand-written entries of a node name.
    pub(super) fn hand_written_secrets_of(&self, node: &NodeKey) -> Vec<SecretKey> {
        let image = self.nodes.get(node).and_then(|record| record.image.as_ref());
        let images = image.into_iter().flat_map(|image| image.spec.images.values());
        images
            .filter(|image| image.tags.iter().any(|entry| entry.owner_references.is_empty()))
            .flat_map(hand_written_secrets)
            .collect()
    }
}

impl Envelope {
    /// None while the node has published no key that can be used.
    fn of(node: &NodeKey, object: &NodeImage) -> Option<Self> {
        let key = object.status.as_ref()?.agent.as_ref()?.public_key.as_deref()?;
        Some(Self {
            node: NodeName::parse(node).ok()?,
            uid: object.metadata.uid.clone()?,
            key: PublicKey::parse(key).ok()?,
        })
    }

    fn binding<'a>(&'a self, image: &'a ImageRef, parcel: &'a Parcel) -> Binding<'a> {
        Binding {
            node: &self.node,
            node_image_uid: &self.uid,
            image,
            claim_uid: &parcel.claim_uid,
        }
    }

    fn id(&self, image: &ImageRef, parcel: &Parcel) -> String {
        sealed_id(&self.key, &self.binding(image, parcel), &parcel.source)
    }

    fn seal(&self, image: &ImageRef, parcel: &Parcel) -> Option<SealedCredential> {
        match seal(&self.key, &self.binding(image, parcel), &parcel.source, &parcel.logins) {
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

/// Whether a job names Secrets.
fn names_secrets(job: &JobRecord) -> bool {
    match (&job.object, &job.state) {
        (JobObject::Pull(job), _) => !job.spec.template.pull_secrets.is_empty(),
        (JobObject::PrePull(_), JobState::Running(running)) => !running.progress.campaign().secrets.is_empty(),
        (JobObject::PrePull(_), JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle) => false,
    }
}

/// The Secrets that a hand-written entry names, as far as it may.
fn hand_written_secrets(image: &ImageSpec) -> Vec<SecretKey> {
    let key = |reference: &larder_api::node_image::PullSecretReference| {
        Some(SecretKey {
            namespace: reference
                .namespace
                .clone()
                .filter(|namespace| is_for_hand_written(namespace))?,
            name: reference.name.clone()?,
        })
    };
    image.pull_secrets.iter().filter_map(key).collect()
}

/// The credentials that fit an image, best first.
pub(super) fn fitting(entries: Vec<Entry>, image: &ImageRef) -> Vec<Login> {
    let mut keyring = Keyring::default();
    keyring.extend(entries);
    let login = |credential: Credential| Login {
        username: credential.username,
        password: credential.password,
        identity_token: credential.identity_token,
    };
    keyring.lookup(image).into_iter().map(login).collect()
}
