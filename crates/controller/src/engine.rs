//! The engine: everything the controller knows, and what follows from it. Synchronous: what was observed goes in, what is
//! to be written comes out, and nothing here waits for anything. It knows no kind of job; a [`Job`] erases the kind.
//!
//! | module | holds or decides |
//! |---|---|
//! | `sync` | which kinds were listed completely |
//! | `observe` | which part an event of a watch concerns |
//! | `nodes`, `compressed_node_image`, `strip` | per node: facts of its Node, its NodeImage, orders on their way |
//! | `node_views` | how a campaign sees a node |
//! | `node_scan` | jobs that have to see all nodes anew, and how far they are |
//! | `node_writes` | the writes of NodeImages, and what became of them |
//! | `jobs`, `job` | per job: its object, its state, its campaign's progress |
//! | `job_step` | one look at a job: read, hand out, end |
//! | `job_writes`, `write_throttle` | the writes of jobs' own objects |
//! | `secrets`, `pull_secrets` | what Secrets hold, and what that means for jobs |
//! | `credentials` | credentials, sealed to nodes |
//! | `node_gate` | new nodes that wait for images |
//! | `node_policy` | which nodes may be sent credentials |
//! | `pods` | per namespace with a job that selects nodes by pods: where its pods run |
//! | `results`, `events` | new results in NodeImages, and Events |
//! | `work_queue`, `resync` | what has to be looked at, at once, later, or again |
//! | `explain` | what the planner says of every node, for `larder why` |
//!
//! A change on one node touches that node and the jobs that select it, and nothing else.

mod compressed_node_image;
mod credentials;
mod events;
mod explain;
mod job;
mod job_step;
mod job_writes;
mod jobs;
mod node_gate;
mod node_policy;
mod node_scan;
mod node_views;
mod node_writes;
mod nodes;
mod observe;
mod pods;
mod pull_secrets;
mod results;
mod resync;
mod secrets;
mod strip;
mod sync;
#[cfg(test)]
mod tests;
mod work_queue;
mod write_throttle;

use std::num::NonZeroUsize;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use larder_planner::agent_nodes::AgentNodes;
use larder_planner::fleet::FleetLimit;
use larder_planner::node_gate::GateRules;
use larder_planner::secret::SecretNamespaces;
use larder_planner::windows::Windows;

use self::credentials::Logins;
pub use self::events::{EventRecorder, NewEvent};
pub(crate) use self::explain::FleetWaits;
pub(crate) use self::job::object_of;
pub use self::job::{Job, TypedJob};
pub use self::job_writes::{JobTarget, JobWrite, JobWriteResult};
use self::jobs::Jobs;
pub use self::jobs::{JobId, JobKey};
use self::node_gate::NodeGate;
pub use self::node_gate::{GateWrite, GateWriteResult};
use self::node_policy::SealingRules;
use self::node_scan::NodeScan;
use self::node_writes::LOOKS;
pub use self::node_writes::{NodeWrite, NodeWriteResult};
use self::nodes::Nodes;
use self::pods::Pods;
use self::resync::Resync;
pub use self::secrets::SecretRead;
use self::secrets::Secrets;
pub(crate) use self::sync::{Sync, object_name};
pub use self::sync::{WatchEvent, WatchKind};
pub(crate) use self::work_queue::Timers;
use self::work_queue::WorkQueue;
pub(crate) use self::write_throttle::WriteThrottle;

/// Clocks that are corrected by less than this disturb nothing.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// How much [`Engine::decide`] does at once: some milliseconds. The unit is the look whether a job selects a node.
const WORK: usize = 16_384;

/// One look at a job.
const JOB_WORK: usize = 1_024;

/// What holds for all jobs.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Pulls at once in the whole fleet.
    pub max_active_pulls: Option<NonZeroUsize>,
    /// Start no new pulls.
    pub pause: bool,
    /// Why no job is served, if none is: the message of every job.
    pub not_served: Option<&'static str>,
    /// Label of nodes for which an identity writes that other nodes share: nothing is sealed for them.
    pub shared_writer_label: Option<&'static str>,
    /// Seal credentials although the node policy may not be enforced.
    pub accept_unenforced_node_policy: bool,
    /// Secrets that jobs without a namespace may use.
    pub cluster_job_secrets: SecretNamespaces,
    /// Which nodes have an agent.
    pub agent_nodes: AgentNodes,
    /// When pulls may start, whatever the jobs say.
    pub windows: Arc<Windows>,
    /// How new nodes wait for images; they do not if this is not given.
    pub node_gate: Option<GateRules>,
}

