//! What a kind of job is to the engine. The engine runs campaigns; a dialect turns an object of its kind into a
//! [`Campaign`], and the campaign's [`Progress`] into that kind's status and explanations.
//!
//! A new kind of job implements [`Dialect`] in a directory of its own, and the controller registers it in one line.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube_core::Resource;
use larder_api::NodeImage;
use larder_api::progress::{HasProgress, JobProgress};
use larder_model::{ImageRef, Reason};
use serde::Serialize;

use crate::agent_nodes::NoAgent;
use crate::campaign::Campaign;
use crate::conditions::{FailedReason, failed};
use crate::explain::Explanation;
use crate::finish::End;
use crate::progress::Progress;
use crate::report::{Failure, NodeReport};
use crate::secret::UnusableSecrets;
use crate::task::NodeTask;
use crate::view::NodeKey;

/// A kind of job.
pub trait Dialect: Sized + Send + 'static {
    /// The object that people write.
    type Object: Resource<DynamicType = ()> + Clone + Debug + Send + Sync;
    /// Its status.
    type Status: Serialize + JobStatus + Send + Sync + 'static;
    /// What a running job keeps beside its progress.
    type Run: Debug + Send;

    /// The finalizer that the software which the kind comes from puts on its objects, if it does. It is taken off, because
    /// that software no longer runs.
    const FOREIGN_FINALIZER: Option<&'static str> = None;

    /// Whether the kind's status quotes what nodes report. Their texts are kept only for such kinds.
    const QUOTES_NODES: bool = false;

    /// Whether a node's task may depend on its labels: [`relabelled`](Self::relabelled) is asked.
    const FOLLOWS_LABELS: bool = false;

    /// The status that an object has.
    fn status_of(object: &Self::Object) -> Option<&Self::Status>;

    /// When the job began, as its status tells.
    fn started(object: &Self::Object) -> Option<Timestamp>;

    /// How the job is over, as its status tells; None while it is not.
    fn finished(object: &Self::Object) -> Option<Finished>;

    /// What the job asks for: a campaign to start, or to go on with in place of `earlier`.
    fn plan(
        object: &Self::Object,
        fleet: &dyn Fleet,
        earlier: Option<(&Self::Run, &Progress)>,
    ) -> Result<Plan<Self::Run>, Refusal>;

    /// Whether the job is part of another one, which it is deleted with.
    fn has_parent(_object: &Self::Object) -> bool {
        false
    }

    /// Gives a node that has no order another task where its labels ask for one.
    fn relabelled(
        _run: &mut Self::Run,
        _progress: &Progress,
        _node: &NodeKey,
        _known: Candidate<'_>,
    ) -> Option<Relabelled> {
        None
    }

    /// Takes in what a node reports about its task, and says whether that is news. A kind whose status quotes nodes keeps it.
    fn reported(_run: &mut Self::Run, _node: &NodeKey, _report: Option<NodeReport>) -> bool {
        false
    }

    /// A failure as the job describes it, where its terms differ from those of the node's entry. `handed_out` is when the
    /// node got its task.
    fn rephrase(_progress: &Progress, _image: &ImageRef, _handed_out: Timestamp, _reason: Reason) -> Option<Failure> {
        None
    }

    /// The status of a running job at `now`, and as it ended if it did.
    fn status(
        run: &Self::Run,
        object: &Self::Object,
        progress: &mut Progress,
        unusable: &UnusableSecrets,
        end: Option<End>,
        now: Timestamp,
    ) -> Self::Status;

    /// The status of a job that is not served.
    fn refused(object: &Self::Object, refusal: &Refusal, now: Timestamp) -> Self::Status;

    /// One sentence about what a job that ended has achieved, for an Event.
    fn achievement(object: &Self::Object, counts: StatusCounts) -> String;

    /// Explains every node, also those that the job does not select. `nodes` are those that have a NodeImage or no agent,
    /// with what Kubernetes knows of them.
    fn explain(
        run: &Self::Run,
        progress: &Progress,
        unusable: &UnusableSecrets,
        nodes: &BTreeMap<NodeKey, Option<Candidate<'_>>>,
        now: Timestamp,
    ) -> Vec<(NodeKey, Explanation)>;
}

