//! What an ImagePullJob says about itself: upstream's fields and texts, and beside them conditions, bytes and reasons.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::ImagePullJobStatus;
use larder_api::contract::shorten;
use larder_api::progress::JobProgress;
use larder_model::Reason;

use crate::campaign::whole_seconds;
use crate::conditions::{CompleteReason, Conditions, EndCondition, FailedReason, ProgressReason};
use crate::dialect::{Refusal, status_number};
use crate::explain::{
    FLEET_LIMIT, LOGINS_WITHHELD, date_and_time, foreign_agents_sentence, lost_sentence, no_logins_sentence,
    too_many_failures_sentence,
};
use crate::finish::{End, NO_NODE_GRACE};
use crate::node_state::Bucket;
use crate::not_served::StatusFields;
use crate::progress::{Hold, Progress};

/// Bytes of node names in a status. etcd takes 1.5 MB and the whole status shall stay below 800 KB, whatever the names
/// are; ten thousand names of 50 characters fit.
const FAILED_NODES_BYTES: usize = 600 * 1_024;

/// How the status shows that a job is served.
pub const FIELDS: StatusFields = StatusFields {
    begun: &["startTime", "completionTime"],
    text: Some("message"),
};

const COMPLETED: &str = "job has completed";
const DEADLINE: &str = "job exceeds activeDeadlineSeconds";

impl Progress {
    /// The job's status at `now`, and as it ended if it did. `previous` is what it said before.
    pub(super) fn pull_job_status(
        &mut self,
        previous: Option<&ImagePullJobStatus>,
        generation: Option<i64>,
        end: Option<End>,
        now: Timestamp,
    ) -> ImagePullJobStatus {
        self.eta.sample(now, self.counts.work);
        let now = whole_seconds(now);
        let totals = self.totals(end);
        let counts = &self.counts;
        let mut conditions = Conditions::new(previous.map(|status| &*status.progress.conditions), generation, now);
        match end {
            None => conditions.running(
                self.condition_reason(),
                &self.note(&totals).unwrap_or_else(|| self.upstream()),
            ),
            Some(end) => conditions.ended(end_condition(end, &totals), &self.final_message(end, &totals)),
        }
        ImagePullJobStatus {
            // As it was first written, whatever the clock says since.
            start_time: previous
                .and_then(|status| status.start_time.clone())
                .or(Some(Time(whole_seconds(self.started)))),
            completion_time: end.map(|_| Time(now)),
            desired: status_number(counts.desired),
            active: status_number(if end.is_some() { 0 } else { counts.active }),
            succeeded: status_number(counts.succeeded),
            failed: status_number(totals.failed),
            message: Some(match end {
                Some(End::Deadline) => DEADLINE.to_owned(),
                Some(End::AllDone | End::NoNodes | End::TooManyFailures) => COMPLETED.to_owned(),
                None => shorten(&self.message(&totals)),
            }),
            failed_nodes: totals.failed_nodes,
            progress: JobProgress {
                conditions: conditions.into_list(),
                ..self.job_progress(totals.reasons, end.is_some())
            },
        }
    }

    /// Who failed and why. At a deadline that is everybody who is not done.
    fn totals(&self, end: Option<End>) -> Totals {
        let mut totals = Totals {
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
            totals.failed = self.counts.desired - self.counts.succeeded;
            let selected = self
                .nodes
                .iter()
                .filter(|(_, indexed)| indexed.derived.bucket != Bucket::Outside);
            for (node, indexed) in selected {
                match indexed.derived.bucket {
                    Bucket::Succeeded | Bucket::Outside => continue,
                    Bucket::Failed(_) | Bucket::Waiting(Some(_)) => {}
                    Bucket::Active | Bucket::Waiting(None) => totals.add(Reason::DeadlineExceeded),
                }
                push_name(&mut totals.failed_nodes, node, &mut room);
            }
        } else {
            for node in &self.failed {
                push_name(&mut totals.failed_nodes, node, &mut room);
            }
        }
        if matches!(self.hold, Some(Hold::Secrets { .. })) && end.is_none() {
            let unserved = self.queue.len();
            totals.reasons.retain(|(reason, _)| *reason != Reason::SecretMissing);
            if 0 < unserved {
                totals.reasons.push((Reason::SecretMissing, unserved));
            }
        }
        totals
    }

