//! Detects a second agent that runs with the same node name, and decides when this agent may write the status again.
//!
//! Every agent process writes an instance name of its own into `status.agent.instance`. A status that names another
//! instance, and that was written after this process's own last write, comes from an agent that runs now. This process then
//! stops writing for a pause, which doubles each time, so that two agents together cost a few writes an hour. When the
//! pause is over it writes again and names the other agent in `status.agent.conflictsWith`.
//!
//! A process that has written nothing since the other agent's status takes it over at once: that status may come from its
//! own earlier run, or from the machine that this one replaces. If the other agent has ended, nothing overwrites the status
//! any more, and the conflict is forgotten after [`QUIET_TIME`].

use std::time::Duration;

use larder_api::node_image::AgentStatus;

/// Pauses after the first and after many overwritten statuses.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// After this time without a write by another agent there is none any more. Longer than the longest pause of the other.
pub const QUIET_TIME: Duration = Duration::from_mins(30);

/// Which agent process wrote a status. Agents before the first release with `instance` are told apart by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentIdentity {
    /// Name of the process, another one after each start.
    pub instance: Option<String>,
    /// Public half of the node's key.
    pub public_key: Option<String>,
}

impl AgentIdentity {
    /// The identity that a status shows.
    pub fn of(status: &AgentStatus) -> Self {
        Self {
            instance: status.instance.clone(),
            public_key: status.public_key.clone(),
        }
    }

    /// Whether the two are certainly different processes.
    fn differs_from(&self, other: &Self) -> bool {
        let differ =
            |one: &Option<String>, two: &Option<String>| one.as_ref().zip(two.as_ref()).map(|(one, two)| one != two);
        differ(&self.instance, &other.instance)
            .or_else(|| differ(&self.public_key, &other.public_key))
            .unwrap_or(false)
    }

    /// How people are told of this process.
    fn name(&self) -> &str {
        let name = self.instance.as_deref().or(self.public_key.as_deref());
        name.unwrap_or("unknown")
    }
}

/// Watches over one NodeImage's status for writes of another agent.
#[derive(Clone, Debug)]
pub struct DuplicateDetector {
    own: AgentIdentity,
    /// This process has written since the last conflict.
    wrote: bool,
    /// The last other agent whose status was seen.
    other: Option<AgentIdentity>,
    conflicts: u32,
    last_conflict: Duration,
    not_before: Duration,
}

impl DuplicateDetector {
    /// A detector for the process with this identity, which has not written yet.
    pub fn new(own: AgentIdentity) -> Self {
        Self {
            own,
            wrote: false,
            other: None,
            conflicts: 0,
            last_conflict: Duration::ZERO,
            not_before: Duration::ZERO,
        }
    }

    /// The identity of this process.
    pub fn own(&self) -> &AgentIdentity {
        &self.own
    }

    /// Remembers that this process wrote the status.
    pub fn written(&mut self) {
        self.wrote = true;
    }

    /// Takes in a status that is not known to be older than this process's last write. True if it shows that another agent
    /// overwrote that write. `spread` stretches the pause that follows, so that two agents do not write in step.
    pub fn observe(&mut self, shown: Option<&AgentStatus>, now: Duration, spread: f64) -> bool {
        let Some(shown) = shown else {
            return false;
        };
        let identity = AgentIdentity::of(shown);
        if !identity.differs_from(&self.own) {
            return false;
        }
        self.other = Some(identity);
        if !std::mem::take(&mut self.wrote) {
            return false;
        }
        if self.is_over(now) {
            self.conflicts = 0;
        }
        self.conflicts += 1;
        self.last_conflict = now;
        self.not_before = now + pause_after(self.conflicts).mul_f64(spread);
        true
    }

    /// The status is not written before this moment.
    pub fn not_before(&self) -> Duration {
        self.not_before
    }

    /// The other agent, for `status.agent.conflictsWith`, until [`QUIET_TIME`] has passed without a write of it.
    pub fn conflicts_with(&self, now: Duration) -> Option<&str> {
        let other = self.other.as_ref()?;
        (self.conflicts > 0 && !self.is_over(now)).then(|| other.name())
    }

    /// When the answers of this detector change although nothing is observed: the end of the pause, then of the conflict.
    pub fn changes_at(&self, now: Duration) -> Option<Duration> {
        self.conflicts_with(now)?;
        let pause = Some(self.not_before).filter(|moment| now < *moment);
        Some(pause.unwrap_or(self.last_conflict + QUIET_TIME))
    }

    fn is_over(&self, now: Duration) -> bool {
        self.last_conflict + QUIET_TIME <= now
    }
}

fn pause_after(conflicts: u32) -> Duration {
    let doublings = conflicts.saturating_sub(1).min(10);
    (PAUSE_MIN * (1 << doublings)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests;