/// What every job's status tells.
pub trait JobStatus: HasProgress {
    /// The counts of nodes.
    fn counts(&self) -> StatusCounts;
    /// When the job ended.
    fn ended(&self) -> Option<Timestamp>;
    /// How the job failed, in words; None if it did not.
    fn failure(&self) -> Option<&str> {
        failed(&self.progress().conditions).map(|condition| condition.message.as_str())
    }
}

/// Nodes, as a status counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts {
    /// Nodes that the job is for.
    pub desired: i32,
    /// Nodes that have what was asked for.
    pub succeeded: i32,
    /// Nodes that failed.
    pub failed: i32,
}

/// A job that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Since when, where the status tells.
    pub at: Option<Timestamp>,
    /// Whether the job still pins its images.
    pub pins: bool,
    /// How long after its end the job is deleted.
    pub ttl: Option<SignedDuration>,
}

/// Why a job is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The object says something that cannot be carried out; the sentence says what to change.
    InvalidSpec(String),
    /// The job matches no node, and does not wait for one.
    NoNodesMatched(String),
    /// Jobs are not served at all at the moment, for this reason. The job has not failed.
    NotServed(String),
}

impl Refusal {
    /// How the job failed: the reason of its condition, and a sentence; or why it waits although it has not failed.
    pub(crate) fn failure(&self) -> Result<(FailedReason, &str), &str> {
        match self {
            Self::InvalidSpec(why) => Ok((FailedReason::InvalidSpec, why)),
            Self::NoNodesMatched(why) => Ok((FailedReason::NoNodesMatched, why)),
            Self::NotServed(why) => Err(why),
        }
    }
}

impl Progress {
    /// Bytes, estimated time and reasons, as the status of every kind of job tells them.
    pub(crate) fn job_progress(&self, reasons: impl IntoIterator<Item = (Reason, usize)>, ended: bool) -> JobProgress {
        let counts = self.counts();
        let known_bytes = (0 < counts.bytes_total).then_some(counts.bytes_total);
        let reasons = reasons.into_iter();
        JobProgress {
            conditions: Vec::new(),
            bytes_total: known_bytes,
            bytes_done: known_bytes.map(|_| counts.bytes_done),
            eta_seconds: if ended { None } else { self.seconds_left() },
            reasons: reasons
                .map(|(reason, count)| (reason.to_string(), status_number(count)))
                .collect(),
        }
    }
}

/// A count, as a status holds it.
pub(crate) fn status_number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// What becomes of a job whose object was read.
#[derive(Debug)]
pub enum Plan<Run> {
    /// The job asks for what it asked for before.
    Unchanged,
    /// The job asks for this.
    Campaign {
        /// What the engine does.
        campaign: Box<Campaign>,
        /// What the dialect keeps.
        run: Run,
        /// Nodes that had succeeded and whose NodeImage is gone since; only the job's status still tells of them.
        succeeded_before: Vec<NodeKey>,
    },
}

/// What a change of a node's labels makes of a job.
#[derive(Debug)]
pub enum Relabelled {
    /// The node has another task.
    Task(Arc<NodeTask>),
    /// The job asks for something else as a whole.
    Campaign(Box<Campaign>),
}

/// The fleet, as a dialect looks at it when it plans a job.
pub trait Fleet {
    /// Every node.
    fn nodes(&self) -> BTreeMap<NodeKey, Candidate<'_>>;
    /// The nodes on which a job has an entry, and their NodeImages.
    fn claimed_by(&self, uid: &str) -> Vec<(NodeKey, &NodeImage)>;
}

/// What a dialect looks at when it chooses nodes.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The node's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// Why it has no agent, if it has none.
    pub no_agent: Option<NoAgent>,
}
