//! The calls that are in flight: a bounded number of each class at a time. What each of them does is in [`calls`].

mod calls;

use std::collections::{BTreeMap, HashMap};

use kube::Client;
use kube::core::ObjectMeta;
use larder_planner::kruise::PullJobs;
use larder_planner::{NodeKey, SecretRef};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::error;

pub use self::calls::read_secret;
pub(crate) use self::calls::write_job;
use self::calls::{get_secret, probe_policy, write_event, write_list, write_node, write_node_image};
use super::metrics::Metrics;
use crate::engine::{
    GateWrite, GateWriteResult, JobTarget, JobWrite, JobWriteResult, NewEvent, NodeWrite, NodeWriteResult, SecretRead,
    WatchKind,
};
use crate::kinds::KindId;
use crate::lists::{ListTarget, ListWrite, ListWriteResult};
use crate::policy_probe::Probe;

/// A class of calls. NodeImages are the bulk of the work; Events must never stand in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallClass {
    Node,
    Job,
    Secret,
    PolicyProbe,
    /// Writes of Nodes themselves.
    NodeGate,
    Event,
}

impl CallClass {
    /// Calls of the class at a time.
    const fn max_in_flight(self) -> usize {
        match self {
            Self::Node => 64,
            Self::Job | Self::NodeGate => 16,
            Self::Secret => 8,
            Self::PolicyProbe => 1,
            Self::Event => 4,
        }
    }
}

/// Something to be read or written.
pub(super) enum Request {
    Node(NodeKey, NodeWrite),
    Job(JobTarget, JobWrite),
    List(ListTarget, ListWrite),
    Secret(SecretRef),
    /// Try the node policy on this node's NodeImage.
    PolicyProbe(NodeKey),
    NodeGate(NodeKey, GateWrite),
    Event(NewEvent),
}

impl Request {
    fn class(&self) -> CallClass {
        match self {
            Request::Node(..) => CallClass::Node,
            Request::Job(..) | Request::List(..) => CallClass::Job,
            Request::Secret(_) => CallClass::Secret,
            Request::PolicyProbe(_) => CallClass::PolicyProbe,
            Request::NodeGate(..) => CallClass::NodeGate,
            Request::Event(_) => CallClass::Event,
        }
    }

    /// What counts as the result if the call ends without one.
    fn lost(&self) -> FinishedCall {
        let why = || "the call ended abnormally; the controller's log has the details".to_owned();
        match self {
            Request::Node(node, _) => FinishedCall::Node(node.clone(), NodeWriteResult::Unknown),
            Request::Job(target, _) => FinishedCall::Job(target.clone(), JobWriteResult::Failed(why())),
            Request::List(target, _) => FinishedCall::List(target.clone(), ListWriteResult::CreationUnknown(why())),
            Request::Secret(secret) => FinishedCall::Secret(secret.clone(), SecretRead::Failed),
            Request::PolicyProbe(_) => FinishedCall::PolicyProbe(Probe::NoAnswer, why()),
            Request::NodeGate(node, write) => FinishedCall::NodeGate(node.clone(), write.clone(), Err(why())),
            Request::Event(_) => FinishedCall::Event,
        }
    }
}

/// A request that has ended.
pub(super) enum FinishedCall {
    Node(NodeKey, NodeWriteResult),
    Job(JobTarget, JobWriteResult),
    List(ListTarget, ListWriteResult),
    Secret(SecretRef, SecretRead),
    /// What came of it, and what the API server answered.
    PolicyProbe(Probe, String),
    NodeGate(NodeKey, GateWrite, GateWriteResult),
    Event,
}

