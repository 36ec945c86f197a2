//! New nodes that wait for the images of gating jobs: which of them to look at, and what to write on their Nodes. When a node
//! is released is decided in [`larder_planner::node_gate`].
//!
//! A node is known here until the watch has shown that it was released and that its start-up taint is gone. Without
//! [`GateRules`] no node ever is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::names::IMAGES_READY_CONDITION;
use larder_planner::NodeKey;
use larder_planner::node_gate::{
    GateDecision, GateReason, GateRules, GateStep, GatingJob, GatingJobs, NewCondition, decide,
};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::work_queue::Timers;
use super::write_throttle::WriteThrottle;
use super::{Engine, JobId, NewEvent};
use crate::facts::GateFacts;

/// While jobs are still being looked at, a node is looked at again this soon.
const SOON: SignedDuration = SignedDuration::from_secs(5);

/// Nodes that wait.
pub(super) struct NodeGate {
    rules: Option<GateRules>,
    nodes: BTreeMap<NodeKey, WaitingNode>,
    looks: BTreeSet<NodeKey>,
    later: Timers<NodeKey>,
}

struct WaitingNode {
    facts: GateFacts,
    first_seen: Timestamp,
    /// When the condition was written, or first seen, by this process.
    written: Timestamp,
    throttle: WriteThrottle,
    /// Whether the last look found that it has to wait.
    waits: bool,
    /// The release that was sent. It may have arrived although its response did not, so that nothing else is sent after it.
    release: Option<NewCondition>,
}

/// What is to be written on a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct GateWrite {
    /// The Node's uid.
    pub uid: String,
    pub what: GateStep,
    /// The patch that does it: of the status, by strategic merge, for a condition; else a JSON patch.
    pub patch: Value,
}

/// The Node after a write, or why it was not written.
pub type GateWriteResult = Result<GateFacts, String>;

impl NodeGate {
    pub(super) fn new(rules: Option<GateRules>) -> Self {
        Self {
            rules,
            nodes: BTreeMap::new(),
            looks: BTreeSet::new(),
            later: Timers::default(),
        }
    }

    /// The key of the start-up taint.
    pub(super) fn taint(&self) -> Option<&str> {
        self.rules.as_ref().map(|rules| rules.taint.as_str())
    }

    /// Takes in a Node from the watch.
    pub(super) fn observe(&mut self, node: &NodeKey, facts: GateFacts, now: Timestamp) {
        let Some(rules) = &self.rules else {
            return;
        };
        let known = self.nodes.get_mut(node).filter(|known| known.facts.uid == facts.uid);
        // The watch may be behind a write.
        if known
            .as_ref()
            .is_some_and(|known| facts.revision < known.facts.revision)
        {
            return;
        }
        if facts.node.is_open(rules) {
            self.gone(node);
            return;
        }
        match known {
            // A kubelet's heartbeat is no reason to look.
            Some(known) if known.facts.node == facts.node => known.facts = facts,
            Some(known) => {
                known.facts = facts;
                self.looks.insert(node.clone());
            }
            None => {
                let waiting = WaitingNode {
                    facts,
                    first_seen: now,
                    written: now,
                    throttle: WriteThrottle::default(),
                    waits: false,
                    release: None,
                };
                self.nodes.insert(node.clone(), waiting);
                self.looks.insert(node.clone());
            }
        }
    }

    pub(super) fn gone(&mut self, node: &NodeKey) {
        self.nodes.remove(node);
        self.looks.remove(node);
        self.later.set(node, None);
    }

    pub(super) fn restart(&mut self) {
        *self = Self::new(self.rules.take());
    }

    /// Something happened that may concern a node.
    pub(super) fn look_at(&mut self, node: &NodeKey) {
        if self.nodes.contains_key(node) {
            self.looks.insert(node.clone());
        }
    }

