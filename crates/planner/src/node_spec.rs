//! The spec that one node's NodeImage should have: the orders of all jobs, what retention takes away, checks, aliases and
//! credentials. A function of one value ([`NodeSpecInput`]); the controller gathers the value and writes the difference.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::NodeImage;
use larder_api::node_image::{ImageTagSpec, NodeImageSpec};
use larder_model::{ImageRef, Reason};

use crate::campaign::Campaign;
use crate::checks_and_aliases::{JobOnNode, apply_checks_and_aliases};
use crate::occupancy::{Demand, Occupancy, Room, namespace_of, sandbox_owner};
use crate::retention::{self, EntryOwner, HandWrittenEnds, sweep};
use crate::task::NodeTask;

/// Everything that decides what a NodeImage's spec should be.
#[derive(Clone, Debug)]
pub struct NodeSpecInput<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The NodeImage as it is.
    pub object: &'a NodeImage,
    /// Its size as JSON.
    pub bytes: usize,
    /// Who occupies it; counted where it is not known.
    pub occupancy: Option<&'a Occupancy>,
    /// What the owners of its entries are, and the jobs with an order, by uid. An owner that is not here is unknown.
    pub owners: BTreeMap<&'a str, OwnerState<'a>>,
    /// What jobs want written, by uid.
    pub orders: Vec<(&'a str, &'a Order)>,
    /// Those of these jobs whose nodes need credentials that may be sent to no node, by uid: nothing is claimed for them.
    pub withheld: BTreeSet<&'a str>,
    /// Those of these jobs that no window lets hand out work now, by uid: the windows were open when the order was made.
    pub closed: BTreeSet<&'a str>,
    /// How often a pull reports its bytes; for entries that do not say.
    pub progress_seconds: Option<i32>,
    /// What credentials entries may refer to. None: the node can be sent no credentials, and entries keep what they have.
    pub credentials: Option<BTreeMap<EntryKey, Credentials>>,
    /// When pulls of entries without owners were seen to have ended.
    pub hand_written_ends: &'a HandWrittenEnds,
    /// The time.
    pub now: Timestamp,
}

/// Name and tag of an entry.
pub type EntryKey = (String, String);

/// What is known of the owner of an entry.
#[derive(Clone, Copy, Debug)]
pub enum OwnerState<'a> {
    /// Nothing, at the moment.
    Unknown,
    /// It was deleted, and that was noticed at this moment.
    Gone(Timestamp),
    /// It runs.
    Running {
        /// What it asks for.
        campaign: &'a Campaign,
        /// When it began.
        started: Timestamp,
        /// Whether it is for this node.
        selected: bool,
    },
    /// It ended.
    Ended {
        /// When.
        at: Timestamp,
        /// Whether it pins its images as long as it exists.
        pins: bool,
    },
}

impl OwnerState<'_> {
    fn priority(&self) -> i32 {
        match self {
            Self::Running { campaign, .. } => campaign.priority,
            Self::Unknown | Self::Gone(_) | Self::Ended { .. } => 0,
        }
    }
}

/// The credentials that the owners of an entry may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Sealed credentials with these ids, and about how many bytes each takes.
    Ids(BTreeMap<String, usize>),
    /// Some owner's Secrets are not known at the moment: the entry keeps what it has.
    NotKnown,
}

/// A step of a campaign that is to be written to a node's NodeImage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Claim the task's images.
    Claim {
        /// The versions of the job's claims when the order was made.
        before: BTreeMap<ImageRef, i64>,
    },
    /// Take the job's claims off.
    Withdraw,
}

/// What a NodeImage's spec should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredSpec {
    /// The spec.
    pub spec: NodeImageSpec,
    /// When time alone changes it again.
    pub next: Option<Timestamp>,
    /// The jobs whose orders the spec carries out, by uid.
    pub carried_out: Vec<String>,
    /// The jobs whose orders cannot be carried out, and why.
    pub refused: Vec<(String, Reason)>,
}

impl Order {
    /// An order to claim a task.
    pub fn claim(task: Option<&NodeTask>, object: Option<&NodeImage>, uid: &str) -> Self {
        let before = task.zip(object).map(|(task, object)| claims(task, object, uid));
        Self::Claim {
            before: before.unwrap_or_default(),
        }
    }

    /// Whether a NodeImage shows that the order was written.
    pub fn is_carried_out(&self, task: Option<&NodeTask>, object: Option<&NodeImage>, uid: &str) -> bool {
        let (Some(task), Some(object)) = (task, object) else {
            return matches!(self, Self::Withdraw);
        };
        let claims = claims(task, object, uid);
        match self {
            Self::Withdraw => claims.is_empty(),
            Self::Claim { before } => {
                let all = claims.len() == task.references().len();
                let newer =
                    |(image, version): (&ImageRef, &i64)| before.get(image).is_none_or(|before| before < version);
                all && claims.iter().any(newer)
            }
        }
    }
}

