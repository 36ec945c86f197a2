//! Writes of NodeImages: at most one of each in flight. A write whose outcome is unknown, or that was refused, is followed
//! by a read; what the object says then decides which orders are carried out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use larder_api::NodeImage;
use larder_api::contract::{json_of, spec_patch};
use larder_model::Reason;
use larder_planner::NodeKey;
use larder_planner::node_spec::{DesiredSpec, NodeSpecInput, Order, OwnerState, desired_spec};
use larder_planner::progress::{OrderResult, Step};
use larder_planner::retention::HandWrittenEnds;
use serde_json::{Value, json};
use tracing::warn;

use super::credentials::SealTarget;
use super::jobs::JobState;
use super::node_policy::Sealing;
use super::node_views::needs_credentials;
use super::nodes::NodeRecord;
use super::{Engine, JobId, WatchKind};
use crate::kinds::KindId;

/// The first pause after a write that failed, or whose outcome is unknown; it doubles with each further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The longest pause between two tries.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// A patch that the API server refuses is made anew after this long.
const AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(30);

/// Nodes that are looked at in one turn of the main loop, in search of those that are to be written. After a list every node
/// is looked at, and most need nothing: other events must not wait for that.
pub(super) const LOOKS: usize = 128;

/// The whole fleet reports bytes this often in a second, at most.
const PROGRESS_WRITES_PER_SECOND: usize = 50;

/// A single pull reports its bytes this often.
const PROGRESS_SECONDS: usize = 2;

/// What to do with a NodeImage.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeWrite {
    Create(Box<NodeImage>),
    Delete {
        uid: Option<String>,
    },
    /// A JSON patch.
    Patch(Value),
    /// Read it, to learn what became of a write.
    Read,
}

/// How a write of a NodeImage ended.
#[derive(Debug)]
pub enum NodeWriteResult {
    /// The object as it is now.
    Object(Box<NodeImage>),
    /// There is none.
    Absent,
    /// The API server said no.
    Refused(String),
    /// No response arrived, or one that says nothing about the outcome.
    Unknown,
}

/// The one write of a NodeImage.
#[derive(Debug, Default)]
pub(super) struct WriteState {
    in_flight: Option<InFlight>,
    /// A write that ended without a known outcome: the object is read before anything else is written.
    unknown: Option<InFlight>,
    /// Nothing is sent before this moment.
    not_before: Option<Timestamp>,
    /// Tries in a row that failed.
    failures: u32,
}

/// What a write carries.
#[derive(Clone, Debug, Default)]
struct InFlight {
    jobs: Vec<JobId>,
    /// Generation that the write was based on.
    generation: Option<i64>,
    /// What the API server said against it.
    refusal: Option<String>,
    /// The object is created or deleted, not changed.
    is_lifecycle: bool,
}

impl WriteState {
    /// Sends nothing for a while, longer after each failure.
    fn back_off(&mut self, now: Timestamp) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(6)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.not_before = Some(now.checked_add(pause).unwrap_or(now));
    }

    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before.filter(|moment| now < *moment)
    }
}

impl Engine {
    /// Takes up a campaign's step.
    pub(super) fn order(&mut self, job: JobId, step: &Step) {
        let (Step::HandOut(node) | Step::Withdraw(node)) = step;
        let Some(running) = self.jobs.running(job) else {
            return;
        };
        let campaign = running.progress.campaign();
        let record = self
            .nodes
            .get(node)
            .filter(|record| record.image.may_name(campaign.uid()));
        let image = record.and_then(|record| record.image.as_ref());
        let order = match step {
            Step::HandOut(_) => Order::claim(campaign.tasks.of(node).map(|task| &**task), image, campaign.uid()),
            Step::Withdraw(_) => Order::Withdraw,
        };
        if let Some(record) = self.nodes.get_mut(node) {
            record.orders.insert(job, order);
            self.queue.node(node);
        }
    }

    /// The next NodeImage to write, and how. None also if none was found among many: ask again after the next decision.
    pub fn next_node_write(&mut self, now: Timestamp) -> Option<(NodeKey, NodeWrite)> {
        if !self.is_complete() {
            return None;
        }
        while 0 < self.looks {
            let node = self.queue.next_node(|node| self.scan.is_past(node))?;
            self.looks -= 1;
            if let Some(write) = self.node_write(&node, now) {
                return Some((node, write));
            }
        }
        None
    }

