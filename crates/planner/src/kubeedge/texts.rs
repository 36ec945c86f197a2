//! The words and texts of KubeEdge's two status shapes. Tools and runbooks match on them, so they are written here once,
//! letter by letter.

/// v1alpha2: phase of a job. There is no `Init`: KubeEdge's own task manager, where it still runs, acts on that word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// Nodes are at work or wait.
    InProgress,
    /// Over, and no more nodes failed than may.
    Completed,
    /// Over, and too many failed.
    Failure,
}

/// v1alpha2: phase of one node's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePhase {
    /// Its turn has not come, or it cannot take part yet.
    Pending,
    /// It has the order.
    InProgress,
    /// It has every image.
    Successful,
    /// It could not get them.
    Failure,
    /// It kept silent past its time. Counts as failed.
    Unknown,
}

/// v1alpha1: what happened last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node was chosen, or could not be.
    Init,
    /// Its checks ended.
    Check,
    /// Its pulls ended.
    Pull,
    /// Its time was over.
    TimeOut,
}

/// v1alpha1: where a job or a node stands after the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A node whose turn has not come. Never said of a job.
    Init,
    /// Checks come next or run.
    Checking,
    /// The checks are passed.
    Pulling,
    /// All there.
    Successful,
    /// Not to be had.
    Failed,
}

impl JobPhase {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "InProgress",
            Self::Completed => "Completed",
            Self::Failure => "Failure",
        }
    }
}

impl NodePhase {
    const ALL: [Self; 5] = [
        Self::Pending,
        Self::InProgress,
        Self::Successful,
        Self::Failure,
        Self::Unknown,
    ];

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InProgress => "InProgress",
            Self::Successful => "Successful",
            Self::Failure => "Failure",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether the node counts as failed.
    pub const fn is_failed(self) -> bool {
        matches!(self, Self::Failure | Self::Unknown)
    }
}

impl Event {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::Check => "Check",
            Self::Pull => "Pull",
            Self::TimeOut => "TimeOut",
        }
    }
}

impl State {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::Checking => "Checking",
            Self::Pulling => "Pulling",
            Self::Successful => "Successful",
            Self::Failed => "Failed",
        }
    }

    /// v1alpha1: `action`.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Failed => "Failure",
            Self::Init | Self::Checking | Self::Pulling | Self::Successful => "Success",
        }
    }
}

/// Both ways to name nodes.
pub const BOTH_NODE_RULES: &str = "nodeNames and nodeSelector cannot be specified at the same time";

/// No way to name nodes.
pub const NO_NODE_RULE: &str = "nodeNames and nodeSelector cannot both be empty";

/// A selector that cannot be read begins like this.
pub const BAD_NODE_RULE: &str = "nodeSelector is invalid, err: ";

/// A selector without a single node.
pub const NO_NODES: &str = "no nodes were matched with selector";

/// The label is missing, or it has a value.
pub const NOT_EDGE: &str = "the node is not an edge node";

/// The condition `Ready` is missing, or it is not `True`.
pub const NOT_READY: &str = "the node is not ready";

/// The node's time was over.
pub const TIMED_OUT: &str = "The node task has timed out";

/// The job's time was over first.
pub const TURN_NEVER_CAME: &str = "the job's activeDeadlineSeconds ran out before the node's turn came";

/// At least one image could not be had.
pub const PULLS_FAILED: &str = "there were some failures when pulling images";

/// There is no such node.
pub fn no_such_node(name: &str) -> String {
    format!("failed to get node, err: nodes \"{name}\" not found")
}

/// More nodes failed than may.
pub fn too_many_failed(failed: usize, total: usize) -> String {
    format!("the number of failed nodes is {failed}/{total}, which exceeds the failure tolerance threshold")
}