impl FinishedCall {
    /// The object that the API server answered with, and its kind.
    pub(super) fn object(&self) -> Option<(WatchKind, &ObjectMeta)> {
        match self {
            Self::Node(_, NodeWriteResult::Object(object)) => Some((WatchKind::NodeImage, &object.metadata)),
            Self::Job(target, JobWriteResult::Object(job)) => Some((WatchKind::Job(target.key.kind), job.metadata())),
            Self::List(_, ListWriteResult::List(list)) => Some((WatchKind::ParentJob, &list.metadata)),
            Self::List(_, ListWriteResult::Child(job)) => {
                Some((WatchKind::Job(KindId::of::<PullJobs>()?), &job.metadata))
            }
            Self::Node(..)
            | Self::Job(..)
            | Self::List(..)
            | Self::Secret(..)
            | Self::PolicyProbe(..)
            | Self::NodeGate(..)
            | Self::Event => None,
        }
    }
}

/// The calls that are in flight.
pub(super) struct Writes {
    client: Client,
    tasks: JoinSet<FinishedCall>,
    /// The class of each call, and what counts as its result if it panics.
    in_flight: HashMap<Id, (CallClass, FinishedCall)>,
    counts: BTreeMap<CallClass, usize>,
    /// The account of the agents, as the API server names it.
    agent: String,
    metrics: Metrics,
}

impl Writes {
    pub(super) fn new(client: Client, agent: String, metrics: Metrics) -> Self {
        Self {
            client,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            counts: BTreeMap::new(),
            agent,
            metrics,
        }
    }

    pub(super) fn has_room(&self, class: CallClass) -> bool {
        self.counts.get(&class).copied().unwrap_or(0) < class.max_in_flight()
    }

    /// Whether no call is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn send(&mut self, request: Request) {
        let (class, lost) = (request.class(), request.lost());
        let (client, agent, metrics) = (self.client.clone(), self.agent.clone(), self.metrics.clone());
        let task = self.tasks.spawn(async move {
            match request {
                Request::Node(node, write) => {
                    let result = write_node_image(client, &node, write, &metrics).await;
                    FinishedCall::Node(node, result)
                }
                Request::Job(target, write) => {
                    let kind = target.key.kind.kind();
                    let result = (kind.write)(client, target.clone(), write, metrics).await;
                    FinishedCall::Job(target, result)
                }
                Request::List(target, write) => {
                    let result = write_list(client, &target, write, &metrics).await;
                    FinishedCall::List(target, result)
                }
                Request::Secret(secret) => {
                    let read = get_secret(client, &secret, &metrics).await;
                    FinishedCall::Secret(secret, read)
                }
                Request::PolicyProbe(node) => {
                    let (probe, answer) = probe_policy(client, &node, &agent, &metrics).await;
                    FinishedCall::PolicyProbe(probe, answer)
                }
                Request::NodeGate(node, write) => {
                    let result = write_node(client, &node, &write, &metrics).await;
                    FinishedCall::NodeGate(node, write, result)
                }
                Request::Event(event) => {
                    write_event(client, event, &metrics).await;
                    FinishedCall::Event
                }
            }
        });
        *self.counts.entry(class).or_default() += 1;
        self.in_flight.insert(task.id(), (class, lost));
    }

    /// The next call that finishes; None while none is in flight.
    pub(super) async fn finished(&mut self) -> Option<FinishedCall> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(finished) = self.ended(ended) {
                return Some(finished);
            }
        }
    }

    /// A call that has finished.
    pub(super) fn already_finished(&mut self) -> Option<FinishedCall> {
        loop {
            let ended = self.tasks.try_join_next_with_id()?;
            if let Some(finished) = self.ended(ended) {
                return Some(finished);
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, FinishedCall), JoinError>) -> Option<FinishedCall> {
        let (id, finished) = match ended {
            Ok((id, finished)) => (id, Some(finished)),
            Err(error) => {
                error!(error = %error, "a call ended abnormally; this is a bug");
                (error.id(), None)
            }
        };
        let (class, lost) = self.in_flight.remove(&id)?;
        if let Some(count) = self.counts.get_mut(&class) {
            *count -= 1;
        }
        Some(finished.unwrap_or(lost))
    }

    /// Waits for what is in flight; each call has its own limit.
    pub(super) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests;
