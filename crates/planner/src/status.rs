//! What an ImagePullJob says about itself: upstream's fields and texts, and beside them conditions, bytes and reasons.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use larder_api::ImagePullJobStatus;
use larder_api::conditions::{self, reasons};
use larder_api::progress::JobProgress;
use larder_model::Reason;

use crate::campaign::whole_seconds;
use crate::explain::{FLEET_LIMIT, no_logins_sentence, secrets_sentence};
use crate::finish::{End, NO_NODE_GRACE};
use crate::progress::{Counts, Hold, Progress};
use crate::seat::Tally;

mod condition;

pub use condition::Conditions;

/// Bytes of node names in a status. etcd takes 1.5 MB and the whole status shall stay below 800 KB, whatever the names
/// are; ten thousand names of 50 characters fit.
const FAILED_NODES_BYTES: usize = 600 * 1_024;

const COMPLETED: &str = "job has completed";
const DEADLINE: &str = "job exceeds activeDeadlineSeconds";

impl Progress {
    /// The job's status at `now`, and as it ended if it did. `previous` is what it said before.
    pub fn status(
        &mut self,
        previous: Option<&ImagePullJobStatus>,
        generation: Option<i64>,
        end: Option<End>,
        now: Timestamp,
    ) -> ImagePullJobStatus {
        self.meter.sample(now, self.counts.work);
        let now = whole_seconds(now);
        let tally = self.outcome(end);
        let counts = &self.counts;
        let known_bytes = (0 < counts.bytes_total).then_some(counts.bytes_total);
        let mut conditions = Conditions::new(previous.map(|status| &*status.progress.conditions), generation, now);
        match end {
            None => conditions.running(
                self.condition_reason(),
                &self.note(&tally).unwrap_or_else(|| self.upstream()),
            ),
            Some(end) => conditions.ended(verdict(end, &tally), &self.last_words(end, &tally)),
        }
        ImagePullJobStatus {
            start_time: Some(Time(whole_seconds(self.started))),
            completion_time: end.map(|_| Time(now)),
            desired: number(counts.desired),
            active: number(if end.is_some() { 0 } else { counts.active }),
            succeeded: number(counts.succeeded),
            failed: number(tally.failed),
            message: Some(match end {
                Some(End::Deadline) => DEADLINE.to_owned(),
                Some(End::AllDone | End::NoNodes | End::TooManyFailures) => COMPLETED.to_owned(),
                None => self.message(&tally),
            }),
            failed_nodes: tally.failed_nodes,
            progress: JobProgress {
                conditions: conditions.into_list(),
                bytes_total: known_bytes,
                bytes_done: known_bytes.map(|_| counts.bytes_done),
                eta_seconds: end
                    .is_none()
                    .then(|| self.meter.seconds_left(counts.work_left()))
                    .flatten(),
                reasons: tally
                    .reasons
                    .iter()
                    .map(|(reason, count)| (reason.to_string(), number(*count)))
                    .collect(),
            },
        }
    }

    /// Who failed and why. At a deadline that is everybody who is not done.
    fn outcome(&self, end: Option<End>) -> Outcome {
        let mut outcome = Outcome {
            desired: self.counts.desired,
            succeeded: self.counts.succeeded,
            failed: self.counts.failed,
            reasons: self
                .counts
                .reasons
                .iter()
                .map(|(reason, count)| (*reason, *count))
                .collect(),
            failed_nodes: Vec::new(),
        };
        let mut room = FAILED_NODES_BYTES;
        if end == Some(End::Deadline) {
            outcome.failed = self.counts.desired - self.counts.succeeded;
            let selected = self
                .seats
                .iter()
                .filter(|(_, booked)| booked.place.tally != Tally::Outside);
            for (node, booked) in selected {
                match booked.place.tally {
                    Tally::Succeeded | Tally::Outside => continue,
                    Tally::Failed(_) | Tally::Waiting(Some(_)) => {}
                    Tally::Active | Tally::Waiting(None) => outcome.add(Reason::DeadlineExceeded),
                }
                push_name(&mut outcome.failed_nodes, node, &mut room);
            }
        } else {
            for node in &self.failed {
                push_name(&mut outcome.failed_nodes, node, &mut room);
            }
        }
        if matches!(self.hold, Some(Hold::Secrets { .. })) && end.is_none() {
            let unserved = self.queue.len();
            outcome.reasons.retain(|(reason, _)| *reason != Reason::SecretMissing);
            if 0 < unserved {
                outcome.reasons.push((Reason::SecretMissing, unserved));
            }
        }
        outcome
    }

    /// Upstream's text, then ours.
    fn message(&self, outcome: &Outcome) -> String {
        match self.note(outcome) {
            Some(note) => format!("{}; {note}", self.upstream()),
            None => self.upstream(),
        }
    }

