//! Who occupies a NodeImage, and who may occupy more of it.
//!
//! A NodeImage has room for a number of bytes and of image names. The entries of one job may take up to
//! [twice](JOB_SHARE) what is left free after them, those of all jobs of one namespace up to
//! [three times](NAMESPACE_SHARE) that. These are the dynamic thresholds by which switches share their buffers: a namespace
//! that is alone takes three quarters, and whatever it does, the next one finds a quarter and can take three quarters of
//! that. Nobody is assigned a fixed part, so nothing lies idle for namespaces that do not exist.
//!
//! Jobs without a namespace count as one namespace. Entries that no job owns count against the whole alone: whoever may
//! write them may write anything on that node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::NodeImage;
use larder_api::contract::{IMAGE_NAMES_MAX, NODE_IMAGE_BYTES_MAX, json_bytes};
use larder_api::node_image::{ImageSpec, ImageTagSpec};
use larder_api::template::SandboxConfig;
use larder_model::{ByteSize, ImageRef};

use crate::campaign::Campaign;
use crate::task::NodeTask;

/// A job may occupy this many times what is free after it: at most two thirds of a NodeImage.
pub const JOB_SHARE: usize = 2;

/// The jobs of a namespace may occupy this many times what is free after them: at most three quarters of a NodeImage.
pub const NAMESPACE_SHARE: usize = 3;

/// Room that a new entry with its result may take. Most take 1.2 KB; the longest names and messages, 3 KB.
const ENTRY_BYTES: usize = 2_560;

/// Room that one more owner of an entry takes.
const CLAIM_BYTES: usize = 512;

/// A part of a NodeImage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of JSON.
    pub bytes: usize,
    /// Image names.
    pub names: usize,
}

/// How much of a NodeImage is occupied, and by the jobs of which namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    total: Space,
    namespaces: BTreeMap<String, Space>,
}

/// There is no room for a job's entries in a NodeImage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// What is occupied.
    used: Space,
    /// What the job needs beyond that.
    needed: Space,
    /// Who occupies most of it, and how much; None if no job does.
    largest: Option<(String, Space)>,
    /// The namespace that occupies most is the job's own.
    is_own: bool,
}

/// What a claim needs beyond what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Of the NodeImage.
    total: Space,
    /// In the account of the job's namespace.
    namespace: Space,
    /// What the job occupies already.
    job: Space,
}

impl Occupancy {
    /// Counts a NodeImage that takes so many bytes as JSON. An entry counts for the namespaces of its owners in equal parts
    /// per owner, and the sandbox config of an image name for the owner who brought it.
    pub fn of(object: &NodeImage, bytes: usize) -> Self {
        let mut namespaces: BTreeMap<String, Space> = BTreeMap::new();
        let mut add = |namespace: &str, space: Space| match namespaces.get_mut(namespace) {
            Some(known) => known.add(space),
            None => drop(namespaces.insert(namespace.to_owned(), space)),
        };
        for (name, image) in &object.spec.images {
            let mut owners: BTreeSet<&str> = BTreeSet::new();
            for entry in &image.tags {
                let part = entry_part(object, name, entry);
                for owner in &entry.owner_references {
                    owners.insert(namespace_of(owner));
                    add(namespace_of(owner), Space { bytes: part, names: 0 });
                }
            }
            for namespace in owners {
                add(namespace, Space { bytes: 0, names: 1 });
            }
            if let Some(owner) = sandbox_owner(image) {
                let bytes = sandbox_bytes(image.sandbox_config.as_ref());
                add(namespace_of(owner), Space { bytes, names: 0 });
            }
        }
        Self {
            total: Space {
                bytes,
                names: object.spec.images.len(),
            },
            namespaces,
        }
    }

    /// Whether a NodeImage of so many bytes is so large that a job or a namespace could reach its limit.
    pub fn is_crowded(object: &NodeImage, bytes: usize) -> bool {
        NODE_IMAGE_BYTES_MAX / 2 < bytes || IMAGE_NAMES_MAX / 2 < object.spec.images.len()
    }

