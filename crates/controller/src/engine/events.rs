//! Events: what people see with `kubectl describe`. Capped per job and reason, because a write per node is a write too many.
//! This component knows nothing of jobs and nodes; what happened comes in as values.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::ObjectReference;

use super::WatchKind;
use super::job::AnyStatus;

/// Events of one reason on one object.
const PER_REASON: u32 = 5;

/// Events that wait to be written. More than that and the oldest are dropped: status says the same.
const QUEUE: usize = 1_000;

pub(super) const FAILED: &str = "PullImageFailed";
pub(super) const SUCCEEDED: &str = "PullImageSucceed";
const UNREADABLE: &str = "Unreadable";
const DUPLICATE_AGENT: &str = "DuplicateAgent";

/// An Event to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The object that it is about.
    pub subject: ObjectReference,
    pub warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Events that wait, and how many there were.
#[derive(Default)]
pub struct EventRecorder {
    queue: VecDeque<NewEvent>,
    /// Events of an object, by uid and reason.
    counts: BTreeMap<(String, &'static str), u32>,
    /// Objects that cannot be read, by kind and `namespace/name`.
    unreadable: BTreeMap<(WatchKind, String), u32>,
    dropped: u64,
}

impl EventRecorder {
    pub fn push(&mut self, event: NewEvent) {
        if QUEUE <= self.queue.len() {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    /// The next Event to write.
    pub fn pop(&mut self) -> Option<NewEvent> {
        self.queue.pop_front()
    }

    /// Events that were never written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Counts an Event of an object and reason. True if it may be written.
    pub(super) fn may_record(&mut self, uid: &str, reason: &'static str) -> bool {
        let count = self.counts.entry((uid.to_owned(), reason)).or_default();
        *count += 1;
        *count <= PER_REASON
    }

    /// Records that an object cannot be read: its author sees it there, and not in a log.
    pub(super) fn record_unreadable(&mut self, kind: &WatchKind, key: String, object: ObjectReference, why: &str) {
        let count = self.unreadable.entry((kind.clone(), key)).or_default();
        *count += 1;
        if *count <= PER_REASON {
            self.push(NewEvent {
                subject: object,
                warning: true,
                reason: UNREADABLE,
                text: format!("Nothing is done with this object, because it cannot be read: {why}"),
            });
        }
    }

    /// Records that another agent runs with the name of this node.
    pub(super) fn record_duplicate_agent(&mut self, node_image: &ObjectReference, other: &str) {
        if self.may_record(node_image.uid.as_deref().unwrap_or_default(), DUPLICATE_AGENT) {
            self.push(NewEvent {
                subject: node_image.clone(),
                warning: true,
                reason: DUPLICATE_AGENT,
                text: format!(
                    "The agent {other} also runs with the name of this node and overwrites its status; stop one of the two, or \
                     start it with its own --node-name"
                ),
            });
        }
    }

    /// Of the objects of a kind that cannot be read, only these are still there.
    pub(super) fn keep_unreadable(&mut self, kind: &WatchKind, is_there: impl Fn(&str) -> bool) {
        self.unreadable.retain(|(known, key), _| known != kind || is_there(key));
    }

    /// Records how a job ended.
    pub(super) fn record_end(&mut self, subject: &ObjectReference, uid: &str, status: &AnyStatus) {
        self.forget(uid);
        if let Some(failure) = &status.failure {
            self.push(NewEvent {
                subject: subject.clone(),
                warning: true,
                reason: FAILED,
                text: failure.clone(),
            });
        }
        if 0 < status.counts.succeeded {
            self.push(NewEvent {
                subject: subject.clone(),
                warning: false,
                reason: SUCCEEDED,
                text: status.achievement.clone(),
            });
        }
    }

    /// Forgets what was counted for an object.
    pub(super) fn forget(&mut self, uid: &str) {
        self.counts.retain(|(known, _), _| known != uid);
    }

    #[cfg(test)]
    pub(super) fn is_forgotten(&self, uid: &str) -> bool {
        self.counts.keys().all(|(known, _)| known != uid) && self.unreadable.is_empty()
    }
}
