//! The main loop: watches and finished calls feed the engine, the engine decides, and what it wants written is sent.
//!
//! One task owns everything that is known; nothing else decides. Reads and writes run beside it, a bounded number at a
//! time, each with a time limit, and at most one for an object. Nothing is written unless this replica may
//! ([`Leadership::may_write`]), and a new term begins with a list of everything.

mod forbidden_log;
mod history;
pub(crate) mod metrics;
mod policy_watch;
mod watch_health;
pub(crate) mod watches;
pub(crate) mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use larder_access::POLICY;
use larder_api::names::EDGE_NODE_LABEL;
use larder_planner::node_policy::Probe;
use larder_telemetry::Part;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::metrics::Metrics;
use self::policy_watch::PolicyWatch;
use self::watches::{Content, WatchMessage, Watches};
#[doc(hidden)]
pub use self::writes::read_secret;
use self::writes::{CallClass, FinishedCall, Request, Writes};
use crate::clock;
use crate::engine::{Engine, Limits, WatchKind};
use crate::kinds;
use crate::lease::Leadership;
use crate::lists::{ListJobs, ListWriteResult};
use crate::run::CoreInputs;

/// Watch events that wait for the engine. Watches wait when it is full.
const WATCH_EVENTS: usize = 4_096;

/// Watch events that are taken in before the engine decides: a burst is decided once, and no write waits long.
const BATCH: usize = 512;

/// Everything is looked at again this often, a little at a time, whether or not anything happened.
const RESYNC: Duration = Duration::from_mins(5);

/// A watch that fails for longer makes the controller unready: what it knows may be out of date.
const WATCH_MAY_FAIL: Duration = Duration::from_mins(1);

/// Without anything to wait for, the engine is asked again after this long.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// Runs the core until it is stopped.
pub async fn run(inputs: CoreInputs, metrics: Metrics) {
    let CoreInputs {
        client,
        settings,
        health,
        permit,
        restores,
        stop,
    } = inputs;
    let limits = Limits {
        max_active_pulls: settings.max_active_pulls,
        pause: settings.pause,
        not_served: settings.gates.not_served(),
        shared_writer_label: settings.accept_cloudcore.then_some(EDGE_NODE_LABEL),
        accept_unenforced_node_policy: settings.accept_unenforced_node_policy,
        cluster_job_secrets: settings.pre_pull_secret_namespaces.clone(),
        agent_nodes: settings.agent_nodes.clone(),
        windows: Arc::new(settings.windows.clone()),
        node_gate: settings.node_gate.clone(),
    };
    let watched = (!settings.accept_unenforced_node_policy).then(|| client.clone());
    let (sender, events) = mpsc::channel(WATCH_EVENTS);
    let core = Core {
        lists: ListJobs::new(limits.not_served),
        engine: Engine::new(limits),
        watches: Watches::new(client.clone(), sender, settings.node_gate.is_some()),
        policy: PolicyWatch::start(watched),
        probed: None,
        writes: Writes::new(client, settings.agent_user(), metrics.clone()),
        permit,
        restores,
        term: None,
        drains: false,
        failing: BTreeMap::new(),
        metrics,
        part: health.part("core"),
    };
    core.run(events, stop).await;
}

/// What the loop woke up for.
enum Wakeup {
    Finished(FinishedCall),
    WatchEvent(WatchMessage),
    /// The node policy or its binding changed.
    PolicyChanged,
    /// The leadership changed, or a moment has come.
    Otherwise,
}

struct Core {
    engine: Engine,
    lists: ListJobs,
    watches: Watches,
    policy: PolicyWatch,
    /// What came of the last try of the node policy that showed anything.
    probed: Option<Probe>,
    writes: Writes,
    permit: watch::Receiver<Leadership>,
    restores: watch::Sender<u64>,
    /// The term that the watches were started for.
    term: Option<u64>,
    /// Everything was forgotten, and calls of before are in flight.
    drains: bool,
    /// Watches that fail, and since when.
    failing: BTreeMap<WatchKind, Instant>,
    metrics: Metrics,
    part: Part,
}

impl Core {
    async fn run(mut self, mut events: mpsc::Receiver<WatchMessage>, stop: CancellationToken) {
        self.watches.restart();
        let mut next_resync = Instant::now() + RESYNC;
        while let Some(wakeup) = self.wait(&mut events, next_resync, &stop).await {
            let began = Instant::now();
            self.take_in(wakeup, &mut events);
            self.follow_permit();
            let now = clock::now();
            if self.engine.clock_went_back(now) {
                warn!("the clock was set back; listing everything again");
                self.restart();
            }
            if next_resync <= began {
                next_resync = began + self.resync(now);
            }
            self.act(now);
            self.metrics.iterated(began.elapsed());
        }
        self.watches.stop();
        self.writes.finish().await;
    }