    /// Whether the demand of a job in a namespace can be met.
    fn admits(&self, namespace: &str, demand: &Demand) -> Result<(), NoRoom> {
        let mut after = self.total;
        after.add(demand.total);
        let mut own = self.namespaces.get(namespace).copied().unwrap_or_default();
        own.add(demand.namespace);
        let mut job = demand.job;
        job.add(demand.namespace);
        let fits = |max: usize, of: fn(&Space) -> usize| {
            let least = of(&Space::LEAST);
            let within = |used: usize, free: usize, share: usize| used <= free.saturating_mul(share).max(least);
            // What does not grow is not judged: it was admitted before.
            of(&demand.total) == 0 && of(&demand.namespace) == 0
                || max
                    .checked_sub(of(&after))
                    .is_some_and(|free| within(of(&own), free, NAMESPACE_SHARE) && within(of(&job), free, JOB_SHARE))
        };
        if fits(NODE_IMAGE_BYTES_MAX, |space| space.bytes) && fits(IMAGE_NAMES_MAX, |space| space.names) {
            return Ok(());
        }
        let largest = self
            .namespaces
            .iter()
            .max_by_key(|(_, space)| (space.bytes, space.names));
        Err(NoRoom {
            used: self.total,
            needed: demand.total,
            is_own: largest.is_some_and(|(largest, _)| largest == namespace),
            largest: largest.map(|(namespace, space)| (namespace.clone(), *space)),
        })
    }

    fn add_all(&mut self, other: &Self) {
        self.total.add(other.total);
        for (namespace, space) in &other.namespaces {
            self.namespaces.entry(namespace.clone()).or_default().add(*space);
        }
    }

    /// Takes in that a demand is met.
    fn add(&mut self, namespace: &str, demand: &Demand) {
        self.total.add(demand.total);
        self.namespaces
            .entry(namespace.to_owned())
            .or_default()
            .add(demand.namespace);
    }
}

/// The room in a NodeImage, as claims take it one after another.
pub(crate) struct Room<'a> {
    object: &'a NodeImage,
    bytes: usize,
    /// Who occupies the NodeImage; counted when the first claim needs to know.
    counted: Option<Occupancy>,
    /// What was taken since.
    taken: Occupancy,
}

impl<'a> Room<'a> {
    /// The room in a NodeImage that takes so many bytes as JSON. Who occupies it is counted where it is not known and
    /// matters.
    pub(crate) fn of(object: &'a NodeImage, bytes: usize, known: Option<&Occupancy>) -> Self {
        Self {
            object,
            bytes,
            counted: known.cloned(),
            taken: Occupancy::default(),
        }
    }

    /// Takes what the demand of a job in a namespace needs, or says why that cannot be.
    pub(crate) fn take(&mut self, namespace: &str, demand: &Demand) -> Result<(), NoRoom> {
        let mut after = Space {
            bytes: self.bytes,
            names: self.object.spec.images.len(),
        };
        after.add(self.taken.total);
        after.add(demand.total);
        // Where half is free nobody can be above a limit.
        if NODE_IMAGE_BYTES_MAX < 2 * after.bytes || IMAGE_NAMES_MAX < 2 * after.names {
            let (object, bytes) = (self.object, self.bytes);
            let mut occupancy = self.counted.get_or_insert_with(|| Occupancy::of(object, bytes)).clone();
            occupancy.add_all(&self.taken);
            occupancy.admits(namespace, demand)?;
        }
        self.taken.add(namespace, demand);
        Ok(())
    }
}

/// Whether a NodeImage that takes so many bytes has room for a campaign's task. Who occupies it is counted where it is not
/// known and matters.
pub fn claim_fits(
    object: &NodeImage,
    bytes: usize,
    known: Option<&Occupancy>,
    campaign: &Campaign,
    task: &NodeTask,
) -> Result<(), NoRoom> {
    let demand = Demand::of_claim(object, campaign, task);
    Room::of(object, bytes, known).take(namespace_of(&campaign.owner), &demand)
}

impl Demand {
    /// What the claims of a campaign's task need: of images that it does not have yet, and for its sandbox config.
    pub(crate) fn of_claim(object: &NodeImage, campaign: &Campaign, task: &NodeTask) -> Self {
        let (namespace, uid) = (namespace_of(&campaign.owner), campaign.uid());
        let mut demand = Self::default();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for reference in task.references() {
            let entry = object.entry(reference.name(), &reference.tag_text());
            let bytes = match entry {
                None => ENTRY_BYTES,
                Some(entry) if entry.claim_version(uid).is_some() => {
                    demand.job.bytes += entry_part(object, reference.name(), entry);
                    0
                }
                Some(_) => CLAIM_BYTES,
            };
            demand.total.bytes += bytes;
            demand.namespace.bytes += bytes;
            names.insert(ImageRef::name(reference));
        }
        for name in names {
            let image = object.spec.images.get(name);
            let of = |is: &dyn Fn(&ObjectReference) -> bool| {
                let entries = image.into_iter().flat_map(|image| &image.tags);
                usize::from(entries.flat_map(|entry| &entry.owner_references).any(is))
            };
            demand.total.names += usize::from(image.is_none());
            demand.namespace.names += 1 - of(&|owner| namespace_of(owner) == namespace);
            demand.job.names += of(&|owner| owner.uid.as_deref() == Some(uid));
            demand.add_sandbox(image, campaign.rules.sandbox.as_ref(), &campaign.owner);
        }
        demand
    }

