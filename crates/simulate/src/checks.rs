//! What must hold after every step, whatever happens. Each check looks at one change and at what it keeps itself, so that a
//! step costs as much as its change.

mod audit;
mod claims;
mod jobs;
mod node_gate;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::SignedDuration;
use larder_planner::priority::BYPASSES_MAX;

use crate::agent::Pull;
use crate::api::{Api, Change, Key, Kind, Writer};
use crate::controller::FleetSettings;
use crate::machine::Machine;
use crate::queue::Millis;

use self::jobs::JobInfo;
use self::node_gate::Gates;
use self::writes::Rates;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The API never shows more nodes at work for a job than its parallelism.
    Parallelism,
    /// Nor more in the whole fleet than its limit.
    FleetLimit,
    /// Nothing is handed out outside the windows of the job and of the fleet.
    OutsideWindow,
    /// Of ten pulls that start on a node, at most one starts while one with a higher priority waits for its slot.
    PriorityOrder,
    /// What a node has for a job is not taken away or asked for again without cause.
    ResultLost,
    /// No image is pulled twice without cause.
    PulledTwice,
    /// Status does not go back, and a job that ended stays ended.
    StatusRegressed,
    /// Status shows within seconds what the NodeImages show.
    StatusStale,
    /// No object is written again and again while nothing changes.
    WriteLoop,
    /// No loop turns again and again while nothing happens.
    BusyLoop,
    /// A status lands on the object that it is about.
    StatusOfAnotherObject,
    /// Every job finishes or says why it waits.
    JobNeverEnds,
    /// What is to happen at a moment happens then.
    Overdue,
    /// No node is released before its gating jobs are over there, or its longest wait is.
    GateOpenedEarly,
    /// No node waits beyond that.
    GateStaysClosed,
    /// A released node does not wait again.
    GateClosedAgain,
    /// When all is over, NodeImages are as the nodes and jobs ask.
    NotSettled,
}

/// An invariant that does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// What was disturbed by people or faults this recently excuses what follows from it.
const EXCUSED: Millis = 150_000;

/// What the checks know.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) fleet: FleetSettings,
    /// How far the clock is ahead by which the controller writes.
    clock: SignedDuration,
    gates: Gates,
    jobs: BTreeMap<String, JobInfo>,
    /// Per job the nodes that the API shows at work, and since when: claimed, without a final result.
    open: BTreeMap<String, BTreeMap<String, Millis>>,
    /// Per job the nodes that the API shows as done, and since when.
    done: BTreeMap<String, BTreeMap<String, Millis>>,
    /// Claims at work that the controller did not hand out: made by a late request of a former leader or by hand, or opened
    /// again because another job claims the same image.
    strays: BTreeSet<(String, String)>,
    /// Per node the pulls that started since one last started while another with a higher priority waited.
    in_order: BTreeMap<String, usize>,
    disturbed_nodes: BTreeMap<String, Millis>,
    pods_moved: Millis,
    clock_stepped: Millis,
    rates: Rates,
    /// Per job the writes in a row that changed nothing but its `etaSeconds`.
    estimates: BTreeMap<String, usize>,
    /// Jobs whose status a late request wrote last: the next write corrects it.
    overwritten: BTreeSet<String>,
    /// Jobs whose status is behind, since when it has said the same, and what.
    stale: BTreeMap<String, (Millis, (u64, u64))>,
    violation: Option<Violation>,
}