/// The versions of a job's claims on the images of a task.
fn claims(task: &NodeTask, object: &NodeImage, uid: &str) -> BTreeMap<ImageRef, i64> {
    let claim = |image: &ImageRef| {
        let entry = object.entry(image.name(), &image.tag_text())?;
        Some((image.clone(), entry.claim_version(uid)?))
    };
    task.references().into_iter().filter_map(claim).collect()
}

/// The spec that a NodeImage should have.
pub fn desired_spec(input: &NodeSpecInput<'_>) -> DesiredSpec {
    let (mut carried_out, mut refused) = (Vec::new(), Vec::new());
    let mut spec = input.object.spec.clone();
    let mut account = Account::of(input);
    // Where there is not room for all, it is for those with the highest priority.
    let mut orders = input.orders.clone();
    orders.sort_by_key(|(uid, _)| Reverse(input.owners.get(uid).map_or(0, OwnerState::priority)));
    for (uid, order) in orders {
        match carry_out(input, uid, order, &mut spec, &mut account) {
            Ok(()) => carried_out.push(uid.to_owned()),
            Err(reason) => refused.push((uid.to_owned(), reason)),
        }
    }
    let swept = sweep(
        input.object,
        spec,
        |entry, reference| owner(input, entry, reference),
        input.hand_written_ends,
        input.now,
    );
    let mut spec = swept.spec;
    account.limit_sandbox_configs(input.object, &mut spec);
    let fresh = |entry: &&mut ImageTagSpec| entry.progress_seconds.is_none() && !entry.claims.is_empty();
    for entry in spec.images.values_mut().flat_map(|image| &mut image.tags).filter(fresh) {
        entry.progress_seconds = input.progress_seconds;
    }
    apply_checks_and_aliases(&mut spec, &jobs_on_node(input));
    if let Some(credentials) = &input.credentials {
        refer_to_credentials(&mut spec, credentials, input, &mut account);
    }
    DesiredSpec {
        spec,
        next: swept.next,
        carried_out,
        refused,
    }
}

/// Writes one job's order into a spec; or says why that cannot be.
fn carry_out(
    input: &NodeSpecInput<'_>,
    uid: &str,
    order: &Order,
    spec: &mut NodeImageSpec,
    account: &mut Account<'_>,
) -> Result<(), Reason> {
    let Some(OwnerState::Running { campaign, selected, .. }) = input.owners.get(uid) else {
        return Err(Reason::Canceled);
    };
    let task = campaign.tasks.of(input.node).ok_or(Reason::Canceled)?;
    match order {
        Order::Withdraw => task.release(spec, uid),
        // The claim would be taken off again in the same write, and the order never be carried out.
        Order::Claim { .. } if !selected => return Err(Reason::Canceled),
        Order::Claim { .. } if input.closed.contains(uid) => return Err(Reason::Canceled),
        Order::Claim { .. } if input.withheld.contains(uid) => return Err(Reason::NodePolicyNotEnforced),
        Order::Claim { .. } if account.take(input, campaign, task) => {
            task.claim(spec, input.object, &campaign.owner, input.now);
        }
        Order::Claim { .. } => return Err(Reason::NodeFull),
    }
    Ok(())
}

/// What is counted while a spec is made.
struct Account<'a> {
    room: Room<'a>,
    /// Image names whose sandbox config was counted with a claim.
    names: BTreeSet<String>,
    /// Credentials that are there, or were counted with a claim.
    credentials: BTreeSet<String>,
}

impl<'a> Account<'a> {
    fn of(input: &NodeSpecInput<'a>) -> Self {
        let sealed = input.object.spec.sealed_credentials.iter();
        Self {
            room: Room::of(input.object, input.bytes, input.occupancy),
            names: BTreeSet::new(),
            credentials: sealed.map(|sealed| sealed.id.clone()).collect(),
        }
    }

    /// Takes the room that a claim needs; false if there is none.
    fn take(&mut self, input: &NodeSpecInput<'_>, campaign: &Campaign, task: &NodeTask) -> bool {
        let mut demand = Demand::of_claim(input.object, campaign, task);
        let known = input.credentials.as_ref();
        let of_image = |image: &ImageRef| match known?.get(&(image.name().to_owned(), image.tag_text()))? {
            Credentials::Ids(ids) => Some(ids),
            Credentials::NotKnown => None,
        };
        let ids = task.references().into_iter().filter_map(of_image).flatten();
        let new: BTreeMap<&String, usize> = ids
            .filter(|(id, _)| !self.credentials.contains(*id))
            .map(|(id, bytes)| (id, *bytes))
            .collect();
        demand.add_bytes(new.values().sum());
        if self.room.take(namespace_of(&campaign.owner), &demand).is_err() {
            return false;
        }
        self.credentials.extend(new.into_keys().cloned());
        let names = task.references().into_iter().map(|image| image.name().to_owned());
        self.names.extend(names);
        true
    }