/// Everything the controller knows.
pub struct Engine {
    limits: Limits,
    sync: Sync,
    nodes: Nodes,
    jobs: Jobs,
    fleet_limit: FleetLimit<JobId>,
    secrets: Secrets,
    sealing: SealingRules,
    gate: NodeGate,
    pods: Pods,
    events: EventRecorder,
    queue: WorkQueue,
    scan: NodeScan,
    /// How many more nodes may be looked at before the next decision.
    looks: usize,
    resync: Resync,
    /// The latest moment that was seen.
    latest: Timestamp,
}

impl Engine {
    pub fn new(limits: Limits) -> Self {
        Self {
            fleet_limit: FleetLimit::new(limits.max_active_pulls),
            sealing: SealingRules::new(&limits),
            gate: NodeGate::new(limits.node_gate.clone()),
            limits,
            sync: Sync::default(),
            nodes: Nodes::default(),
            jobs: Jobs::default(),
            secrets: Secrets::default(),
            pods: Pods::default(),
            events: EventRecorder::default(),
            queue: WorkQueue::default(),
            scan: NodeScan::default(),
            looks: LOOKS,
            resync: Resync::default(),
            latest: Timestamp::MIN,
        }
    }

    /// Whether the clock was set back since it was last asked. Everything that waits for a moment would wait too long: the
    /// engine has to be restarted.
    pub fn clock_went_back(&mut self, now: Timestamp) -> bool {
        let went_back = now.checked_add(CLOCK_TOLERANCE).is_ok_and(|now| now < self.latest);
        self.latest = if went_back { now } else { self.latest.max(now) };
        went_back
    }

    /// Whether everything was seen once, so that decisions rest on the whole picture.
    pub fn is_complete(&self) -> bool {
        WatchKind::of_engine().all(|kind| self.sync.is_synced(&kind))
    }

    /// Forgets what was in flight and that anything was seen: another replica may have led in between. The picture counts
    /// again when every kind was listed anew.
    pub fn restart(&mut self) {
        self.sync.restart();
        self.pods.restart();
        self.nodes.restart();
        self.jobs.restart();
        self.scan = NodeScan::default();
        self.gate.restart();
        self.fleet_limit.clear();
        self.secrets = Secrets::default();
        // The clock may have been set back.
        self.sealing.policy_changed();
    }

    /// Decides for what has to be looked at, as far as one turn of the main loop allows: see [`Self::is_undecided`].
    pub fn decide(&mut self, now: Timestamp) {
        if !self.is_complete() {
            return;
        }
        for node in self.queue.due_nodes(now) {
            self.queue.node(&node);
        }
        self.looks = LOOKS;
        self.count_all_slots();
        let mut done = 0;
        while done < WORK
            && let Some(work) = self.decide_next(now)
        {
            done += work;
        }
    }

    /// Does the next thing, and says how much work that was; None if there is nothing to do. All jobs are read before one is
    /// decided: a new leader finds orders of all of them, and they count for the fleet limit.
    fn decide_next(&mut self, now: Timestamp) -> Option<usize> {
        if let Some(job) = self.jobs.next_unread() {
            self.read_job(job, now);
            return Some(self.nodes.records().len().max(JOB_WORK));
        }
        // Neither waits for the end of the other.
        let scanned = self.scan_next(now);
        let decided = self.queue.next_job(now).map(|job| self.decide_job(job, now));
        scanned.or(decided).map(|_| scanned.unwrap_or(0) + decided.unwrap_or(0))
    }

    /// Whether there is more to decide than was done at once.
    pub fn is_undecided(&self) -> bool {
        self.is_complete() && (self.jobs.has_unread() || !self.scan.is_empty() || self.queue.has_jobs())
    }

    /// What jobs and hand-written entries may pull with.
    fn logins(&self) -> Logins<'_> {
        Logins {
            jobs: &self.jobs,
            secrets: &self.secrets,
            cluster_job_secrets: &self.limits.cluster_job_secrets,
        }
    }

    /// The next Secret to read.
    pub fn next_secret(&mut self) -> Option<larder_planner::SecretRef> {
        self.secrets.next()
    }

    /// The Events that are to be written.
    pub fn events(&mut self) -> &mut EventRecorder {
        &mut self.events
    }

    /// When time alone changes something.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.is_complete().then(|| self.queue.next_wake()).flatten()
    }

    /// Whether nodes wait to be looked at.
    pub fn has_queued_nodes(&self) -> bool {
        self.is_complete() && self.queue.has_nodes()
    }

    /// How much there is of everything.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            slots: self.fleet_limit.taken(),
            nodes: self.nodes.with_agent(),
            running_jobs: self.jobs.running_count(),
            dropped_events: self.events.dropped(),
            gated_nodes: self.gate.waiting_count(),
        }
    }
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub slots: usize,
    pub nodes: usize,
    pub running_jobs: usize,
    pub dropped_events: u64,
    pub gated_nodes: usize,
}

/// A resource version as a number; zero where it is none.
pub(crate) fn revision(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
