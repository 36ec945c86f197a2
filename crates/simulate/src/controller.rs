//! The controller's engine and its list jobs, seen from outside: the only module that knows their interface.
//!
//! It turns objects of the simulated API server into watch events, what the engine wants to be written into calls, and
//! responses into results, as the controller's own main loop does. The planted bugs are here too: each makes the interface
//! misbehave as a bug inside the engine would.

mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use jiff::Timestamp;
use larder_controller::engine::{Engine as Inner, JobTarget, JobWriteResult, Limits, NodeWrite, WatchEvent};
use larder_controller::kinds;
use larder_controller::lists::{ListJobs, ListWriteResult};
use larder_planner::kruise::PullJobs;
use larder_planner::node_gate::GateStep;
use larder_planner::windows::Windows;
use serde_json::{Value, json};

pub(crate) use self::requests::Request;
use self::requests::{
    gate_result, job_key, job_result, list_result, node_image_key, node_result, secret_read, shown, watch_kind,
};
use crate::api::{Call, Key, Kind, Response};
use crate::scenario;
use crate::stream::{Item, Scope};

/// Calls of each class at a time, as the controller allows: NodeImages, jobs, Secrets, Events, Nodes.
pub(crate) const MAX_IN_FLIGHT: [usize; 5] = [64, 16, 8, 4, 16];

/// A bug that is planted to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The moment at which the engine wants to be woken is forgotten.
    LostWakeUp,
    /// Now and then the end of a NodeImage write is not told, so that its slots stay taken.
    LeakedSlot,
    /// The response to a write of a deleted job is taken for one of the job that has its name now.
    ResponseMatchedByName,
    /// A write of a job that failed is not queued again.
    MissingRequeue,
    /// Windows of the fleet are not looked at.
    IgnoredWindows,
    /// A node that should wait is released.
    OpenGate,
    /// No node that waits is ever released.
    ClosedGate,
}

/// What a controller is started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetSettings {
    pub(crate) max_active_pulls: Option<usize>,
    /// In the form of a job's windows.
    pub(crate) windows: Value,
    /// Whether new nodes wait for images.
    pub(crate) gates_nodes: bool,
}

/// The engine of one replica, and its list jobs.
pub(crate) struct Engine {
    inner: Inner,
    lists: ListJobs,
    planted: Option<PlantedBug>,
    node_responses: u64,
    /// The uid that each job's name stood for last, for the bug that matches responses by name.
    uids: BTreeMap<Key, String>,
}

impl Engine {
    pub(crate) fn new(fleet: &FleetSettings, planted: Option<PlantedBug>) -> Self {
        let ignores_windows = planted == Some(PlantedBug::IgnoredWindows);
        let windows = Windows::parse_fleet(&fleet.windows.to_string()).ok();
        let limits = Limits {
            max_active_pulls: fleet.max_active_pulls.and_then(NonZeroUsize::new),
            windows: Arc::new(windows.filter(|_| !ignores_windows).unwrap_or_default()),
            node_gate: fleet.gates_nodes.then(scenario::gate_rules),
            // The simulated API server has no policies.
            accept_unenforced_node_policy: true,
            ..Limits::default()
        };
        Self {
            inner: Inner::new(limits),
            lists: ListJobs::new(None),
            planted,
            node_responses: 0,
            uids: BTreeMap::new(),
        }
    }

    /// What every replica watches.
    pub(crate) fn scopes() -> Vec<Scope> {
        let kinds = [
            Kind::Node,
            Kind::NodeImage,
            Kind::PullJob,
            Kind::PrePullJob,
            Kind::ListJob,
        ];
        kinds.into_iter().map(Scope::All).collect()
    }

    /// The pods that it wants to watch too.
    pub(crate) fn pod_scopes(&mut self) -> BTreeSet<Scope> {
        let namespaces = self.inner.pod_namespaces();
        namespaces
            .into_iter()
            .map(|namespace| Scope::Namespace(Kind::Pod, namespace))
            .collect()
    }

    pub(crate) fn observe(&mut self, scope: &Scope, item: &Item, now: Timestamp) {
        let Some(kind) = watch_kind(scope) else {
            return;
        };
        let event = match item {
            Item::Begin => WatchEvent::ListBegins,
            Item::Complete => WatchEvent::ListComplete,
            Item::Gone(object) => WatchEvent::Gone {
                namespace: object.key.namespace.clone(),
                name: object.key.name.clone(),
            },
            Item::Shown(object) => {
                self.uids.insert(object.key.clone(), object.uid.clone());
                shown(object)
            }
        };
        self.lists.observe(&kind, &event, now);
        self.inner.observe(&kind, event, now);
    }