    /// Keeps the sandbox config that an image name has where an edit of a job made it grow beyond what there is room for.
    fn limit_sandbox_configs(&mut self, object: &NodeImage, spec: &mut NodeImageSpec) {
        for (name, image) in &mut spec.images {
            let known = object.spec.images.get(name);
            let before = known.and_then(|image| image.sandbox_config.as_ref());
            if image.sandbox_config.as_ref() == before || self.names.contains(name) {
                continue;
            }
            let Some(owner) = sandbox_owner(image) else {
                continue;
            };
            let demand = Demand::of_sandbox(known, image.sandbox_config.as_ref(), owner);
            if self.room.take(namespace_of(owner), &demand).is_err() {
                image.sandbox_config = before.cloned();
            }
        }
    }

    /// Takes the room for a credential that an entry gets beside its claims; false if there is none.
    fn take_credential(&mut self, id: &str, bytes: usize, entry: &ImageTagSpec) -> bool {
        if self.credentials.contains(id) {
            return true;
        }
        let mut demand = Demand::default();
        demand.add_bytes(bytes);
        let namespace = entry.owner_references.last().map_or("", namespace_of);
        let fits = self.room.take(namespace, &demand).is_ok();
        if fits {
            self.credentials.insert(id.to_owned());
        }
        fits
    }
}

/// What an owner reference of an entry is.
fn owner(input: &NodeSpecInput<'_>, entry: retention::EntryName<'_>, reference: &ObjectReference) -> EntryOwner {
    let uid = reference.uid.as_deref().unwrap_or_default();
    match input.owners.get(uid) {
        None | Some(OwnerState::Unknown) => EntryOwner::Unknown,
        Some(OwnerState::Gone(noticed)) => EntryOwner::Gone(*noticed),
        Some(OwnerState::Ended { at, pins }) => EntryOwner::Ended { at: *at, pins: *pins },
        Some(OwnerState::Running {
            campaign,
            started,
            selected,
        }) => {
            let task = campaign.tasks.of(input.node).filter(|_| *selected);
            let wanted = task.is_some_and(|task| task.image(entry.name, entry.tag).is_some());
            EntryOwner::Running(wanted.then(|| campaign.terms(input.node, *started)))
        }
    }
}

fn jobs_on_node<'a>(input: &NodeSpecInput<'a>) -> Vec<JobOnNode<'a>> {
    let job = |(uid, owner): (&&'a str, &OwnerState<'a>)| match owner {
        OwnerState::Running {
            campaign,
            selected: true,
            ..
        } => Some(JobOnNode {
            uid,
            task: campaign.tasks.of(input.node)?,
            checks: &campaign.rules.checks,
        }),
        _ => None,
    };
    input.owners.iter().filter_map(job).collect()
}

/// Makes entries refer to the credentials that their owners may use, and to no others. The sealed data of ids that are new
/// are added by the controller.
fn refer_to_credentials(
    spec: &mut NodeImageSpec,
    known: &BTreeMap<EntryKey, Credentials>,
    input: &NodeSpecInput<'_>,
    account: &mut Account<'_>,
) {
    for (name, image) in &mut spec.images {
        for entry in &mut image.tags {
            let key = (name.clone(), entry.tag.clone());
            let Some(Credentials::Ids(ids)) = known.get(&key) else {
                continue;
            };
            // A question brings its own login, and takes it away again.
            let is_question = entry.dry_run && entry.owner_references.is_empty();
            let runs = |owner: &ObjectReference| {
                let uid = owner.uid.as_deref().unwrap_or_default();
                matches!(input.owners.get(uid), Some(OwnerState::Running { .. }))
            };
            // What an ended job used goes when the entry goes: taking it away earlier would cost a write.
            if !is_question && entry.owner_references.iter().all(runs) {
                entry.credentials.retain(|id| ids.contains_key(id));
            }
            for (id, bytes) in ids {
                if !entry.credentials.contains(id) && account.take_credential(id, *bytes, entry) {
                    entry.credentials.push(id.clone());
                }
            }
        }
    }
    let images = &spec.images;
    spec.sealed_credentials.retain(|sealed| {
        let mut entries = images.values().flat_map(|image| &image.tags);
        entries.any(|entry| entry.credentials.contains(&sealed.id))
    });
}

#[cfg(test)]
mod tests;
