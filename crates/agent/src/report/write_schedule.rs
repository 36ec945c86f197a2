//! When the next write is due: a comparison of what the API shows with what it should show.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::node_image::{AgentStatus, ImageTagStatus, NodeImageStatus};
use larder_planner::node::Key;

use crate::messages::{DesiredStatus, ObservedNodeImage};

/// Entries that leave are taken out of the status together.
const GATHER_LEAVING: Duration = Duration::from_secs(2);

/// What the agent says about itself changes seldom, but at the start its parts come one after the other.
const GATHER_AGENT: Duration = Duration::from_millis(300);

/// So many changes of the spec without a write in between are an order that was withdrawn before this agent answered it, for
/// example because the agent was stopped or could not reach the API. The controller tries the node again as soon as it sees a
/// write.
const MISSED_CHANGES: i64 = 2;

/// A write that only shows the agent alive waits this long. Another write may come first, and `lastSeen` has whole seconds.
const GATHER_MISSED: Duration = Duration::from_secs(1);

/// What is known about the object, and when what was written.
#[derive(Default)]
pub(super) struct WriteSchedule {
    observed: Option<ObservedNodeImage>,
    /// Resource version after our own last write: what comes by the watch and is older is old news.
    own_version: Option<u64>,
    /// When the bytes of an entry may be written next.
    bytes_next: BTreeMap<Key, Duration>,
    leaving_since: Option<Duration>,
    agent_since: Option<Duration>,
    /// Generation of the spec at the last write, or when the first one was observed.
    answered: Option<i64>,
    missed_since: Option<Duration>,
    failed: bool,
}

impl WriteSchedule {
    pub(super) fn observed(&self) -> Option<&ObservedNodeImage> {
        self.observed.as_ref()
    }

    /// Takes what the API shows.
    pub(super) fn take_observed(&mut self, observed: Option<ObservedNodeImage>) {
        let Some(observed) = observed else {
            self.observed = None;
            self.own_version = None;
            return;
        };
        let same_object = self.observed.as_ref().is_some_and(|known| known.uid == observed.uid);
        let version = observed.resource_version.parse::<u64>().ok();
        let old_news = same_object
            && version
                .zip(self.own_version)
                .is_some_and(|(version, own)| version < own);
        match &mut self.observed {
            // Its status is older than our last write, the rest is news.
            Some(known) if old_news => known.rest_bytes = observed.rest_bytes,
            known => *known = Some(observed),
        }
    }

    /// Takes what a read of the object itself shows, however old it looks.
    pub(super) fn take_fresh(&mut self, observed: ObservedNodeImage) {
        self.own_version = None;
        self.observed = Some(observed);
    }

    /// Remembers a write that went well.
    pub(super) fn written(&mut self, wanted: &DesiredStatus, observed: ObservedNodeImage, now: Duration) {
        if std::mem::take(&mut self.failed) {
            tracing::info!("the status is written again");
        }
        self.own_version = observed.resource_version.parse().ok();
        self.observed = Some(observed);
        self.answered(wanted);
        // Spread by up to a fifth, so that a fleet does not write in step.
        let next = |every: &Duration| now + every.mul_f64(rand::random_range(0.8..1.2));
        self.bytes_next = wanted
            .entries
            .progress
            .iter()
            .map(|(key, every)| (key.clone(), next(every)))
            .collect();
    }

    /// Remembers that the API shows all that there is to say.
    pub(super) fn answered(&mut self, wanted: &DesiredStatus) {
        self.leaving_since = None;
        self.agent_since = None;
        self.missed_since = None;
        self.answered = Some(wanted.generation);
    }

    /// Says once per outage that writing fails.
    pub(super) fn tell_failure(&mut self, error: &str) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(error, "the status cannot be written; results are kept and told later");
        }
    }

    /// When to write; none if the API shows everything.
    pub(super) fn due(&mut self, wanted: &DesiredStatus, status: &NodeImageStatus, now: Duration) -> Option<Duration> {
        let empty = NodeImageStatus::default();
        let shown = self.observed.as_ref().and_then(|observed| observed.status.clone());
        let before = shown.as_ref().unwrap_or(&empty);
        let known = tags(before);
        let now_wanted = tags(status);
        let mut due: Option<Duration> = None;
        let mut at = |moment: Duration| due = Some(due.map_or(moment, |due| due.min(moment)));
        for (key, tag) in &now_wanted {
            match known.get(key) {
                Some(before) if before == tag => {}
                Some(before) if differ_in_bytes_only(before, tag) => {
                    at(self.bytes_next.get(key).copied().unwrap_or(now));
                }
                _ => at(wanted.entries.due.get(key).copied().unwrap_or(now)),
            }
        }
        if known.keys().any(|key| !now_wanted.contains_key(key)) {
            at(*self.leaving_since.get_or_insert(now) + GATHER_LEAVING);
        }
        if differ_in_agent(before, status) {
            at(*self.agent_since.get_or_insert(now) + GATHER_AGENT);
        }
        // Only the counts differ: another client wrote them, or an older agent.
        if due.is_none() && counts(before) != counts(status) {
            return Some(now);
        }
        if due.is_none() && self.missed_an_order(wanted.generation) {
            return Some(*self.missed_since.get_or_insert(now) + GATHER_MISSED);
        }
        due
    }

    /// Whether an order may have come and gone since the last write. After etcd was restored, generations begin again at a lower
    /// number.
    fn missed_an_order(&mut self, generation: i64) -> bool {
        let answered = *self.answered.get_or_insert(generation);
        if generation < answered {
            self.answered = Some(generation);
        }
        MISSED_CHANGES <= generation.saturating_sub(answered)
    }
}

fn tags(status: &NodeImageStatus) -> BTreeMap<Key, &ImageTagStatus> {
    let all = status
        .image_statuses
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, tag)));
    let key = |name: &String, tag: &ImageTagStatus| Key {
        name: name.clone(),
        tag: tag.tag.clone(),
    };
    all.map(|(name, tag)| (key(name, tag), tag)).collect()
}

fn differ_in_bytes_only(before: &ImageTagStatus, after: &ImageTagStatus) -> bool {
    let without_bytes = |tag: &ImageTagStatus| ImageTagStatus {
        progress: None,
        bytes_done: None,
        bytes_total: None,
        ..tag.clone()
    };
    without_bytes(before) == without_bytes(after)
}

fn differ_in_agent(before: &NodeImageStatus, after: &NodeImageStatus) -> bool {
    let without_time = |status: &NodeImageStatus| AgentStatus {
        last_seen: None,
        ..status.agent.clone().unwrap_or_default()
    };
    without_time(before) != without_time(after)
}

fn counts(status: &NodeImageStatus) -> [i32; 5] {
    [
        status.desired,
        status.waiting,
        status.pulling,
        status.succeeded,
        status.failed,
    ]
}

#[cfg(test)]
mod tests;
