//! What an ImagePrePullJob says about itself, in both shapes at once: v1alpha1's `state`, `event`, `action`, `time` and
//! `status[]`, v1alpha2's `phase`, `reason` and `nodeStatus[]`, and beside them conditions, counts, bytes and reasons.
//!
//! Everything follows from what the nodes say now: no text is left over from an earlier state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use larder_api::ImagePrePullJob;
use larder_api::contract::shorten;
use larder_api::image_pre_pull_job::ImagePrePullJobStatus;
use larder_model::Reason;

use super::campaign::PrePull;
use super::dialect::PrePullRun;
use super::explain::unusable_secrets;
use super::nodes::{Choice, Chosen};
use super::reports::Reports;
use super::texts::{Event, JobPhase, NodePhase, State};
use super::truncate_status::{BUDGET, Details, fit};
use super::verdict::{Verdict, verdict};
use crate::campaign::whole_seconds;
use crate::conditions::{Conditions, EndCondition, ProgressReason};
use crate::dialect::{Refusal, status_number};
use crate::explain::{
    FLEET_LIMIT, LOGINS_WITHHELD, foreign_agents_sentence, no_logins_sentence, too_many_failures_sentence,
};
use crate::finish::End;
use crate::not_served::StatusFields;
use crate::progress::{Hold, Progress};
use crate::secret::UnusableSecrets;
use crate::task::{NodeTask, Tasks};
use crate::view::NodeKey;

mod line;
mod shapes;

use line::{Line, NodeStanding, Work};

/// How the status shows that a job is served, in both versions.
pub const FIELDS: StatusFields = StatusFields {
    begun: &["phase", "state", "status"],
    text: Some("reason"),
};

/// A job that runs, as its status looks at it.
#[derive(Clone, Copy)]
struct View<'a> {
    plan: &'a PrePull,
    choice: &'a Choice,
    tasks: &'a Tasks,
    reports: &'a Reports,
    unusable: &'a UnusableSecrets,
    progress: &'a Progress,
}

/// The job's status at `now`, and as it ended if it did.
pub fn status(
    run: &PrePullRun,
    object: &ImagePrePullJob,
    progress: &mut Progress,
    unusable: &UnusableSecrets,
    end: Option<End>,
    now: Timestamp,
) -> ImagePrePullJobStatus {
    let previous = object.status.as_ref();
    progress.eta.sample(now, progress.counts.work);
    let now = whole_seconds(now);
    let view = View {
        plan: &run.plan,
        choice: &run.choice,
        tasks: &progress.campaign.tasks,
        reports: &run.reports,
        unusable,
        progress,
    };
    let (lines, gathered) = view.lines(end);
    let sums = Sums::of(&lines);
    let verdict = end.map(|end| verdict(&progress.campaign, end, sums.failed, sums.total));
    let (state, event) = legacy(&lines, verdict.as_ref());
    let phase = verdict.as_ref().map_or(JobPhase::InProgress, |verdict| verdict.phase);
    let mut status = ImagePrePullJobStatus {
        phase: Some(phase.as_str().to_owned()),
        reason: verdict.as_ref().and_then(|verdict| verdict.reason.clone()),
        node_status: lines.iter().map(shapes::node_task).collect(),
        status: lines.iter().map(shapes::legacy_node).collect(),
        desired: status_number(sums.total),
        succeeded: status_number(sums.succeeded),
        failed: status_number(sums.failed),
        progress: progress.job_progress(sums.reasons.clone(), end.is_some()),
        ..ImagePrePullJobStatus::default()
    };
    say(&mut status, state, event, previous, now);
    let mut notes = view.notes(&sums, verdict.as_ref());
    notes.extend(fit(&mut status, gathered, BUDGET));
    let message = shorten(&notes.join("; "));
    let before = previous.map(|status| &*status.progress.conditions);
    let mut conditions = Conditions::new(before, object.metadata.generation, now);
    match &verdict {
        None => conditions.running(view.condition_reason(), &message),
        Some(verdict) => conditions.ended(verdict.condition, &message),
    }
    status.progress.conditions = conditions.into_list();
    status
}