    fn node_write(&mut self, node: &NodeKey, now: Timestamp) -> Option<NodeWrite> {
        let record = self.nodes.get_mut(node)?;
        let state = &mut record.write;
        if state.in_flight.is_some() {
            return None;
        }
        if let Some(moment) = state.waits_until(now) {
            self.queue.node_later(node, Some(moment));
            return None;
        }
        if let Some(unknown) = state.unknown.take() {
            state.in_flight = Some(unknown);
            return Some(NodeWrite::Read);
        }
        let (write, in_flight) = if let Some(write) = record.lifecycle(node) {
            let in_flight = InFlight {
                is_lifecycle: true,
                ..InFlight::default()
            };
            (write, in_flight)
        } else if record.image.is_none() {
            // A Node without an agent stays known, so that jobs can say that they leave it out.
            let is_node = record.facts.is_some();
            self.refuse_orders(node, now);
            if !is_node {
                self.nodes.remove(node);
            }
            return None;
        } else {
            let written = self.patch(node, now);
            self.nodes.compress_later(node);
            written?
        };
        self.nodes.get_mut(node)?.write.in_flight = Some(in_flight);
        Some(write)
    }

    /// The patch that makes a NodeImage what it should be, and the orders that are in it. None if nothing is to be written;
    /// then the next moment is noted at which that changes.
    fn patch(&mut self, node: &NodeKey, now: Timestamp) -> Option<(NodeWrite, InFlight)> {
        let ask_again = self.read_hand_written_secrets(node, now);
        let object = self.nodes.living_image(node)?;
        let target = self.sealing.target(node, object);
        let desired = desired_spec(&self.spec_input(node, object, target.as_ref(), now));
        let DesiredSpec {
            mut spec,
            next,
            carried_out,
            refused,
        } = desired;
        if let Some(target) = &target {
            self.logins().add_sealed_credentials(node, object, target, &mut spec);
        }
        let generation = object.metadata.generation;
        let mut operations = match spec_patch(object, &spec) {
            Some(Value::Array(operations)) => operations,
            _ => Vec::new(),
        };
        let labels = self.nodes.get(node).and_then(NodeRecord::labels_to_write);
        operations
            .extend(labels.map(|labels| json!({ "op": "add", "path": "/metadata/labels", "value": json_of(&labels) })));
        self.queue
            .node_later(node, [next, ask_again].into_iter().flatten().min());
        for (uid, reason) in refused {
            let job = self.jobs.id_of_uid(&uid).into_iter().collect::<Vec<_>>();
            self.settle(node, &job, OrderResult::Refused(reason), now);
        }
        let jobs: Vec<JobId> = carried_out.iter().filter_map(|uid| self.jobs.id_of_uid(uid)).collect();
        self.forget_orders_of_stopped_jobs(node);
        if operations.is_empty() {
            // What was asked for is there already.
            self.settle(node, &jobs, OrderResult::Done, now);
            return None;
        }
        let in_flight = InFlight {
            jobs,
            generation,
            ..InFlight::default()
        };
        Some((NodeWrite::Patch(Value::Array(operations)), in_flight))
    }

