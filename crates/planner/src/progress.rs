//! Where a campaign stands, which node is next, and which order is taken back.
//!
//! [`Progress`] is told what changed on one node ([`Progress::node_changed`]) and asked what to do ([`Progress::decide`]).
//! Its counts, its queue and its timers are kept as it goes. What it asked for counts as done from that moment: a slot is
//! taken when it is handed out, and given back only when the outcome of the write is known ([`Progress::settle`]), so that
//! a slow or lost write never puts more nodes to work than allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use larder_model::Reason;

use crate::agent_nodes::{NoAgent, WithoutAgent};
use crate::campaign::{Campaign, later};
use crate::conditions::ProgressReason;
use crate::eta::EtaEstimator;
use crate::node_state::{ACKNOWLEDGE, Bucket, Derived, NoResponse, NodeState, Pending, QueueClass};
use crate::task::NodeTask;
use crate::view::{NodeKey, NodeView};
use crate::windows::{Closed, Windows};

mod clock;
mod counts;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod virtual_time;

pub use counts::Counts;
use counts::Load;

/// What to do for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claim the images of this node's task, or claim them anew.
    HandOut(NodeKey),
    /// Take this campaign's claim off the node.
    Withdraw(NodeKey),
}

/// How a [`Step`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderResult {
    /// Written; the view that the write returned was given to [`Progress::node_changed`] before.
    Done,
    /// Refused, or not possible any more.
    Refused(Reason),
}

/// Why nothing is handed out although nodes wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The whole fleet is paused.
    FleetPaused,
    /// Secrets that the job names cannot be used.
    Secrets {
        /// These do not exist.
        missing: Vec<String>,
        /// These hold nothing that is a docker configuration.
        unreadable: Vec<String>,
        /// These the controller may not read.
        forbidden: Vec<String>,
    },
    /// The job's Secrets are being read.
    ReadingSecrets,
    /// The pods that select the job's nodes are being listed.
    ListingPods,
    /// No window of the job, or of the whole fleet, is open.
    OutsideWindow(Closed),
}

/// Secrets of a job that hold no login for the registry of an image. The image is pulled without one, which is what somebody
/// may want who names the same Secrets for all images.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoLogin {
    /// The registry.
    pub registry: String,
    /// The Secrets, as `namespace/name`.
    pub secrets: Vec<String>,
}

/// Where a campaign stands.
#[derive(Clone, Debug)]
pub struct Progress {
    pub(crate) campaign: Campaign,
    pub(crate) started: Timestamp,
    /// Boxed: the leaves of a tree are half empty, and there may be a hundred thousand nodes in all campaigns together.
    pub(crate) nodes: BTreeMap<NodeKey, Box<IndexedNode>>,
    pub(crate) queue: BTreeSet<(QueueClass, NodeKey)>,
    pub(crate) counts: Counts,
    pub(crate) failed: BTreeSet<NodeKey>,
    pub(crate) hold: Option<Hold>,
    pub(crate) no_logins: Vec<NoLogin>,
    /// Nodes that the campaign would be for and that have no agent.
    pub(crate) without_agent: WithoutAgent,
    /// Nodes that need a login and whose NodeImage other software serves.
    pub(crate) foreign_agents: BTreeSet<NodeKey>,
    /// Nodes wait for nothing but the fleet's limit.
    pub(crate) capped: bool,
    /// Jobs with a higher priority that wait for it too, where that is known.
    pub(crate) jobs_before: usize,
    pub(crate) empty_since: Timestamp,
    pub(crate) eta: EtaEstimator,
    /// Windows of the whole fleet.
    fleet_windows: Arc<Windows>,
    /// When the next window opens or closes.
    window_change: Option<Timestamp>,
    /// The next time of the job's schedule.
    next_refresh: Option<Timestamp>,
    /// Work under way is taken back, because no window is open.
    stopped: bool,
    recalls: BTreeSet<NodeKey>,
    timers: BTreeSet<(Timestamp, NodeKey)>,
}