impl View<'_> {
    fn lines(self, end: Option<End>) -> (Vec<Line>, Details) {
        let progress = self.progress;
        let waits_for_secrets = matches!(progress.hold, Some(Hold::Secrets { .. })) && end.is_none();
        let standing = |node: &NodeKey| {
            let indexed = progress.nodes.get(node);
            let bucket = indexed.map(|indexed| indexed.derived.bucket).unwrap_or_default();
            NodeStanding::of(bucket, end, waits_for_secrets)
        };
        let done = self
            .choice
            .fit()
            .filter(|node| standing(node) == NodeStanding::Succeeded)
            .count();
        let others = self.reports.len().saturating_sub(done);
        let details = Details::that_may_fit(done, others, self.plan.images.len());
        let line = |chosen: &Chosen| {
            let name = &chosen.name;
            if let Some(unfit) = &chosen.unfit {
                return Line::unfit(name, unfit, progress.started());
            }
            let work = self.tasks.of(name).zip(self.reports.get(name));
            let work = work.map(|(task, report)| Work {
                task,
                report,
                overdue_at: progress.campaign.overdue_at(report.handed_out),
                details,
            });
            let mut line = Line::of(name, standing(name), work);
            if line.phase == NodePhase::Failure && line.why == Some(Reason::SecretMissing) {
                line.reason = self.tasks.of(name).and_then(|task| self.lacking(task)).or(line.reason);
            }
            line
        };
        (self.choice.nodes.iter().map(line).collect(), details)
    }

    /// The Secrets that a node waited for in vain, by name: they stand in any namespace.
    fn lacking(self, task: &NodeTask) -> Option<String> {
        let lacking = self.unusable.among(&task.secrets());
        (!lacking.is_empty()).then(|| format!("the node could not begin in time: {}", unusable_secrets(lacking.all())))
    }

    fn condition_reason(self) -> ProgressReason {
        let progress = self.progress;
        let nobody_pulls = progress.counts().active == 0;
        match progress.hold {
            Some(Hold::Secrets { .. }) => ProgressReason::SecretMissing,
            Some(Hold::FleetPaused) => ProgressReason::Paused,
            _ if nobody_pulls && !self.unusable.is_empty() => ProgressReason::SecretMissing,
            Some(Hold::OutsideWindow(_)) if progress.counts().only_wait() => ProgressReason::OutsideWindow,
            _ => progress.pace_reason(),
        }
    }

    /// What a person wants to know, beside the numbers.
    fn notes(self, sums: &Sums, verdict: Option<&Verdict>) -> Vec<String> {
        let progress = self.progress;
        let Sums {
            total,
            succeeded,
            failed,
            ..
        } = sums;
        let mut notes = Vec::new();
        match verdict {
            Some(Verdict {
                reason: Some(reason), ..
            }) => notes.push(reason.clone()),
            Some(_) if *failed == 0 => notes.push(format!("{succeeded} of {total} nodes have every image")),
            Some(_) => notes.push(format!(
                "{succeeded} of {total} nodes have every image, {failed} failed and that is tolerated"
            )),
            None => notes.push(format!("{} of {total} nodes done, {failed} failed", succeeded + failed)),
        }
        notes.extend(self.choice.left_out.sentence());
        notes.extend(foreign_agents_sentence(&progress.foreign_agents));
        if verdict.is_none() || sums.reasons.contains_key(&Reason::AuthDenied) {
            notes.extend(no_logins_sentence(&progress.no_logins));
        }
        if verdict.is_some() {
            return notes;
        }
        match progress.hold.as_ref().and_then(Hold::note) {
            Some(note) => notes.push(note),
            None if progress.too_many_failures() => {
                notes.push(too_many_failures_sentence(progress.counts().active));
            }
            None => {}
        }
        if progress.capped {
            notes.push(FLEET_LIMIT.to_owned());
        }
        notes.extend(progress.no_room_sentence());
        if sums.reasons.contains_key(&Reason::NodePolicyNotEnforced) {
            notes.push(LOGINS_WITHHELD.to_owned());
        }
        if !self.unusable.is_empty() {
            notes.push(format!("nodes wait: {}", unusable_secrets(self.unusable.all())));
        }
        notes
    }
}

/// The status of a job that is not served.
pub fn refused(
    previous: Option<&ImagePrePullJobStatus>,
    generation: Option<i64>,
    refusal: &Refusal,
    now: Timestamp,
) -> ImagePrePullJobStatus {
    let (reason, why) = match refusal.failure() {
        Ok(failure) => failure,
        Err(why) => {
            return ImagePrePullJobStatus {
                reason: Some(why.to_owned()),
                ..previous.cloned().unwrap_or_default()
            };
        }
    };
    let now = whole_seconds(now);
    let why = shorten(why);
    let mut conditions = Conditions::new(previous.map(|status| &*status.progress.conditions), generation, now);
    conditions.ended(EndCondition::Failed(reason), &why);
    let mut status = ImagePrePullJobStatus {
        phase: Some(JobPhase::Failure.as_str().to_owned()),
        reason: Some(why),
        ..ImagePrePullJobStatus::default()
    };
    say(&mut status, State::Failed, Event::Init, previous, now);
    status.progress.conditions = conditions.into_list();
    status
}

/// v1alpha1's words for the whole job. The time moves only when they do.
fn say(
    status: &mut ImagePrePullJobStatus,
    state: State,
    event: Event,
    previous: Option<&ImagePrePullJobStatus>,
    now: Timestamp,
) {
    status.state = Some(state.as_str().to_owned());
    status.event = Some(event.as_str().to_owned());
    status.action = Some(state.action().to_owned());
    let same = previous.filter(|previous| previous.state == status.state && previous.event == status.event);
    let since = same.and_then(|previous| previous.time.clone());
    status.time = Some(since.unwrap_or_else(|| now.to_string()));
}

fn legacy(lines: &[Line], verdict: Option<&Verdict>) -> (State, Event) {
    match verdict.map(|verdict| verdict.phase) {
        Some(JobPhase::Completed) => (State::Successful, Event::Pull),
        Some(JobPhase::Failure) => {
            let mut events = lines
                .iter()
                .filter(|line| line.phase.is_failed())
                .map(|line| line.event);
            let first = events.next().unwrap_or(Event::Pull);
            let same = events.all(|event| event == first);
            (State::Failed, if same { first } else { Event::Pull })
        }
        Some(JobPhase::InProgress) | None if lines.iter().any(Line::passed_checks) => (State::Pulling, Event::Check),
        Some(JobPhase::InProgress) | None => (State::Checking, Event::Init),
    }
}

/// How many nodes are where.
struct Sums {
    total: usize,
    succeeded: usize,
    failed: usize,
    reasons: BTreeMap<Reason, usize>,
}

impl Sums {
    fn of(lines: &[Line]) -> Self {
        let count = |is: &dyn Fn(&Line) -> bool| lines.iter().filter(|line| is(line)).count();
        let mut reasons = BTreeMap::new();
        for reason in lines.iter().filter_map(|line| line.why) {
            *reasons.entry(reason).or_default() += 1;
        }
        Self {
            total: lines.len(),
            succeeded: count(&|line| line.phase == NodePhase::Successful),
            failed: count(&|line| line.phase.is_failed()),
            reasons,
        }
    }
}

#[cfg(test)]
mod large;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod tests;