    /// Everything that decides what a NodeImage's spec should be.
    fn spec_input<'a>(
        &'a self,
        node: &'a NodeKey,
        object: &'a NodeImage,
        target: Option<&SealTarget>,
        now: Timestamp,
    ) -> NodeSpecInput<'a> {
        static NO_ENDS: HandWrittenEnds = HandWrittenEnds::NONE;
        let record = self.nodes.get(node);
        let orders = record.into_iter().flat_map(|record| &record.orders);
        let orders: Vec<(&str, &Order)> = orders
            .filter_map(|(job, order)| Some((self.jobs.get(*job)?.uid.as_str(), order)))
            .collect();
        let withheld = match self.sealing.sealing_for(object) {
            Sealing::PolicyNotEnforced => self.need_credentials(node, &orders),
            Sealing::Allowed | Sealing::SharedWriter => BTreeSet::new(),
        };
        let mut owners: BTreeMap<&str, OwnerState<'_>> = BTreeMap::new();
        let entries = object.spec.images.values().flat_map(|image| &image.tags);
        for reference in entries.flat_map(|entry| &entry.owner_references) {
            if let Some(uid) = reference.uid.as_deref() {
                owners
                    .entry(uid)
                    .or_insert_with(|| self.owner(node, uid, KindId::of_reference(reference), now));
            }
        }
        for (uid, _) in &orders {
            let kind = self
                .jobs
                .id_of_uid(uid)
                .and_then(|job| Some(self.jobs.get(job)?.key.kind));
            owners.entry(uid).or_insert_with(|| self.owner(node, uid, kind, now));
        }
        let pulls = self.fleet_limit.taken();
        let progress_seconds = PROGRESS_SECONDS.max(pulls.div_ceil(PROGRESS_WRITES_PER_SECOND));
        NodeSpecInput {
            node,
            object,
            bytes: record.map_or(0, |record| record.bytes),
            occupancy: record.and_then(|record| record.occupancy.as_deref()),
            credentials: target.map(|target| self.logins().credential_ids(node, object, target, &orders)),
            owners,
            closed: self.outside_windows(&orders, now),
            orders,
            withheld,
            progress_seconds: i32::try_from(progress_seconds).ok(),
            hand_written_ends: record.map_or(&NO_ENDS, |record| &record.hand_written_ends),
            now,
        }
    }

    /// Those of the jobs with an order for a node that no window lets hand out work.
    fn outside_windows<'a>(&self, orders: &[(&'a str, &Order)], now: Timestamp) -> BTreeSet<&'a str> {
        let is_outside = |uid: &&str| {
            let running = self.jobs.id_of_uid(uid).and_then(|job| self.jobs.running(job));
            running.is_some_and(|running| !running.progress.is_inside_windows(now))
        };
        orders.iter().map(|(uid, _)| *uid).filter(is_outside).collect()
    }

    /// Those of the jobs with an order for a node that the node can serve only with credentials.
    fn need_credentials<'a>(&self, node: &NodeKey, orders: &[(&'a str, &Order)]) -> BTreeSet<&'a str> {
        let needs = |uid: &&str| {
            let running = self.jobs.id_of_uid(uid).and_then(|job| self.jobs.running(job));
            let task = running.and_then(|running| running.progress.campaign().tasks.of(node));
            running
                .zip(task)
                .is_some_and(|(running, task)| needs_credentials(running, task))
        };
        orders.iter().map(|(uid, _)| *uid).filter(needs).collect()
    }

    /// What the owner of an entry is.
    fn owner(&self, node: &NodeKey, uid: &str, kind: Option<KindId>, now: Timestamp) -> OwnerState<'_> {
        if !kind.is_some_and(|kind| self.sync.is_synced(&WatchKind::Job(kind))) {
            return OwnerState::Unknown;
        }
        let Some((id, record)) = self.jobs.id_of_uid(uid).and_then(|id| Some((id, self.jobs.get(id)?))) else {
            let noticed = self.jobs.deleted_at(uid).unwrap_or(self.sync.jobs_synced_at());
            return OwnerState::Gone(noticed);
        };
        match &record.state {
            JobState::Running(running) if !running.knows_nodes() => OwnerState::Unknown,
            JobState::Running(running) => OwnerState::Running {
                campaign: running.progress.campaign(),
                started: running.progress.started(),
                selected: self.nodes.get(node).is_some_and(|node| node.jobs.contains(&id)),
            },
            JobState::Ended(ended) => OwnerState::Ended {
                // Until the API has the final status, the results in NodeImages are all that a restarted controller would
                // find: the time that they stay does not run yet.
                at: match ended.final_status {
                    Some(_) => ended.at.max(now),
                    None => ended.at,
                },
                pins: ended.pins,
            },
            JobState::Leaving(noticed) => OwnerState::Gone(*noticed),
            JobState::Idle | JobState::Refused(_) => OwnerState::Unknown,
        }
    }

    /// Takes in how a write of a NodeImage ended.
    pub fn node_written(&mut self, node: &NodeKey, result: NodeWriteResult, now: Timestamp) {
        let Some(state) = self.nodes.get_mut(node).map(|record| &mut record.write) else {
            return;
        };
        let Some(mut in_flight) = state.in_flight.take() else {
            return;
        };
        match result {
            NodeWriteResult::Object(object) => {
                // A read that follows a refused creation or deletion does not end the pauses between the tries.
                if in_flight.refusal.is_none() {
                    state.succeeded();
                }
                let generation = object.metadata.generation;
                self.observe_image(node, *object, true, now);
                self.review(node, &in_flight, generation, now);
            }
            NodeWriteResult::Absent => {
                // Without a pause, a NodeImage that the API server does not accept would be created again and again.
                if in_flight.refusal.is_some() {
                    state.back_off(now);
                } else {
                    state.succeeded();
                }
                self.image_gone(node, now);
                self.refuse_orders(node, now);
            }
            NodeWriteResult::Refused(refusal) => {
                if in_flight.is_lifecycle {
                    if state.failures == 0 {
                        warn!(
                            node = &**node,
                            refusal, "the API server refuses to create or delete a NodeImage; trying again"
                        );
                    }
                    state.back_off(now);
                }
                in_flight.refusal = Some(refusal);
                state.unknown = Some(in_flight);
            }
            NodeWriteResult::Unknown => {
                state.back_off(now);
                state.unknown = Some(in_flight);
            }
        }
        self.queue.node(node);
    }

    /// Settles what a write carried, by what the object says now.
    fn review(&mut self, node: &NodeKey, in_flight: &InFlight, generation: Option<i64>, now: Timestamp) {
        let jobs = in_flight.jobs.iter().copied();
        let (done, open): (Vec<JobId>, Vec<JobId>) = jobs.partition(|job| self.is_carried_out(node, *job));
        self.settle(node, &done, OrderResult::Done, now);
        let Some(record) = self.nodes.get_mut(node) else {
            return;
        };
        // If another writer came in between, the orders are written again on top of that.
        if let Some(refusal) = &in_flight.refusal
            && (generation == in_flight.generation || in_flight.is_lifecycle)
        {
            if in_flight.is_lifecycle {
                record.write.back_off(now);
                return;
            }
            warn!(node = &**node, refusal, "the API server refuses a NodeImage");
            // The same patch would be refused again.
            record.write.not_before = Some(now.checked_add(AFTER_REFUSAL).unwrap_or(now));
            self.settle(node, &open, OrderResult::Refused(Reason::Internal), now);
        }
    }

    /// Whether the NodeImage shows that a job's order was written.
    fn is_carried_out(&self, node: &NodeKey, job: JobId) -> bool {
        let Some(order) = self.nodes.get(node).and_then(|record| record.orders.get(&job)) else {
            return true;
        };
        let Some(campaign) = self.jobs.running(job).map(|running| running.progress.campaign()) else {
            return true;
        };
        let task = campaign.tasks.of(node).map(|task| &**task);
        let image = self.nodes.get(node).and_then(|record| record.image.as_ref());
        order.is_carried_out(task, image, campaign.uid())
    }

    /// Tells jobs how their orders ended, and forgets the orders.
    pub(super) fn settle(&mut self, node: &NodeKey, jobs: &[JobId], result: OrderResult, now: Timestamp) {
        self.gate.look_at(node);
        for job in jobs {
            if let Some(record) = self.nodes.get_mut(node) {
                record.orders.remove(job);
            }
            if let Some(running) = self.jobs.running_mut(*job) {
                running.progress.settle(node, result, now);
                self.queue.job(*job);
            }
        }
    }

    /// The node is gone, and its orders with it.
    fn refuse_orders(&mut self, node: &NodeKey, now: Timestamp) {
        let orders = self
            .nodes
            .get(node)
            .map(|record| record.orders.keys().copied().collect::<Vec<_>>());
        self.settle(
            node,
            &orders.unwrap_or_default(),
            OrderResult::Refused(Reason::NodeUnsuitable),
            now,
        );
    }

    fn forget_orders_of_stopped_jobs(&mut self, node: &NodeKey) {
        let running: BTreeSet<JobId> = match self.nodes.get(node) {
            Some(record) if !record.orders.is_empty() => self.jobs.running_ids().into_iter().collect(),
            _ => return,
        };
        if let Some(record) = self.nodes.get_mut(node) {
            record.orders.retain(|job, _| running.contains(job));
        }
    }
}
