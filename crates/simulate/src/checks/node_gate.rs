//! New nodes that wait for images: no gate opens early, none stays closed beyond its limit, none closes again.

use std::collections::{BTreeMap, BTreeSet};

use larder_api::names::{IMAGES_READY_CONDITION, NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE};
use serde_json::Value;

use super::{Checks, EXCUSED, Invariant, Violation};
use crate::api::{Api, Change, Kind, Object, Writer};
use crate::queue::Millis;
use crate::scenario::{MAX_WAIT, TAINT};

/// A node is released at most this long after its limit, while nothing fails.
const RELEASED_WITHIN: Millis = 30_000;

/// A controller may not have seen a job that is not older: a watch was silent, and the request took its time.
const UNSEEN: Millis = 60_000;

/// What the checks know of gates.
#[derive(Default)]
pub(super) struct Gates {
    /// Nodes, by uid, and since when the API tells them to wait.
    told: BTreeMap<String, Millis>,
    /// When a node's labels were changed last.
    relabelled: BTreeMap<String, Millis>,
    /// Nodes, by uid, that a request released after its sender had given it up. The controller does not know, and may tell the
    /// node to wait once more.
    released_late: BTreeSet<String>,
    /// Jobs and nodes of which the API has shown that the node had everything, or would never have.
    over: BTreeSet<(String, String)>,
}

fn condition(node: &Object) -> Option<&Value> {
    let conditions = node.value["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|condition| condition["type"] == IMAGES_READY_CONDITION)
}

fn is_released(node: &Object) -> bool {
    condition(node).is_some_and(|condition| condition["status"] == "True")
}

/// Whether a gating job selects a node. A list is none: its children are.
fn selects(job: &Object, node: &Object) -> bool {
    let (spec, labels) = (&job.value["spec"], &node.value["metadata"]["labels"]);
    let names = spec["selector"]["names"].as_array();
    let zone = &spec["selector"]["matchLabels"]["zone"];
    spec["nodeGate"] == true
        && labels[NODE_TYPE_LABEL] != VIRTUAL_KUBELET_VALUE
        && names.is_none_or(|names| names.iter().any(|name| *name == node.key.name.as_str()))
        && (zone.is_null() || labels["zone"] == *zone)
}

impl Checks {
    /// A job is over on a node: done, or failed for good.
    pub(super) fn over_on_node(&mut self, uid: &str, node: &str) {
        self.gates.over.insert((uid.to_owned(), node.to_owned()));
    }

    pub(super) fn node_changed(&mut self, change: &Change, now: Millis, api: &Api) {
        let (Some(after), name) = (&change.after, change.object().map(|object| object.key.name.clone())) else {
            return;
        };
        let before = change.before.as_ref().filter(|before| before.uid == after.uid);
        let labels = |node: &Object| node.value["metadata"]["labels"].clone();
        if before.is_some_and(|before| labels(before) != labels(after)) {
            self.gates.relabelled.extend(name.map(|name| (name, now)));
        }
        if condition(after).is_some_and(|condition| condition["status"] == "False") {
            self.gates.told.entry(after.uid.clone()).or_insert(now);
        }
        let was_released = before.is_some_and(|before| is_released(before));
        if change.writer == (Writer::Controller { late: true }) && !was_released && is_released(after) {
            self.gates.released_late.insert(after.uid.clone());
        }
        if change.writer != (Writer::Controller { late: false }) || was_released == is_released(after) {
            return;
        }
        if was_released {
            if self.gates.released_late.contains(&after.uid) {
                return;
            }
            let what = format!("{} was released, and waits again", after.key.name);
            self.violate(Invariant::GateClosedAgain, || what);
        } else if let Some(what) = self.opened_early(after, now, api) {
            self.violate(Invariant::GateOpenedEarly, || what);
        }
    }

    /// Which job a node that is released now should have waited for.
    fn opened_early(&self, node: &Object, now: Millis, api: &Api) -> Option<String> {
        let name = &node.key.name;
        let relabelled = self.gates.relabelled.get(name);
        if relabelled.is_some_and(|at| now < at + EXCUSED) {
            return None;
        }
        let why = &condition(node)?["reason"];
        if *why == "WaitLimitReached" {
            let told = self.gates.told.get(&node.uid).copied();
            let waited = told.map_or(0, |told| now - told);
            // The condition was decided before it arrived, and may have been lost on its way.
            let early = waited + UNSEEN < MAX_WAIT && self.clock_stepped == 0;
            return early.then(|| format!("{name} is released by its limit after {waited} ms"));
        }
        let known = |job: &&crate::api::Shared| {
            let info = self.jobs.get(&job.uid);
            info.is_some_and(|info| info.edited + UNSEEN < now) && !job.is_leaving()
        };
        let over = |job: &crate::api::Shared| self.gates.over.contains(&(job.uid.clone(), name.clone()));
        let mut jobs = api.list(Kind::PullJob).filter(known);
        let job = jobs.find(|job| selects(job, node) && !over(job))?;
        Some(format!(
            "{name} is released ({why}), and {} is not over there",
            job.key.name
        ))
    }

    /// Without faults, no node waits beyond its limit. To be asked every few seconds.
    pub(crate) fn closed_gate(&self, api: &Api, now: Millis) -> Option<Violation> {
        let told = |node: &Object| self.gates.told.get(&node.uid).copied();
        let is_late = |node: &Object| told(node).is_some_and(|told| told + MAX_WAIT + RELEASED_WITHIN < now);
        let mut nodes = api.list(Kind::Node).filter(|_| self.clock_stepped == 0);
        let node = nodes.find(|node| is_late(node) && !is_released(node))?;
        Some(Violation {
            invariant: Invariant::GateStaysClosed,
            what: format!("{} waits beyond its limit: {}", node.key.name, node.value["status"]),
        })
    }

    /// A node that has to wait for ever: when all is over, every node is released.
    pub(super) fn closed_for_ever(&self, api: &Api) -> Option<Violation> {
        if !self.fleet.gates_nodes {
            return None;
        }
        let has_taint = |node: &Object| {
            let taints = node.value["spec"]["taints"].as_array();
            taints.into_iter().flatten().any(|taint| taint["key"] == TAINT)
        };
        let node = api
            .list(Kind::Node)
            .find(|node| has_taint(node) || !is_released(node))?;
        Some(Violation {
            invariant: Invariant::GateStaysClosed,
            what: format!(
                "{} is not released: {} {}",
                node.key.name, node.value["spec"], node.value["status"]
            ),
        })
    }
}
