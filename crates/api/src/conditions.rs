//! Condition types and reasons of all jobs. `kubectl wait --for=condition=Complete` and scripts rely on the spelling.
//!
//! A finished job has `Complete` or `Failed` true, never both, and `Progressing` false, as batch Jobs do.

/// The job ended and nothing failed beyond what it tolerates.
pub const COMPLETE: &str = "Complete";

/// The job ended and something failed.
pub const FAILED: &str = "Failed";

/// The job hands out work or waits for it; its message says what it waits for.
pub const PROGRESSING: &str = "Progressing";

/// Reasons of these conditions.
pub mod reasons {
    /// Every selected node has the image. Of [`super::COMPLETE`].
    pub const ALL_NODES_SUCCEEDED: &str = "AllNodesSucceeded";

    /// Failures stayed within `failureTolerate`. Of [`super::COMPLETE`], KubeEdge's kind alone.
    pub const WITHIN_TOLERANCE: &str = "WithinTolerance";

    /// Nothing was selected, and nothing appeared in the time of grace. Of [`super::COMPLETE`].
    pub const NO_NODES_MATCHED: &str = "NoNodesMatched";

    /// At least one node (of a list job: one image) failed. Of [`super::FAILED`].
    pub const NODES_FAILED: &str = "NodesFailed";

    /// `activeDeadlineSeconds` ran out. Of [`super::FAILED`].
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

    /// More nodes failed than `failurePolicy.maxFailures` or `failureTolerate` allows. Of [`super::FAILED`].
    pub const TOO_MANY_FAILURES: &str = "TooManyFailures";

    /// The job says something that cannot be carried out; its message says what to change. Of [`super::FAILED`].
    pub const INVALID_SPEC: &str = "InvalidSpec";

    /// Nodes are at work. Of [`super::PROGRESSING`].
    pub const PULLING: &str = "Pulling";

    /// `parallelism: 0`, or the whole fleet is paused. Of [`super::PROGRESSING`].
    pub const PAUSED: &str = "Paused";

    /// No window of the job, or of the whole fleet, is open. Of [`super::PROGRESSING`].
    pub const OUTSIDE_WINDOW: &str = "OutsideWindow";

    /// A pull secret does not exist yet. Of [`super::PROGRESSING`].
    pub const SECRET_MISSING: &str = "SecretMissing";

    /// The whole fleet has as many pulls as `--max-active-pulls` allows, and none of them is this job's. Of
    /// [`super::PROGRESSING`].
    pub const FLEET_LIMIT: &str = "FleetLimit";

    /// No node is at work, and none can be given work: those that are left are not ready, full or silent, or the job is about
    /// to begin. Of [`super::PROGRESSING`].
    pub const WAITING: &str = "Waiting";

    /// Every node is done, and the job goes on: it looks again each day, and serves nodes that join. Of
    /// [`super::PROGRESSING`], jobs that never end alone.
    pub const FOLLOWING: &str = "Following";

    /// The controller serves no job at the moment; the message says why. Of [`super::PROGRESSING`].
    pub const NOT_SERVED: &str = "NotServed";

    /// The job has ended. Of [`super::PROGRESSING`], when false.
    pub const FINISHED: &str = "Finished";
}