    /// Something happened that may concern every node.
    pub(super) fn look_at_all(&mut self) {
        self.looks.extend(self.nodes.keys().cloned());
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.nodes.values().filter(|node| node.waits).count()
    }

    fn next_look(&mut self, now: Timestamp) -> Option<NodeKey> {
        self.looks.pop_first().or_else(|| self.later.pop_due(now))
    }
}

impl Engine {
    /// When nodes have to be looked at next that may have to wait; a moment that has passed if at once.
    pub fn next_gate_look(&self) -> Option<Timestamp> {
        let at_once = (!self.gate.looks.is_empty()).then_some(Timestamp::MIN);
        at_once
            .or_else(|| self.gate.later.first())
            .filter(|_| self.is_complete())
    }

    /// The next Node to write. `all_jobs_made`: jobs that create gating jobs have created all of them.
    pub fn next_gate_write(&mut self, all_jobs_made: bool, now: Timestamp) -> Option<(NodeKey, GateWrite)> {
        if !self.is_complete() || self.jobs.has_unread() {
            return None;
        }
        while let Some(node) = self.gate.next_look(now) {
            // The end of the scan brings the node back.
            if !self.gating_jobs_have_seen(&node) {
                self.gate.later.set(&node, Some(soon(now)));
                continue;
            }
            let jobs = self.gating_jobs(&node, all_jobs_made);
            if let Some(write) = self.gate.look(&node, &jobs, now) {
                return Some((node, write));
            }
        }
        None
    }

    /// Takes in how a write of a Node ended. Gives back why the node was released, if it was.
    pub fn gate_written(
        &mut self,
        node: &NodeKey,
        write: GateWrite,
        result: GateWriteResult,
        now: Timestamp,
    ) -> Option<GateReason> {
        let is_written = result.is_ok();
        self.gate.written(node, &write, result, now);
        // The watch may have shown it before, so that the node is not known any more.
        let GateStep::Condition(condition) = write.what else {
            return None;
        };
        if !is_written || !condition.reason.is_release() {
            return None;
        }
        let (reason, message) = (condition.reason.as_str(), &condition.message);
        info!(node = &**node, reason, message, "a new node is released");
        if condition.reason == GateReason::WaitLimitReached {
            self.events.push(NewEvent {
                subject: reference(node, &write.uid),
                warning: true,
                reason,
                text: condition.message,
            });
        }
        Some(condition.reason)
    }

    /// Whether all gating jobs have seen a node: one that was read just now sees one node after the other.
    fn gating_jobs_have_seen(&self, node: &NodeKey) -> bool {
        let gates = |id: &JobId| {
            self.jobs
                .running(*id)
                .is_some_and(|running| running.progress.campaign().gates_nodes)
        };
        self.scan.is_past(node) || !self.scan.jobs().any(|id| gates(&id))
    }

    /// The jobs that gate a node, as they stand there.
    fn gating_jobs(&self, node: &NodeKey, all_jobs_made: bool) -> GatingJobs {
        // Jobs select by the labels of the NodeImage, which follow those of the Node.
        let relabelled = self
            .nodes
            .get(node)
            .is_some_and(|record| record.labels_to_write().is_some());
        let mut found = GatingJobs {
            jobs: Vec::new(),
            may_be_more: relabelled || !all_jobs_made,
        };
        for record in self.jobs.records().values() {
            let Some(running) = record
                .running()
                .filter(|running| running.progress.campaign().gates_nodes)
            else {
                continue;
            };
            if let Some(state) = running.progress.gating_state(node) {
                let task = running.progress.campaign().tasks.of(node);
                let images = task.into_iter().flat_map(|task| task.images());
                found.jobs.push(GatingJob {
                    name: format!("{}/{}", record.key.namespace, record.key.name),
                    images: images.map(|image| image.image.familiar()).collect(),
                    state,
                });
            }
        }
        found
    }
}

