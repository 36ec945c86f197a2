//! When pods may be scheduled on a new node: once the images of the jobs that gate it are there, or will not come, or the
//! node has waited long enough.
//!
//! A node is released once. The condition `larder.dev/ImagesReady` remembers that: while it is `True`, nothing closes the
//! node again, and a start-up taint that is still there is taken off. Nothing here puts a taint on a node.

use jiff::{SignedDuration, Timestamp};
use larder_model::{ByteSize, Reason, Retry};

use crate::agent_nodes::NoAgent;
use crate::campaign::later;
use crate::node_state::{Bucket, NodeState};
use crate::progress::Progress;
use crate::view::Loss;

/// How long a node waits at most, unless the controller is told otherwise.
pub const DEFAULT_MAX_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// While a node waits, its condition is written at most this often: everybody who watches nodes sees each write.
pub const REWRITE: SignedDuration = SignedDuration::from_mins(1);

/// Jobs that a condition's message names.
const NAMED: usize = 3;

/// Bytes of a condition's message.
const MESSAGE: usize = 1_000;

/// Taints of nodes that others still set up: labels, by which jobs select nodes, may be missing.
const INITIALIZING: [&str; 3] = [
    "node.cloudprovider.kubernetes.io/uninitialized",
    "karpenter.sh/unregistered",
    "node.cluster.x-k8s.io/uninitialized",
];

/// How the controller gates nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRules {
    /// Key of the start-up taint.
    pub taint: String,
    /// How long a node waits at most.
    pub max_wait: SignedDuration,
}

/// What the gate looks at on one Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatedNode {
    /// The condition `larder.dev/ImagesReady`.
    pub condition: Option<GateCondition>,
    /// Keys of all taints, in their order.
    pub taints: Vec<String>,
}

/// The condition `larder.dev/ImagesReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCondition {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when it has this status.
    pub since: Option<Timestamp>,
}

/// Why a node is released, or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GateReason {
    /// The images of all gating jobs are there.
    ImagesReady,
    /// No gating job selects the node.
    NoGatingJobs,
    /// Some are there, and the others cannot be pulled.
    ImagesFailed,
    /// The node has waited as long as it may.
    WaitLimitReached,
    /// The node waits.
    WaitingForImages,
}

/// One job that gates a node, as it stands on that node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatingJob {
    /// `namespace/name`.
    pub name: String,
    /// What it asks for.
    pub images: Vec<String>,
    /// How far the node is.
    pub state: GatingState,
}

/// How far a node is with one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatingState {
    /// The node has everything.
    Done,
    /// Another try would end the same way.
    FailedForGood(Reason),
    /// The node is to get it; a text for people says how far it is or what is wrong. The text does not change with time alone.
    Waiting(String),
}

/// All that is known of a node's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatingJobs {
    /// Those that select the node.
    pub jobs: Vec<GatingJob>,
    /// There may be others that have not been looked at yet.
    pub may_be_more: bool,
}

/// What to do for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateDecision {
    /// What to write now.
    pub step: Option<GateStep>,
    /// When to look again, if nothing happens before; None for a node that does not wait.
    pub next_look: Option<Timestamp>,
}

/// A write on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateStep {
    /// Say what the node waits for, or release it. The condition comes before the taint, because it remembers the release.
    Condition(NewCondition),
    /// Take the start-up taint off a node that was released.
    RemoveTaint,
}

/// A condition to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// Its reason, which also says its status.
    pub reason: GateReason,
    /// Its message.
    pub message: String,
    /// Since when it has its status.
    pub since: Timestamp,
}

impl GateReason {
    /// The word in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ImagesReady => "ImagesReady",
            Self::NoGatingJobs => "NoGatingJobs",
            Self::ImagesFailed => "ImagesFailed",
            Self::WaitLimitReached => "WaitLimitReached",
            Self::WaitingForImages => "WaitingForImages",
        }
    }

    /// Whether the node is released.
    pub const fn is_release(self) -> bool {
        !matches!(self, Self::WaitingForImages)
    }
}