    /// Adds bytes of something else.
    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.total.bytes += bytes;
        self.namespace.bytes += bytes;
    }

    /// What another sandbox config for an image name needs.
    pub(crate) fn of_sandbox(
        image: Option<&ImageSpec>,
        wanted: Option<&SandboxConfig>,
        owner: &ObjectReference,
    ) -> Self {
        let mut demand = Self::default();
        demand.add_sandbox(image, wanted, owner);
        demand
    }

    fn add_sandbox(&mut self, image: Option<&ImageSpec>, wanted: Option<&SandboxConfig>, owner: &ObjectReference) {
        let known = image.and_then(|image| image.sandbox_config.as_ref());
        let brought_by = image.and_then(sandbox_owner);
        let of_job = brought_by.is_some_and(|known| known.uid == owner.uid);
        let of_namespace = brought_by.is_some_and(|known| namespace_of(known) == namespace_of(owner));
        let (now, wanted) = (sandbox_bytes(known), sandbox_bytes(wanted));
        self.total.bytes += wanted.saturating_sub(now);
        self.namespace.bytes += wanted.saturating_sub(if of_namespace { now } else { 0 });
        self.job.bytes += if of_job { now } else { 0 };
    }
}

impl Space {
    /// What a namespace may occupy however little is left free: one ordinary entry.
    const LEAST: Self = Self {
        bytes: ENTRY_BYTES,
        names: 1,
    };

    fn add(&mut self, other: Space) {
        self.bytes += other.bytes;
        self.names += other.names;
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: usize| ByteSize(u64::try_from(bytes).unwrap_or(u64::MAX));
        let Space { bytes, names } = self.used;
        write!(
            f,
            "{} of {} and {names} of {IMAGE_NAMES_MAX} image names of the NodeImage are occupied",
            size(bytes),
            size(NODE_IMAGE_BYTES_MAX),
        )?;
        match &self.largest {
            None => f.write_str(", by entries that no job owns")?,
            Some((namespace, space)) => {
                let whose = if namespace.is_empty() {
                    "jobs without a namespace".to_owned()
                } else {
                    format!("the jobs of namespace {namespace}")
                };
                let (bytes, names) = (size(space.bytes), space.names);
                write!(f, ", most by {whose}: {bytes} and {names} image names")?;
            }
        }
        write!(f, "; this job needs {} more", size(self.needed.bytes))?;
        if self.is_own {
            f.write_str(", and the rest is kept for other namespaces")?;
        }
        Ok(())
    }
}

/// The namespace of a job; empty for one that has none.
pub(crate) fn namespace_of(owner: &ObjectReference) -> &str {
    owner.namespace.as_deref().unwrap_or_default()
}

/// What each owner of an entry occupies by it.
fn entry_part(object: &NodeImage, name: &str, entry: &ImageTagSpec) -> usize {
    let sealed = object.spec.sealed_credentials.iter();
    let sealed = sealed.filter(|sealed| entry.credentials.contains(&sealed.id));
    let bytes = json_bytes(entry)
        + object.result(name, &entry.tag).map_or(0, json_bytes)
        + sealed.map(json_bytes).sum::<usize>();
    bytes.div_ceil(entry.owner_references.len().max(1))
}

fn sandbox_bytes(sandbox: Option<&SandboxConfig>) -> usize {
    sandbox.map_or(0, json_bytes)
}

/// Who brought the sandbox config of an image name: the owner that claimed last.
pub(crate) fn sandbox_owner(image: &ImageSpec) -> Option<&ObjectReference> {
    let owned = image.tags.iter().filter(|entry| !entry.owner_references.is_empty());
    let created = |entry: &ImageTagSpec| entry.created_at.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let newest = owned.max_by_key(|entry| (created(entry), entry.version));
    newest.and_then(|entry| entry.owner_references.last())
}

#[cfg(test)]
mod tests;