/// The state of a node, and what the counts, the queue and the timers hold for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexedNode {
    pub(crate) state: NodeState,
    pub(crate) derived: Derived,
    pub(crate) load: Load,
}

impl Progress {
    /// A campaign that began at `started` and has seen no node yet.
    pub fn new(campaign: Campaign, started: Timestamp) -> Self {
        Self {
            campaign,
            started,
            nodes: BTreeMap::new(),
            queue: BTreeSet::new(),
            counts: Counts::default(),
            failed: BTreeSet::new(),
            hold: None,
            no_logins: Vec::new(),
            without_agent: WithoutAgent::default(),
            foreign_agents: BTreeSet::new(),
            capped: false,
            jobs_before: 0,
            empty_since: started,
            eta: EtaEstimator::default(),
            fleet_windows: Arc::default(),
            window_change: None,
            next_refresh: None,
            stopped: false,
            recalls: BTreeSet::new(),
            timers: BTreeSet::new(),
        }
    }

    /// What is asked for.
    pub fn campaign(&self) -> &Campaign {
        &self.campaign
    }

    /// When it began.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// How many nodes are where.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Seconds until the job is done, at the rate of the last minutes. While no node is at work, nobody can tell.
    pub(crate) fn seconds_left(&self) -> Option<i64> {
        let left = || self.eta.seconds_left(self.counts.work_left());
        (0 < self.counts.active).then(left).flatten()
    }

    /// The nodes that are selected, or that still have an order.
    pub fn nodes(&self) -> Vec<NodeKey> {
        self.nodes.keys().cloned().collect()
    }