impl Checks {
    /// The first violation, once.
    pub(crate) fn violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    fn violate(&mut self, invariant: Invariant, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation {
                invariant,
                what: what(),
            });
        }
    }

    /// Takes in a change of the API.
    pub(crate) fn changed(&mut self, change: &Change, now: Millis, api: &Api) {
        let Some(object) = change.object() else {
            return;
        };
        match object.key.kind {
            Kind::NodeImage => self.node_image_changed(change, now, api),
            Kind::PullJob | Kind::PrePullJob | Kind::ListJob => self.job_changed(change, now),
            Kind::Node => {
                if change.writer == Writer::Other {
                    self.disturb_node(&object.key.name.clone(), now);
                }
                self.node_changed(change, now, api);
            }
            Kind::Pod => self.pods_moved = now,
            Kind::Secret => {}
        }
    }

    /// Something was done to a node.
    pub(crate) fn disturb_node(&mut self, node: &str, now: Millis) {
        self.disturbed_nodes.insert(node.to_owned(), now);
    }

    pub(crate) fn pods_moved(&mut self, now: Millis) {
        self.pods_moved = now;
    }

    pub(crate) fn clock_stepped(&mut self, now: Millis) {
        self.clock_stepped = now;
    }

    /// What is written next is written by a replica whose clock is ahead by this much.
    pub(crate) fn writes_by_clock(&mut self, clock: SignedDuration) {
        self.clock = clock;
    }

    fn is_disturbed(&self, node: &str, now: Millis) -> bool {
        self.disturbed_nodes.get(node).is_some_and(|at| now < at + EXCUSED)
    }

    /// A replica sends a write.
    pub(crate) fn requested(&mut self, key: &Key, now: Millis) {
        if let Some(what) = self.rates.controller_writes(key, now) {
            self.violate(Invariant::WriteLoop, || what);
        }
    }

    /// An agent sends a report.
    pub(crate) fn reported(&mut self, key: &Key, now: Millis) {
        if let Some(what) = self.rates.agent_writes(key, now) {
            self.violate(Invariant::WriteLoop, || what);
        }
    }

    /// A replica's loop turned.
    pub(crate) fn turned(&mut self, replica: usize, now: Millis) {
        if let Some(what) = self.rates.turns(replica, now) {
            self.violate(Invariant::BusyLoop, || what);
        }
    }

    /// A status was written to the object with the first uid, and is about the one with the second.
    pub(crate) fn status_written(&mut self, key: &Key, there: &str, meant: &str) {
        if there != meant {
            let what = format!(
                "the status of {:?} {} is about {meant} and is written to {there}",
                key.kind, key.name
            );
            self.violate(Invariant::StatusOfAnotherObject, || what);
        }
    }

    /// An agent starts to pull.
    pub(crate) fn pull_starts(&mut self, machine: &Machine, pull: &Pull) {
        self.check_priority(machine, pull);
        let (key, version) = (&pull.entry.key, pull.entry.version);
        let there = pull
            .entry
            .image
            .as_ref()
            .is_ok_and(|image| machine.images.contains(image));
        let uid = machine.agent.as_ref().and_then(|agent| agent.uid()).unwrap_or_default();
        let answered = machine.pulled.get(&(uid.to_owned(), key.clone()));
        if there && pull.may_use_present() && !machine.wanted_fresh.contains(key) {
            let what = format!("{} pulls {key}, which is there and need not be fresh", machine.name);
            self.violate(Invariant::PulledTwice, || what);
        } else if there && answered.is_some_and(|known| version <= *known) {
            let what = format!("{} pulls version {version} of {key} again", machine.name);
            self.violate(Invariant::PulledTwice, || what);
        }
    }

    fn check_priority(&mut self, machine: &Machine, pull: &Pull) {
        let Some(agent) = machine.agent.as_ref().filter(|_| !pull.entry.dry_run) else {
            return;
        };
        let in_order = self.in_order.entry(machine.name.clone()).or_default();
        if !agent.passed_over(pull, machine.max_pulls) {
            *in_order += 1;
            return;
        }
        let count = std::mem::take(in_order);
        if count < BYPASSES_MAX {
            let what = format!(
                "{} pulls {} after {count} others, and one with a higher priority waits",
                machine.name, pull.entry.key
            );
            self.violate(Invariant::PriorityOrder, || what);
        }
    }
}