    pub(crate) fn clock_went_back(&mut self, now: Timestamp) -> bool {
        self.inner.clock_went_back(now)
    }

    pub(crate) fn restart(&mut self) {
        self.inner.restart();
        self.lists.restart();
    }

    pub(crate) fn decide(&mut self, now: Timestamp) {
        self.inner.decide(now);
        self.lists.decide(now);
    }

    /// One slice of the resync.
    pub(crate) fn resync(&mut self, now: Timestamp) {
        self.inner.resync_slice(now);
        self.lists.resync();
    }

    /// Slices of a whole resync.
    pub(crate) fn resync_slices(&self) -> u64 {
        u64::try_from(self.inner.resync_slices()).unwrap_or(1).max(1)
    }

    /// The next request of a class.
    pub(crate) fn next_request(&mut self, class: usize, now: Timestamp) -> Option<Request> {
        match class {
            0 => self
                .inner
                .next_node_write(now)
                .map(|(node, write)| Request::Node(node, write)),
            1 => {
                let job = self
                    .inner
                    .next_job_write(now)
                    .map(|(target, write)| Request::Job(target, write));
                job.or_else(|| {
                    self.lists
                        .next_write(now)
                        .map(|(target, write)| Request::List(target, write))
                })
            }
            2 => self.inner.next_secret().map(Request::Secret),
            4 => self.next_gate_write(now),
            _ => self.inner.events().pop().map(|_| Request::Event),
        }
    }

    fn next_gate_write(&mut self, now: Timestamp) -> Option<Request> {
        if !self.lists.is_complete() {
            return None;
        }
        let (node, mut write) = self.inner.next_gate_write(self.lists.gates_are_made(), now)?;
        if matches!(write.what, GateStep::Condition(_)) {
            let condition = &mut write.patch["status"]["conditions"][0];
            match self.planted {
                Some(PlantedBug::OpenGate) => condition["status"] = json!("True"),
                Some(PlantedBug::ClosedGate) => condition["status"] = json!("False"),
                _ => {}
            }
        }
        Some(Request::Gate(node, write))
    }

    /// When it has to look at nodes that may have to wait.
    pub(crate) fn next_gate_look(&self) -> Option<Timestamp> {
        self.inner.next_gate_look().filter(|_| self.lists.is_complete())
    }

    /// Whether it has more to decide than it did in one go.
    pub(crate) fn is_undecided(&self) -> bool {
        self.inner.is_undecided()
    }

    /// Whether it has more nodes to look at than it did in one go.
    pub(crate) fn has_more_nodes(&self) -> bool {
        self.inner.has_queued_nodes()
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let wake = [self.inner.next_wake(), self.lists.next_wake()]
            .into_iter()
            .flatten()
            .min();
        wake.filter(|_| self.planted != Some(PlantedBug::LostWakeUp))
    }

    /// Tells the engine how a request ended; or gives back the call that has to be made first.
    pub(crate) fn respond(&mut self, request: &Request, response: Response, now: Timestamp) -> Option<Call> {
        match request {
            Request::Event => {}
            Request::Gate(node, write) => {
                self.inner
                    .gate_written(node, write.clone(), gate_result(&response), now);
            }
            Request::Secret(secret) => self.inner.secret_read(secret, secret_read(&response), now),
            Request::Node(node, write) => {
                self.node_responses += 1;
                if self.planted == Some(PlantedBug::LeakedSlot) && self.node_responses.is_multiple_of(40) {
                    return None;
                }
                // Another writer was faster: the object that is there counts.
                if let (NodeWrite::Create(_), Response::Refused(_)) = (write, &response) {
                    return Some(Call::Get(node_image_key(node)));
                }
                self.inner.node_written(node, node_result(write, response), now);
            }
            Request::Job(target, write) => {
                let result = job_result(write, response);
                let failed = matches!(result, JobWriteResult::Failed(_));
                if failed && self.planted == Some(PlantedBug::MissingRequeue) {
                    return None;
                }
                self.inner.job_written(&self.target(target), result, now);
            }
            Request::List(target, write) => {
                let result = list_result(write, response);
                if let ListWriteResult::Child(child) = &result
                    && let Some(job) = kinds::job::<PullJobs>((**child).clone())
                {
                    self.inner.job_created(job, now);
                }
                self.lists.written(target, result, now);
            }
        }
        None
    }

    /// The job that a response is taken in for.
    fn target(&self, target: &JobTarget) -> JobTarget {
        let mut target = target.clone();
        if self.planted == Some(PlantedBug::ResponseMatchedByName)
            && let Some(uid) = self.uids.get(&job_key(&target))
        {
            target.uid.clone_from(uid);
        }
        target
    }
}