    /// Whether a node is selected, or still has an order.
    pub fn knows(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Whether the job's Secrets hold a login for the registry of an image.
    pub fn has_login(&self, registry: &str) -> bool {
        !self.no_logins.iter().any(|no_login| no_login.registry == registry)
    }

    /// Takes in what is now known of one node, and says whether anything may follow from it.
    pub fn node_changed(&mut self, node: &NodeKey, view: NodeView, now: Timestamp) -> bool {
        let known = self.nodes.get_mut(node).map(|indexed| &mut indexed.state);
        if known.is_none() && !view.selected && view.claim.is_none() {
            return false;
        }
        if known.is_some_and(|state| state.has_seen(&view)) {
            return false;
        }
        let foreign = view.selected && view.foreign_agent;
        let was_foreign = self.foreign_agents.contains(node);
        change(&mut self.foreign_agents, node, was_foreign, foreign);
        self.nodes.entry(node.clone()).or_default().state.see(view);
        self.reindex(node, now);
        true
    }

    /// Takes in how a step ended.
    pub fn settle(&mut self, node: &NodeKey, outcome: OrderResult, now: Timestamp) {
        let inside_windows = self.is_inside_windows(now);
        let Some(state) = self.nodes.get_mut(node).map(|indexed| &mut indexed.state) else {
            return;
        };
        let Some(pending) = state.pending.take() else {
            return;
        };
        match (outcome, pending) {
            (OrderResult::Done, Pending::HandOut(_)) => state.redo = false,
            // The windows closed before the order was written: the node is next when they open.
            (OrderResult::Refused(_), Pending::HandOut(_)) if !inside_windows => {}
            (OrderResult::Refused(reason), Pending::HandOut(since)) => {
                state.no_response = Some(Box::new(NoResponse::after(state, reason, since, now)));
            }
            (OrderResult::Done | OrderResult::Refused(_), Pending::Withdraw(_)) => {}
        }
        self.reindex(node, now);
    }

    /// Whether a node has the order, is about to get it, or has answered it.
    pub fn has_order(&self, node: &str) -> bool {
        let state = self.nodes.get(node).map(|indexed| &indexed.state);
        state.is_some_and(|state| state.pending.is_some() || state.view.claim.is_some())
    }

    /// Takes in an edit of the job. Views of all nodes follow, if what is claimed changed.
    pub fn edit(&mut self, campaign: Campaign, now: Timestamp) {
        self.replace_campaign(campaign, true, now);
    }

    /// Takes in a campaign that a change of the nodes made, not an edit of the job: a node that failed is not tried again.
    pub fn amend(&mut self, campaign: Campaign, now: Timestamp) {
        self.replace_campaign(campaign, false, now);
    }

    fn replace_campaign(&mut self, campaign: Campaign, edited: bool, now: Timestamp) {
        let before = std::mem::replace(&mut self.campaign, campaign);
        let nodes: Vec<NodeKey> = self.nodes.keys().cloned().collect();
        for node in nodes {
            if let Some(indexed) = self.nodes.get_mut(&node)
                && edited
                && matches!(indexed.derived.bucket, Bucket::Failed(_))
                && self.campaign.tries_again_after(&before, &node)
            {
                indexed.state.redo = true;
                indexed.state.gave_up = None;
                indexed.state.no_response = None;
            }
            self.reindex(&node, now);
        }
    }

    /// Gives one node another task.
    pub fn set_task(&mut self, node: &NodeKey, task: Arc<NodeTask>, now: Timestamp) {
        self.campaign.tasks.insert(node.clone(), task);
        self.reindex(node, now);
    }

    /// Stops or resumes handing out.
    pub fn hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// Notes for which images the job's Secrets are of no use.
    pub fn lacks_logins(&mut self, no_logins: Vec<NoLogin>) {
        self.no_logins = no_logins;
    }

    /// Notes that the campaign would be for a node if an agent ran there, or that it no longer is so. True if that is new.
    pub fn leave_out(&mut self, node: &NodeKey, reason: Option<NoAgent>) -> bool {
        self.without_agent.set(node, reason)
    }

    /// The nodes that the campaign would be for and that have no agent.
    pub fn without_agent(&self) -> &WithoutAgent {
        &self.without_agent
    }

    /// Notes whether the whole fleet's limit keeps nodes waiting, as [`Self::decide`] does by itself, and how many jobs with a
    /// higher priority wait for it too.
    pub fn cap(&mut self, capped: bool, jobs_before: usize) {
        (self.capped, self.jobs_before) = (capped, jobs_before);
    }

    /// Whether handing out is stopped.
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// What to do now, handing out to at most `allowance` nodes.
    pub fn decide(&mut self, allowance: usize, now: Timestamp) -> Vec<Step> {
        self.follow_windows(now);
        self.follow_schedule(now);
        self.wake(now);
        let mut steps = Vec::new();
        while let Some(node) = self.recalls.first().cloned() {
            self.start(&node, now);
            steps.push(Step::Withdraw(node));
        }
        for _ in 0..self.free_slots().min(allowance) {
            let Some((_, node)) = self.queue.first().cloned() else {
                break;
            };
            self.start(&node, now);
            steps.push(Step::HandOut(node));
        }
        self.capped = self.wants_allowance();
        steps
    }

    /// Whether nodes wait for nothing but the allowance of [`Self::decide`].
    pub fn wants_allowance(&self) -> bool {
        0 < self.free_slots() && !self.queue.is_empty()
    }

    /// What a job does that nothing holds.
    pub(crate) fn pace_reason(&self) -> ProgressReason {
        let Counts { active, desired, .. } = self.counts;
        if 0 < active {
            ProgressReason::Pulling
        } else if self.capped {
            ProgressReason::FleetLimit
        } else if self.campaign.is_endless() && self.counts.finished() == desired {
            ProgressReason::Following
        } else {
            ProgressReason::Waiting
        }
    }

    /// Whether a node has everything that it was asked for.
    pub fn has_succeeded(&self, node: &str) -> bool {
        let indexed = self.nodes.get(node);
        indexed.is_some_and(|indexed| indexed.derived.bucket == Bucket::Succeeded)
    }

    /// When time alone changes something, if nothing else does before.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let timer = self.timers.first().map(|(moment, _)| *moment);
        let clock = [self.window_change, self.next_refresh];
        [timer, self.next_end()].into_iter().chain(clock).flatten().min()
    }

