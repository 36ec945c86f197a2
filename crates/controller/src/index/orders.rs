//! What a node's NodeImage should say: the orders of all jobs, what retention takes away, and the credentials, in one patch.

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_api::contract::spec_patch;
use larder_api::node_image::{ImageTagSpec, NodeImageSpec};
use larder_model::Reason;
use larder_planner::prepull::dress::{Tenant, dress};
use larder_planner::progress::{Outcome, Step};
use larder_planner::retention::sweep;
use larder_planner::{NodeKey, order};
use serde_json::{Value, json};

use super::jobs::Running;
use super::nodes::{NodeRecord, Order, Sent};
use super::{Index, JobId};
use crate::merge::json_of;

/// The whole fleet reports bytes this often in a second, at most.
const PROGRESS_WRITES_PER_SECOND: usize = 50;

/// A single pull reports its bytes this often.
const PROGRESS_SECONDS: usize = 2;

impl Index {
    /// Takes up a campaign's step.
    pub(super) fn order(&mut self, job: JobId, step: Step) {
        let (node, withdraw) = match step {
            Step::HandOut(node) => (node, false),
            Step::Withdraw(node) => (node, true),
        };
        let before = self.claim_of(&node, job);
        let order = if withdraw {
            Order::Withdraw
        } else {
            Order::Claim { before }
        };
        if let Some(record) = self.nodes.get_mut(&node) {
            record.orders.insert(job, order);
            self.agenda.node(&node);
        }
    }

    /// Versions of a job's claims on a node, one for each of its images.
    fn claims_of(&self, node: &NodeKey, job: JobId) -> Vec<Option<i64>> {
        let object = self.nodes.get(node).and_then(|record| record.image.as_ref());
        let (Some(running), Some(object)) = (self.running(job), object) else {
            return Vec::new();
        };
        let campaign = running.progress.campaign();
        if let Some(work) = &running.work {
            let task = work.tasks.get(node);
            return task.map_or_else(Vec::new, |task| task.claims(object, campaign.uid()));
        }
        let entry = object.entry(campaign.image.name(), &campaign.image.tag_text());
        vec![entry.and_then(|entry| entry.claim_version(campaign.uid()))]
    }

    /// All of a job's claims on a node as one number, which grows with each that is made anew; None while one is missing.
    fn claim_of(&self, node: &NodeKey, job: JobId) -> Option<i64> {
        let claims = self.claims_of(node, job);
        if claims.is_empty() {
            return None;
        }
        claims.into_iter().sum()
    }

    /// Whether the object shows that a job's order was written.
    pub(super) fn is_carried_out(&self, node: &NodeKey, job: JobId) -> bool {
        match self.nodes.get(node).and_then(|record| record.orders.get(&job)) {
            Some(Order::Claim { before }) => *before < self.claim_of(node, job),
            Some(Order::Withdraw) => self.claims_of(node, job).iter().all(Option::is_none),
            None => true,
        }
    }

    /// The patch that makes a NodeImage what it should be, and the orders that are in it. None if nothing is to be written;
    /// then the next moment is noted at which that changes.
    pub(super) fn spec_to_write(&mut self, node: &NodeKey, now: Timestamp) -> Option<(Value, Sent)> {
        let by_hand = self.hand_written_secrets_of(node);
        let waits = self.ask_for(&by_hand, now);
        let ask_again = [waits, self.recheck_by_hand(node, &by_hand, now)]
            .into_iter()
            .flatten()
            .min();
        let orders: Vec<(JobId, Order)> = self
            .nodes
            .get(node)?
            .orders
            .iter()
            .map(|(job, order)| (*job, *order))
            .collect();
        let mut sent = Sent::default();
        let mut refused = Vec::new();
        let object = self.nodes.get(node)?.living_image()?;
        let mut spec = object.spec.clone();
        for (job, order) in orders {
            let Some(running) = self.running(job) else {
                refused.push((job, Reason::Canceled));
                continue;
            };
            let record = self.nodes.get(node)?;
            match carry_out(running, record, object, order, &mut spec, (node, now)) {
                Ok(()) => sent.jobs.push(job),
                Err(reason) => refused.push((job, reason)),
            }
        }
        let swept = sweep(object, spec, |entry, reference| self.owner(node, entry, reference), now);
        let mut spec = swept.spec;
        let report = i32::try_from(PROGRESS_SECONDS.max(self.slots.div_ceil(PROGRESS_WRITES_PER_SECOND)));
        let fresh = |entry: &&mut ImageTagSpec| entry.progress_seconds.is_none() && !entry.claims.is_empty();
        for entry in spec.images.values_mut().flat_map(|image| &mut image.tags).filter(fresh) {
            entry.progress_seconds = report.ok();
        }
        dress(&mut spec, &self.tenants(node));
        self.put_credentials(node, object, &mut spec);
        sent.generation = object.metadata.generation;
        let patch = spec_patch(object, &spec);
        let labels = self.nodes.get(node).and_then(|record| record.labels_to_write());
        self.agenda
            .node_later(node, [swept.next, ask_again].into_iter().flatten().min());
        for (job, reason) in refused {
            self.settle(node, &[job], Outcome::Refused(reason), now);
        }
        let mut operations = match patch {
            Some(Value::Array(operations)) => operations,
            _ => Vec::new(),
        };
        operations
            .extend(labels.map(|labels| json!({ "op": "add", "path": "/metadata/labels", "value": json_of(&labels) })));
        if operations.is_empty() {
            // What was asked for is there already.
            self.settle(node, &sent.jobs.clone(), Outcome::Done, now);
            return None;
        }
        Some((Value::Array(operations), sent))
    }

    /// The running ImagePrePullJobs on a node.
    fn tenants(&self, node: &NodeKey) -> Vec<Tenant<'_>> {
        let jobs = self.nodes.get(node).into_iter().flat_map(|record| &record.jobs);
        let tenant = |job: &JobId| {
            let running = self.running(*job)?;
            let work = running.work.as_ref()?;
            Some(Tenant {
                uid: running.progress.campaign().uid(),
                task: work.tasks.get(node)?,
                checks: &work.plan.checks,
            })
        };
        jobs.filter_map(tenant).collect()
    }
}

/// Writes one job's order into a spec; or says why that cannot be.
fn carry_out(
    running: &Running,
    record: &NodeRecord,
    object: &NodeImage,
    order: Order,
    spec: &mut NodeImageSpec,
    (node, now): (&NodeKey, Timestamp),
) -> Result<(), Reason> {
    let campaign = running.progress.campaign();
    let Some(work) = &running.work else {
        let image = &campaign.image;
        match order {
            Order::Withdraw => order::release(spec, image, campaign.uid()),
            Order::Claim { .. } if record.has_room_for([(image.name(), image.tag_text())]) => {
                order::claim(spec, object, image, &campaign.owner, now);
            }
            Order::Claim { .. } => return Err(Reason::NodeFull),
        }
        return Ok(());
    };
    let task = work.tasks.get(node).ok_or(Reason::Canceled)?;
    let references = task.references();
    let entries = references.iter().map(|image| (image.name(), image.tag_text()));
    match order {
        Order::Withdraw => task.release(spec, campaign.uid()),
        Order::Claim { .. } if record.has_room_for(entries) => task.claim(spec, object, &campaign.owner, now),
        Order::Claim { .. } => return Err(Reason::NodeFull),
    }
    Ok(())
}