impl GatedNode {
    /// Whether nothing is left to do: the node was released, and the taint is gone.
    pub fn is_open(&self, rules: &GateRules) -> bool {
        self.was_released() && !self.has_taint(rules)
    }

    /// Whether the node was released before.
    pub fn was_released(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.is_true)
    }

    fn has_taint(&self, rules: &GateRules) -> bool {
        self.taints.contains(&rules.taint)
    }

    fn is_initializing(&self) -> bool {
        self.taints.iter().any(|key| INITIALIZING.contains(&key.as_str()))
    }

    /// Since when the node waits: since it was first told so, or, before that, was first seen. Never in the future, whatever
    /// the clock of another replica showed.
    fn waits_since(&self, first_seen: Timestamp) -> Timestamp {
        let told = self.condition.as_ref().and_then(|condition| condition.since);
        told.map_or(first_seen, |told| told.min(first_seen))
    }
}

/// What to do for a node that was first seen at `first_seen` and whose condition was written at `written`, both by this
/// process.
pub fn decide(
    rules: &GateRules,
    node: &GatedNode,
    jobs: &GatingJobs,
    (first_seen, written): (Timestamp, Timestamp),
    now: Timestamp,
) -> GateDecision {
    if node.was_released() {
        return GateDecision {
            step: node.has_taint(rules).then_some(GateStep::RemoveTaint),
            next_look: None,
        };
    }
    let since = node.waits_since(first_seen);
    let limit = later(since, rules.max_wait);
    let reason = reason(node, jobs, limit <= now);
    let message = message(reason, jobs, node.is_initializing());
    if reason.is_release() {
        let released = NewCondition {
            reason,
            message,
            since: now,
        };
        return GateDecision {
            step: Some(GateStep::Condition(released)),
            next_look: None,
        };
    }
    let says_so = |condition: &GateCondition| condition.reason == reason.as_str() && condition.message == message;
    let due = match &node.condition {
        None => Some(now),
        Some(condition) if says_so(condition) => None,
        Some(_) => Some(later(written, REWRITE)),
    };
    let is_due = due.is_some_and(|due| due <= now);
    let waits = NewCondition { reason, message, since };
    GateDecision {
        step: is_due.then_some(GateStep::Condition(waits)),
        next_look: Some(due.filter(|_| !is_due).unwrap_or(later(now, REWRITE)).min(limit)),
    }
}

fn reason(node: &GatedNode, jobs: &GatingJobs, limit_is_over: bool) -> GateReason {
    let waits = |job: &GatingJob| matches!(job.state, GatingState::Waiting(_));
    let failed = |job: &GatingJob| matches!(job.state, GatingState::FailedForGood(_));
    let undecided = jobs.may_be_more || node.is_initializing() || jobs.jobs.iter().any(waits);
    match () {
        () if undecided && limit_is_over => GateReason::WaitLimitReached,
        () if undecided => GateReason::WaitingForImages,
        () if jobs.jobs.is_empty() => GateReason::NoGatingJobs,
        () if jobs.jobs.iter().any(failed) => GateReason::ImagesFailed,
        () => GateReason::ImagesReady,
    }
}