    /// How many more nodes could be handed the order.
    fn free_slots(&self) -> usize {
        if self.hold.is_some() || self.too_many_failures() {
            return 0;
        }
        self.campaign.parallelism.saturating_sub(self.counts.slots)
    }

    /// Looks again at every node whose time has come.
    fn wake(&mut self, now: Timestamp) {
        while let Some((moment, node)) = self.timers.first().cloned()
            && moment <= now
        {
            self.timers.pop_first();
            self.reindex(&node, now);
        }
    }

    /// Marks a step as asked for.
    fn start(&mut self, node: &NodeKey, now: Timestamp) {
        let Some(indexed) = self.nodes.get_mut(node) else {
            return;
        };
        let IndexedNode { state, derived, .. } = &mut **indexed;
        match derived.recall {
            Some(Reason::Canceled) => state.pending = Some(Pending::Withdraw(Reason::Canceled)),
            Some(reason) => {
                // An order of a controller before this one, or of other software, may be months old, and the agents may be
                // starting just now: of their silence only what was listened to counts.
                let listened = later(now, -ACKNOWLEDGE);
                let since = state.view.claim.map_or(now, |claim| claim.handed_out.max(listened));
                state.no_response = Some(Box::new(NoResponse::after(state, reason, since, now)));
                state.pending = Some(Pending::Withdraw(reason));
            }
            None => state.pending = Some(Pending::HandOut(now)),
        }
        self.reindex(node, now);
    }

    /// Derives what follows from a node's state anew, and updates the counts, the queue and the timers by the difference.
    fn reindex(&mut self, node: &NodeKey, now: Timestamp) {
        let Some(indexed) = self.nodes.get_mut(node) else {
            return;
        };
        let mut derived = indexed.state.derive(&self.campaign, node, now);
        if self.stopped && derived.bucket == Bucket::Active && indexed.state.pending.is_none() {
            derived.recall = Some(Reason::Canceled);
            derived.wake = None;
        }
        if derived.gives_up {
            derived.gives_up = false;
            indexed.state.gave_up = derived.bucket.reason();
        }
        let load = Load::of(&indexed.state.view, derived.bucket);
        let (before, load_before) = (indexed.derived, indexed.load);
        (indexed.derived, indexed.load) = (derived, load);
        let gone =
            !indexed.state.view.selected && indexed.state.view.claim.is_none() && indexed.state.pending.is_none();

        self.counts.leave(before, load_before);
        self.counts.enter(derived, load);
        if before.bucket != Bucket::Outside && self.counts.desired == 0 {
            self.empty_since = now;
        }
        replace(&mut self.queue, node, before.turn, derived.turn);
        replace(&mut self.timers, node, before.wake, derived.wake);
        let was_failed = matches!(before.bucket, Bucket::Failed(_));
        let is_failed = matches!(derived.bucket, Bucket::Failed(_));
        change(&mut self.failed, node, was_failed, is_failed);
        change(
            &mut self.recalls,
            node,
            before.recall.is_some(),
            derived.recall.is_some(),
        );
        if gone {
            self.nodes.remove(node);
        }
    }
}

/// Moves a node from one key of an ordered set to another.
fn replace<K: Ord>(set: &mut BTreeSet<(K, NodeKey)>, node: &NodeKey, before: Option<K>, after: Option<K>) {
    if before == after {
        // A timer that went off is no longer in the set although its moment may stay the same.
        set.extend(after.map(|key| (key, node.clone())));
        return;
    }
    if let Some(key) = before {
        set.remove(&(key, node.clone()));
    }
    set.extend(after.map(|key| (key, node.clone())));
}

/// Puts a node into a set or takes it out, if it moved.
fn change(set: &mut BTreeSet<NodeKey>, node: &NodeKey, before: bool, after: bool) {
    match (before, after) {
        (false, true) => {
            set.insert(node.clone());
        }
        (true, false) => {
            set.remove(node);
        }
        (true, true) | (false, false) => {}
    }
}