    /// Upstream's text, then ours.
    fn message(&self, totals: &Totals) -> String {
        match self.note(totals) {
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
    fn note(&self, totals: &Totals) -> Option<String> {
        let foreign = foreign_agents_sentence(&self.foreign_agents);
        let refresh = self.next_refresh().filter(|_| 0 < self.counts.finished());
        let refresh = refresh.map(|begins| format!("next refresh {}", date_and_time(&begins)));
        let notes = [self.own_note(totals), foreign, self.without_agent.sentence(), refresh];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The same, of the nodes that have an agent.
    fn own_note(&self, totals: &Totals) -> Option<String> {
        if let Some(note) = self.hold.as_ref().and_then(Hold::note) {
            return Some(note);
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
            return Some(too_many_failures_sentence(self.counts.active));
        }
        let mut notes = Vec::new();
        if self.capped {
            notes.push(FLEET_LIMIT.to_owned());
        }
        notes.extend(no_logins_sentence(&self.no_logins));
        if totals.has(Reason::NodePolicyNotEnforced) {
            notes.push(LOGINS_WITHHELD.to_owned());
        }
        let reasons = totals.reasons();
        if !reasons.is_empty() {
            notes.push(format!("nodes that wait or failed: {reasons}"));
        }
        notes.extend(lost_sentence(self.counts.lost));
        notes.extend(self.no_room_sentence());
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// How it ended. Whoever was refused wants to know that no login was sent.
    fn final_message(&self, end: End, totals: &Totals) -> String {
        let no_logins = no_logins_sentence(&self.no_logins).filter(|_| totals.has(Reason::AuthDenied));
        let foreign = foreign_agents_sentence(&self.foreign_agents);
        let said = [
            Some(sentence(end, totals)),
            no_logins,
            foreign,
            self.without_agent.sentence(),
        ];
        said.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn condition_reason(&self) -> ProgressReason {
        match self.hold {
            Some(Hold::Secrets { .. }) => ProgressReason::SecretMissing,
            Some(Hold::FleetPaused) => ProgressReason::Paused,
            Some(Hold::ListingPods) => ProgressReason::Waiting,
            _ if self.campaign.parallelism == 0 => ProgressReason::Paused,
            _ if self.counts.desired == 0 => ProgressReason::NoNodesMatched,
            Some(Hold::OutsideWindow(_)) if self.counts.only_wait() => ProgressReason::OutsideWindow,
            Some(Hold::ReadingSecrets | Hold::OutsideWindow(_)) | None => self.pace_reason(),
        }
    }
}

/// The status of a job that is not served.
pub(super) fn refused(
    previous: Option<&ImagePullJobStatus>,
    generation: Option<i64>,
    refusal: &Refusal,
    now: Timestamp,
) -> ImagePullJobStatus {
    let mut status = previous.cloned().unwrap_or_default();
    let (reason, why) = match refusal.failure() {
        Ok(failure) => failure,
        Err(why) => {
            status.message = Some(why.to_owned());
            return status;
        }
    };
    let now = whole_seconds(now);
    let mut conditions = Conditions::new(previous.map(|status| &*status.progress.conditions), generation, now);
    conditions.ended(EndCondition::Failed(reason), why);
    status.start_time.get_or_insert(Time(now));
    status.message = Some(shorten(why));
    status.progress.conditions = conditions.into_list();
    status
}

/// Who failed and why.
struct Totals {
    desired: usize,
    succeeded: usize,
    failed: usize,
    reasons: Vec<(Reason, usize)>,
    failed_nodes: Vec<String>,
}

impl Totals {
    fn add(&mut self, reason: Reason) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.reasons.push((reason, 1)),
        }
    }

    fn has(&self, reason: Reason) -> bool {
        self.reasons.iter().any(|(known, _)| *known == reason)
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

fn end_condition(end: End, totals: &Totals) -> EndCondition {
    match end {
        End::Deadline => EndCondition::Failed(FailedReason::DeadlineExceeded),
        End::TooManyFailures => EndCondition::Failed(FailedReason::TooManyFailures),
        End::NoNodes => EndCondition::Complete(CompleteReason::NoNodesMatched),
        End::AllDone if totals.failed == 0 => EndCondition::Complete(CompleteReason::AllNodesSucceeded),
        End::AllDone => EndCondition::Failed(FailedReason::NodesFailed),
    }
}

fn sentence(end: End, totals: &Totals) -> String {
    let (desired, succeeded, failed) = (totals.desired, totals.succeeded, totals.failed);
    if end == End::NoNodes {
        return "no node matched, and none appeared".to_owned();
    }
    if failed == 0 {
        return format!("{succeeded} of {desired} nodes have the image");
    }
    let unnamed = failed.saturating_sub(totals.failed_nodes.len());
    let cut = if unnamed == 0 {
        String::new()
    } else {
        format!("; {unnamed} of them are not listed in failedNodes, which would grow too long")
    };
    format!("{failed} of {desired} nodes failed: {}{cut}", totals.reasons())
}

#[cfg(test)]
mod tests;