impl NodeGate {
    /// Looks at a node: what to write, and when to look again.
    fn look(&mut self, node: &NodeKey, jobs: &GatingJobs, now: Timestamp) -> Option<GateWrite> {
        let (rules, known) = (self.rules.as_ref()?, self.nodes.get_mut(node)?);
        if known.throttle.in_flight {
            return None;
        }
        if !known.throttle.is_free(now) {
            self.later.set(node, Some(known.throttle.not_before));
            return None;
        }
        let moments = (known.first_seen, known.written);
        let release = known.release.clone().filter(|_| !known.facts.node.was_released());
        let decision = match release {
            Some(release) => GateDecision {
                step: Some(GateStep::Condition(release)),
                next_look: None,
            },
            None => decide(rules, &known.facts.node, jobs, moments, now),
        };
        let next = match decision.next_look {
            Some(next) if jobs.may_be_more => Some(next.min(soon(now))),
            next => next,
        };
        self.later.set(node, next);
        known.waits = decision.next_look.is_some();
        let what = decision.step?;
        if let GateStep::Condition(condition) = &what {
            known.release = Some(condition.clone()).filter(|condition| condition.reason.is_release());
        }
        let uid = known.facts.uid.clone();
        let patch = match &what {
            GateStep::Condition(condition) => condition_patch(&uid, condition, now),
            GateStep::RemoveTaint => taint_patch(&uid, &rules.taint, &known.facts.node.taints),
        };
        known.throttle.in_flight = true;
        Some(GateWrite { uid, what, patch })
    }

    /// Takes in how a write ended.
    fn written(&mut self, node: &NodeKey, write: &GateWrite, result: GateWriteResult, now: Timestamp) {
        // One line for all that fail at the same time: a missing right concerns every node.
        let is_news = !self.nodes.values().any(|known| known.throttle.has_failed());
        let Some(known) = self.nodes.get_mut(node).filter(|known| known.facts.uid == write.uid) else {
            return;
        };
        self.looks.insert(node.clone());
        match result {
            Ok(facts) => {
                known.throttle = WriteThrottle::default();
                if matches!(write.what, GateStep::Condition(_)) {
                    known.written = now;
                }
                // The watch may be ahead.
                if known.facts.revision <= facts.revision {
                    known.facts = facts;
                }
            }
            Err(error) => {
                known.throttle.failed(now);
                if is_news {
                    warn!(node = &**node, error, "a Node could not be written; trying again");
                } else {
                    debug!(node = &**node, error, "a Node could not be written; trying again");
                }
            }
        }
    }
}

/// Sets the condition and leaves the others as they are; refused if another Node has the name by now.
fn condition_patch(uid: &str, condition: &NewCondition, now: Timestamp) -> Value {
    let seconds = |moment: Timestamp| moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "metadata": {"uid": uid},
        "status": {"conditions": [{
            "type": IMAGES_READY_CONDITION,
            "status": if condition.reason.is_release() { "True" } else { "False" },
            "reason": condition.reason.as_str(),
            "message": condition.message,
            "lastHeartbeatTime": seconds(now),
            "lastTransitionTime": seconds(condition.since),
        }]},
    })
}

/// Takes the taint off, whatever its effects; refused if somebody else has changed the list since it was read.
fn taint_patch(uid: &str, key: &str, taints: &[String]) -> Value {
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": uid});
    let ours = taints.iter().enumerate().filter(|(_, taint)| *taint == key);
    // From the end, so that the places of the others stay as they are.
    let removals = ours.rev().flat_map(|(place, _)| {
        let test = json!({"op": "test", "path": format!("/spec/taints/{place}/key"), "value": key});
        [test, json!({"op": "remove", "path": format!("/spec/taints/{place}")})]
    });
    [uid].into_iter().chain(removals).collect()
}

fn soon(now: Timestamp) -> Timestamp {
    now.checked_add(SOON).unwrap_or(now)
}

fn reference(node: &NodeKey, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