    fn upstream(&self) -> String {
        let counts = &self.counts;
        if counts.desired == 0 {
            return "job is running, no progress".to_owned();
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a fleet has fewer nodes than a double has whole numbers"
        )]
        let percent = 100.0 * counts.finished() as f64 / counts.desired as f64;
        format!("job is running, progress {percent:.1}%")
    }

    /// What is worth saying beyond how far it is.
    fn note(&self, outcome: &Outcome) -> Option<String> {
        match &self.hold {
            Some(Hold::FleetPaused) => return Some("handing out is paused for the whole fleet".to_owned()),
            Some(Hold::Secrets {
                missing,
                unreadable,
                forbidden,
            }) => return Some(secrets_sentence(missing, unreadable, forbidden)),
            Some(Hold::ReadingSecrets) | None => {}
        }
        if self.campaign.parallelism == 0 {
            return Some("paused (parallelism 0)".to_owned());
        }
        if self.counts.desired == 0 {
            return Some(if self.campaign.is_endless() {
                "no node matches, waits for one".to_owned()
            } else {
                format!("no node matches, waits {} s for one", NO_NODE_GRACE.as_secs())
            });
        }
        if self.too_many_failures() {
            return Some("too many nodes failed, waits for the pulls that are under way".to_owned());
        }
        let mut notes = Vec::new();
        if self.capped {
            notes.push(FLEET_LIMIT.to_owned());
        }
        notes.extend(no_logins_sentence(&self.no_logins));
        let reasons = outcome.reasons();
        if !reasons.is_empty() {
            notes.push(format!("nodes that wait or failed: {reasons}"));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// How it ended. Whoever was refused wants to know that no login was sent.
    fn last_words(&self, end: End, outcome: &Outcome) -> String {
        let said = sentence(end, outcome);
        let refused = outcome.reasons.iter().any(|(reason, _)| *reason == Reason::AuthDenied);
        match no_logins_sentence(&self.no_logins).filter(|_| refused) {
            Some(no_logins) => format!("{said}; {no_logins}"),
            None => said,
        }
    }

    fn condition_reason(&self) -> &'static str {
        match self.hold {
            Some(Hold::Secrets { .. }) => reasons::SECRET_MISSING,
            Some(Hold::FleetPaused) => reasons::PAUSED,
            _ if self.campaign.parallelism == 0 => reasons::PAUSED,
            _ if self.counts.desired == 0 => reasons::NO_NODES_MATCHED,
            Some(Hold::ReadingSecrets) | None => self.pace_reason(),
        }
    }

    /// What a job does that nothing holds.
    pub(crate) fn pace_reason(&self) -> &'static str {
        let Counts { active, desired, .. } = self.counts;
        if 0 < active {
            reasons::PULLING
        } else if self.capped {
            reasons::FLEET_LIMIT
        } else if self.campaign.is_endless() && self.counts.finished() == desired {
            reasons::FOLLOWING
        } else {
            reasons::WAITING
        }
    }
}

/// Whether a job's message says that the whole fleet's limit keeps its nodes waiting.
pub fn names_fleet_limit(message: &str) -> bool {
    message.contains(FLEET_LIMIT)
}

/// The status of a job that says something that cannot be carried out.
pub fn refused(
    previous: Option<&ImagePullJobStatus>,
    generation: Option<i64>,
    why: &str,
    now: Timestamp,
) -> ImagePullJobStatus {
    let now = whole_seconds(now);
    let mut conditions = Conditions::new(previous.map(|status| &*status.progress.conditions), generation, now);
    conditions.ended((conditions::FAILED, reasons::INVALID_SPEC), why);
    let mut status = previous.cloned().unwrap_or_default();
    status.start_time.get_or_insert(Time(now));
    status.message = Some(why.to_owned());
    status.progress.conditions = conditions.into_list();
    status
}

/// Who failed and why.
struct Outcome {
    desired: usize,
    succeeded: usize,
    failed: usize,
    reasons: Vec<(Reason, usize)>,
    failed_nodes: Vec<String>,
}

impl Outcome {
    fn add(&mut self, reason: Reason) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.reasons.push((reason, 1)),
        }
    }

    /// `3 NotFound, 1 Dns`.
    fn reasons(&self) -> String {
        let mut text = String::new();
        for (reason, count) in &self.reasons {
            let comma = if text.is_empty() { "" } else { ", " };
            let written = write!(text, "{comma}{count} {reason}");
            debug_assert!(written.is_ok(), "a string takes everything");
        }
        text
    }
}

fn push_name(names: &mut Vec<String>, node: &str, room: &mut usize) {
    // Two quotation marks and a comma.
    let Some(left) = room.checked_sub(node.len() + 3) else {
        *room = 0;
        return;
    };
    *room = left;
    names.push(node.to_owned());
}

fn verdict(end: End, outcome: &Outcome) -> (&'static str, &'static str) {
    match end {
        End::Deadline => (conditions::FAILED, reasons::DEADLINE_EXCEEDED),
        End::TooManyFailures => (conditions::FAILED, reasons::TOO_MANY_FAILURES),
        End::NoNodes => (conditions::COMPLETE, reasons::NO_NODES_MATCHED),
        End::AllDone if outcome.failed == 0 => (conditions::COMPLETE, reasons::ALL_NODES_SUCCEEDED),
        End::AllDone => (conditions::FAILED, reasons::NODES_FAILED),
    }
}

fn sentence(end: End, outcome: &Outcome) -> String {
    let (desired, succeeded, failed) = (outcome.desired, outcome.succeeded, outcome.failed);
    if end == End::NoNodes {
        return "no node matched, and none appeared".to_owned();
    }
    if failed == 0 {
        return format!("{succeeded} of {desired} nodes have the image");
    }
    let unnamed = failed.saturating_sub(outcome.failed_nodes.len());
    let cut = if unnamed == 0 {
        String::new()
    } else {
        format!("; {unnamed} of them are not listed in failedNodes, which would grow too long")
    };
    format!("{failed} of {desired} nodes failed: {}{cut}", outcome.reasons())
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A condition as it is written.
fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests;