/// Which image is waited for or missing, how far it is, and what is wrong.
fn message(reason: GateReason, jobs: &GatingJobs, initializing: bool) -> String {
    let total = jobs.jobs.len();
    let done = jobs.jobs.iter().filter(|job| job.state == GatingState::Done).count();
    let counted = match total {
        0 => None,
        1 => Some(format!("{done} of 1 gating job is done")),
        _ => Some(format!("{done} of {total} gating jobs are done")),
    };
    let open: Vec<&GatingJob> = jobs.jobs.iter().filter(|job| job.state != GatingState::Done).collect();
    let more = open.len().saturating_sub(NAMED);
    let about_jobs = open.into_iter().take(NAMED).map(|job| {
        let (name, images) = (&job.name, job.images.join(", "));
        match &job.state {
            GatingState::Done => format!("{images} ({name}): done"),
            GatingState::FailedForGood(reason) => {
                format!("{images} ({name}): failed, {}: {}", reason.as_str(), reason.advice())
            }
            GatingState::Waiting(text) => format!("{images} ({name}): {text}"),
        }
    });
    let mut parts: Vec<String> = counted.into_iter().chain(about_jobs).collect();
    if 0 < more {
        parts.push(format!("and {more} more"));
    }
    if !reason.is_release() || reason == GateReason::WaitLimitReached {
        parts.extend(
            jobs.may_be_more
                .then(|| "not all gating jobs have been looked at".to_owned()),
        );
        parts.extend(initializing.then(|| "other software still sets the node up".to_owned()));
    }
    let text = match reason {
        GateReason::NoGatingJobs => "no job with nodeGate selects this node".to_owned(),
        GateReason::WaitLimitReached => format!("released after the longest wait; {}", parts.join("; ")),
        GateReason::ImagesReady | GateReason::ImagesFailed | GateReason::WaitingForImages => parts.join("; "),
    };
    shortened(text)
}

fn shortened(mut text: String) -> String {
    if MESSAGE < text.len() {
        text.truncate(text.floor_char_boundary(MESSAGE - '…'.len_utf8()));
        text.push('…');
    }
    text
}

impl Progress {
    /// How far a node is with this campaign, for the gate; None if the campaign is not for it. A node whose taints keep the
    /// agent away is waited for: start-up taints of others go, too.
    pub fn gating_state(&self, node: &str) -> Option<GatingState> {
        if let Some(NoAgent::Taint) = self.without_agent.get(node) {
            return Some(GatingState::Waiting(NoAgent::Taint.sentence().to_owned()));
        }
        let indexed = self.nodes.get(node)?;
        match indexed.derived.bucket {
            Bucket::Outside => None,
            Bucket::Succeeded => Some(
                indexed
                    .state
                    .view
                    .claim
                    .and_then(|claim| claim.loss)
                    .map_or(GatingState::Done, lost),
            ),
            Bucket::Failed(reason) if is_for_good(reason) => Some(GatingState::FailedForGood(reason)),
            Bucket::Failed(reason) => Some(GatingState::Waiting(trouble("failed", reason))),
            Bucket::Active => Some(GatingState::Waiting(at_work(&indexed.state))),
            Bucket::Waiting(Some(reason)) => Some(GatingState::Waiting(trouble("waits", reason))),
            Bucket::Waiting(None) => {
                let hold = self.hold.as_ref().and_then(crate::progress::Hold::note);
                Some(GatingState::Waiting(
                    hold.unwrap_or_else(|| "waits for its turn".to_owned()),
                ))
            }
        }
    }
}

/// A node whose image was removed, for example with its disk, before it was released.
fn lost(loss: Loss) -> GatingState {
    match loss {
        Loss::Failed(reason) if is_for_good(reason) => GatingState::FailedForGood(reason),
        Loss::Failed(reason) => GatingState::Waiting(trouble("failed", reason)),
        Loss::Waiting(Some(reason)) => GatingState::Waiting(trouble("waits", reason)),
        Loss::Waiting(None) | Loss::Pulling => {
            GatingState::Waiting("the image was removed, and is pulled again".to_owned())
        }
    }
}

/// Whether another try would end the same way. An order that was withdrawn is given again.
fn is_for_good(reason: Reason) -> bool {
    reason.retry() == Retry::Permanent && reason != Reason::Canceled
}

fn trouble(what: &str, reason: Reason) -> String {
    format!("{what}, {}: {}", reason.as_str(), reason.advice())
}

fn at_work(state: &NodeState) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0));
    match state.view.claim.map(|claim| (claim.bytes_done, claim.bytes_total)) {
        Some((Some(done), Some(total))) => format!("pulling, {} of {}", size(done), size(total)),
        Some(_) | None => "pulling".to_owned(),
    }
}

#[cfg(test)]
mod tests;