    /// Waits for the next thing that happens; None when the core is to stop.
    async fn wait(
        &mut self,
        events: &mut mpsc::Receiver<WatchMessage>,
        next_resync: Instant,
        stop: &CancellationToken,
    ) -> Option<Wakeup> {
        let wake = self.wake().min(next_resync);
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            Some(finished) = self.writes.finished() => Some(Wakeup::Finished(finished)),
            changed = self.permit.changed() => changed.is_ok().then_some(Wakeup::Otherwise),
            () = self.policy.changed() => Some(Wakeup::PolicyChanged),
            Some(event) = events.recv() => Some(Wakeup::WatchEvent(event)),
            () = sleep_until(wake) => Some(Wakeup::Otherwise),
        }
    }

    /// Takes in what has happened: a batch of events, and every call that has finished.
    fn take_in(&mut self, wakeup: Wakeup, events: &mut mpsc::Receiver<WatchMessage>) {
        match wakeup {
            Wakeup::Finished(finished) => self.finished(finished),
            Wakeup::WatchEvent(event) => {
                self.observe(event);
                for _ in 0..BATCH {
                    match events.try_recv() {
                        Ok(event) => self.observe(event),
                        Err(_) => break,
                    }
                }
            }
            Wakeup::PolicyChanged => self.engine.policy_changed(),
            Wakeup::Otherwise => {}
        }
        while let Some(finished) = self.writes.already_finished() {
            self.finished(finished);
        }
        self.show_readiness();
    }

    fn observe(&mut self, message: WatchMessage) {
        if message.epoch != self.watches.epoch() {
            return;
        }
        match message.content {
            Content::Event(event) => {
                let now = clock::now();
                self.lists.observe(&message.kind, &event, now);
                self.engine.observe(&message.kind, event, now);
            }
            Content::Failing(true) => {
                self.failing.entry(message.kind).or_insert_with(Instant::now);
            }
            Content::Failing(false) => {
                self.failing.remove(&message.kind);
            }
            Content::WentBackwards => {
                warn!(
                    kind = %message.kind,
                    "resource versions went backwards, as after a restore of etcd; listing everything again"
                );
                self.metrics.went_backwards();
                self.restores.send_modify(|restores| *restores += 1);
                self.restart();
            }
        }
    }

    /// Says whether the controller's picture is complete and current.
    fn show_readiness(&self) {
        let stale = self.failing.iter().find(|(_, since)| WATCH_MAY_FAIL < since.elapsed());
        if let Some((kind, since)) = stale {
            let seconds = since.elapsed().as_secs();
            self.part
                .waiting(format!("the watch of {kind} has failed for {seconds} s"));
        } else if self.engine.is_complete() && self.lists.is_complete() {
            self.part.ready();
        } else {
            self.part.waiting("listing nodes, NodeImages and jobs");
        }
    }

    /// Forgets what was known, and lists everything again.
    fn restart(&mut self) {
        self.engine.restart();
        self.lists.restart();
        self.watches.restart();
        self.failing.clear();
        self.drains = true;
    }

    fn finished(&mut self, finished: FinishedCall) {
        let now = clock::now();
        if let Some((kind, object)) = finished.object() {
            self.watches.answered(&kind, object);
        }
        match finished {
            FinishedCall::Node(node, result) => self.engine.node_written(&node, result, now),
            FinishedCall::Job(target, result) => self.engine.job_written(&target, result, now),
            FinishedCall::List(target, result) => {
                if let ListWriteResult::Child(child) = &result
                    && let Some(job) = kinds::child_job((**child).clone())
                {
                    self.engine.job_created(job, now);
                }
                if let Some(event) = self.lists.written(&target, result, now) {
                    self.engine.events().push(event);
                }
            }
            FinishedCall::Secret(secret, read) => self.engine.secret_read(&secret, read, now),
            FinishedCall::PolicyProbe(probe, answer) => {
                self.engine.policy_probed(probe, now);
                self.log_probe(probe, &answer);
            }
            FinishedCall::NodeGate(node, write, result) => {
                if let Some(reason) = self.engine.gate_written(&node, write, result, now) {
                    self.metrics.node_released(reason);
                }
            }
            FinishedCall::Event => {}
        }
    }

    /// A finding is logged when it changes.
    fn log_probe(&mut self, probe: Probe, answer: &str) {
        if probe == Probe::NoAnswer || self.probed.replace(probe) == Some(probe) {
            return;
        }
        match probe {
            Probe::Refused => info!(policy = POLICY, "the node policy is enforced"),
            Probe::Accepted => warn!(
                policy = POLICY,
                "the node policy is not enforced: any agent can write the status of any node; no logins are sent to nodes"
            ),
            Probe::Inconclusive | Probe::NoAnswer => warn!(
                policy = POLICY,
                answer, "whether the node policy is enforced cannot be found out; no logins are sent to nodes"
            ),
        }
    }

    /// A new term begins with a list of everything: what the last leader wrote is in it.
    fn follow_permit(&mut self) {
        let term = self.permit.borrow_and_update().term();
        if term == self.term {
            return;
        }
        self.term = term;
        let Some(term) = term else {
            self.metrics.step_down();
            return;
        };
        info!(term, "listing everything before the first decision");
        self.restart();
    }

    /// Looks at the next slice of everything, and says when the one after it is due.
    fn resync(&mut self, now: Timestamp) -> Duration {
        let slices = u32::try_from(self.engine.resync_slices()).unwrap_or(u32::MAX);
        if self.engine.resync_slice(now) {
            self.lists.resync();
        }
        RESYNC / slices
    }

    fn may_write(&self) -> bool {
        self.permit.borrow().may_write(Instant::now())
    }

    /// Decides, and sends what is to be written, as far as there is room.
    fn act(&mut self, now: Timestamp) {
        // What was sent before a restart may yet change what the lists have shown.
        self.drains &= !self.writes.is_empty();
        if !self.may_write() || self.drains {
            return;
        }
        self.engine.decide(now);
        self.lists.decide(now);
        self.watches.follow_pods(&self.engine.pod_namespaces());
        if self.writes.has_room(CallClass::PolicyProbe)
            && let Some(node) = self.engine.next_policy_probe(now)
        {
            self.writes.send(Request::PolicyProbe(node));
        }
        while self.writes.has_room(CallClass::Node)
            && let Some((node, write)) = self.engine.next_node_write(now)
        {
            self.writes.send(Request::Node(node, write));
        }
        while self.writes.has_room(CallClass::Job)
            && let Some((target, write)) = self.engine.next_job_write(now)
        {
            self.writes.send(Request::Job(target, write));
        }
        while self.writes.has_room(CallClass::Job)
            && let Some((target, write)) = self.lists.next_write(now)
        {
            self.writes.send(Request::List(target, write));
        }
        self.write_nodes(now);
        while self.writes.has_room(CallClass::Secret)
            && let Some(secret) = self.engine.next_secret()
        {
            self.writes.send(Request::Secret(secret));
        }
        while self.writes.has_room(CallClass::Event)
            && let Some(event) = self.engine.events().pop()
        {
            self.writes.send(Request::Event(event));
        }
        self.metrics.show(&self.engine);
    }

    /// Releases new nodes, or says what they wait for.
    fn write_nodes(&mut self, now: Timestamp) {
        if self.next_gate_look().is_none_or(|moment| now < moment) {
            return;
        }
        let all_jobs_made = self.lists.gates_are_made();
        while self.writes.has_room(CallClass::NodeGate)
            && let Some((node, write)) = self.engine.next_gate_write(all_jobs_made, now)
        {
            self.writes.send(Request::NodeGate(node, write));
        }
    }

    /// When new nodes have to be looked at, if there is room for a write.
    fn next_gate_look(&self) -> Option<Timestamp> {
        let may_look = self.lists.is_complete() && self.writes.has_room(CallClass::NodeGate);
        may_look.then(|| self.engine.next_gate_look()).flatten()
    }

    /// When to look again without being told.
    fn wake(&self) -> Instant {
        let now = clock::now();
        let soon = Instant::now();
        if self.drains {
            return soon + LONGEST_SLEEP;
        }
        let has_work =
            self.engine.is_undecided() || (self.engine.has_queued_nodes() && self.writes.has_room(CallClass::Node));
        if has_work && self.may_write() {
            return soon;
        }
        // Only the leader tries the policy, and writes nodes.
        let probe = self.engine.next_policy_probe_at().filter(|_| self.may_write());
        let gate = self.next_gate_look().filter(|_| self.may_write());
        let next = [self.engine.next_wake(), self.lists.next_wake(), probe, gate]
            .into_iter()
            .flatten()
            .min();
        let left = next.map(|moment| moment.duration_since(now));
        let left = left.and_then(|left| Duration::try_from(left).ok().or(Some(Duration::ZERO)));
        // Rounded up: waking a moment too early would only mean to go to sleep again.
        soon + left.map_or(LONGEST_SLEEP, |left| {
            (left + Duration::from_millis(1)).min(LONGEST_SLEEP)
        })
    }
}
