//! What a node's NodeImage should say: the orders of all jobs, what retention takes away, and the credentials, in one patch.

use jiff::Timestamp;
use larder_api::contract::spec_patch;
use larder_api::node_image::ImageTagSpec;
use larder_model::Reason;
use larder_planner::progress::{Outcome, Step};
use larder_planner::retention::sweep;
use larder_planner::{NodeKey, order};
use serde_json::{Value, json};

use super::nodes::{Order, Sent};
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

    /// Version of a job's claim on a node.
    fn claim_of(&self, node: &NodeKey, job: JobId) -> Option<i64> {
        let running = self.running(job)?;
        let image = &running.progress.campaign().image;
        let object = self.nodes.get(node)?.image.as_ref()?;
        let entry = object.entry(image.name(), &image.tag_text())?;
        entry.claim_version(running.progress.campaign().uid())
    }

    /// Whether the object shows that a job's order was written.
    pub(super) fn is_carried_out(&self, node: &NodeKey, job: JobId) -> bool {
        let now = self.claim_of(node, job);
        match self.nodes.get(node).and_then(|record| record.orders.get(&job)) {
            Some(Order::Claim { before }) => *before < now,
            Some(Order::Withdraw) => now.is_none(),
            None => true,
        }
    }

    /// The patch that makes a NodeImage what it should be, and the orders that are in it. None if nothing is to be written;
    /// then the next moment is noted at which that changes.
    pub(super) fn spec_to_write(&mut self, node: &NodeKey, now: Timestamp) -> Option<(Value, Sent)> {
        let by_hand = self.hand_written_secrets_of(node);
        self.ask_for(&by_hand, now);
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
            let campaign = running.progress.campaign();
            let has_room = self
                .nodes
                .get(node)
                .is_some_and(|record| record.has_room(campaign.image.name()));
            match order {
                Order::Withdraw => order::release(&mut spec, &campaign.image, campaign.uid()),
                Order::Claim { .. } if !has_room => {
                    refused.push((job, Reason::NodeFull));
                    continue;
                }
                Order::Claim { .. } => order::claim(&mut spec, object, &campaign.image, &campaign.owner, now),
            }
            sent.jobs.push(job);
        }
        let swept = sweep(object, spec, |entry, reference| self.owner(node, entry, reference), now);
        let mut spec = swept.spec;
        let report = i32::try_from(PROGRESS_SECONDS.max(self.slots.div_ceil(PROGRESS_WRITES_PER_SECOND)));
        let fresh = |entry: &&mut ImageTagSpec| entry.progress_seconds.is_none() && !entry.claims.is_empty();
        for entry in spec.images.values_mut().flat_map(|image| &mut image.tags).filter(fresh) {
            entry.progress_seconds = report.ok();
        }
        self.put_credentials(node, object, &mut spec);
        sent.generation = object.metadata.generation;
        let patch = spec_patch(object, &spec);
        let labels = self.nodes.get(node).and_then(super::nodes::NodeRecord::labels_to_write);
        self.agenda.node_later(node, swept.next);
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
}
