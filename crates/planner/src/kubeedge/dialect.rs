//! ImagePrePullJob as a [`Dialect`]: how the engine starts, edits, follows and ends one.
//!
//! The overriders of a job go by the labels that a node has when it is handed its task. From then on the node keeps its
//! task, whatever becomes of its labels: a pull that is under way is not thrown away, and a success is not taken back.
//! Only an edit of the images or overriders asks anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus};
use larder_model::{ImageRef, Reason};

use super::campaign::PrePull;
use super::explain::{explain, not_chosen};
use super::nodes::{Before, Choice, Chosen, choose};
use super::reports::Reports;
use super::{status, time, verdict};
use crate::dialect::{Candidate, Dialect, Finished, Fleet, JobStatus, Plan, Refusal, Relabelled, StatusCounts};
use crate::explain::Explanation;
use crate::finish::End;
use crate::progress::Progress;
use crate::report::{Failure, NodeReport};
use crate::secret::UnusableSecrets;
use crate::task::{NodeTask, Tasks};
use crate::view::NodeKey;

/// The kind `ImagePrePullJob`.
#[derive(Debug)]
pub enum PrePullJobs {}

/// What a running ImagePrePullJob keeps beside its progress.
#[derive(Clone, Debug)]
pub struct PrePullRun {
    /// What the job asks for.
    pub plan: PrePull,
    /// The nodes that it chose.
    pub choice: Choice,
    /// What they report.
    pub reports: Reports,
}

impl Dialect for PrePullJobs {
    type Object = ImagePrePullJob;
    type Status = ImagePrePullJobStatus;
    type Run = PrePullRun;

    const FOREIGN_FINALIZER: Option<&'static str> = Some(larder_api::names::KUBEEDGE_FINALIZER);
    const QUOTES_NODES: bool = true;
    const FOLLOWS_LABELS: bool = true;

    fn status_of(object: &ImagePrePullJob) -> Option<&ImagePrePullJobStatus> {
        object.status.as_ref()
    }

    fn started(object: &ImagePrePullJob) -> Option<Timestamp> {
        object.status.as_ref().and_then(verdict::began)
    }

    fn finished(object: &ImagePrePullJob) -> Option<Finished> {
        let status = object.status.as_ref()?;
        verdict::is_over(status, object.metadata.generation).then(|| {
            let plan = PrePull::of(object).ok();
            Finished {
                at: verdict::ended(status),
                pins: plan.as_ref().is_some_and(|plan| plan.pin),
                ttl: plan.and_then(|plan| plan.ttl),
            }
        })
    }

    fn plan(
        object: &ImagePrePullJob,
        fleet: &dyn Fleet,
        earlier: Option<(&PrePullRun, &Progress)>,
    ) -> Result<Plan<PrePullRun>, Refusal> {
        let plan = PrePull::of(object).map_err(|refusal| Refusal::InvalidSpec(refusal.to_string()))?;
        if earlier.is_some_and(|(run, _)| run.plan == plan) {
            return Ok(Plan::Unchanged);
        }
        let nodes = fleet.nodes();
        let (before, kept, reports, succeeded_before) = if let Some((run, progress)) = earlier {
            (
                run.choice_before(&plan),
                run.kept_tasks(&plan, progress),
                run.reports.clone(),
                Vec::new(),
            )
        } else {
            let claimed = fleet.claimed_by(&plan.uid());
            let kept = if was_seen(object) && !plan.overriders.is_empty() {
                plan.handed_out(&nodes, claimed.iter().map(|(node, object)| (node, *object)))
            } else {
                Tasks::default()
            };
            let before = Before::of(object.status.as_ref(), claimed.into_iter().map(|(node, _)| node));
            let departed = Reports::of_departed(object.status.as_ref(), |node| nodes.contains_key(node));
            let names = departed.nodes().cloned().collect();
            (before, kept, departed, names)
        };
        let choice = choose(&plan.nodes, &nodes, plan.waits_for_nodes(), &before);
        let mut choice = choice.map_err(|error| Refusal::NoNodesMatched(error.to_string()))?;
        let tasks = plan.tasks(&mut choice, &nodes, &kept);
        let campaign = Box::new(plan.campaign(&choice, tasks));
        let run = PrePullRun { plan, choice, reports };
        Ok(Plan::Campaign {
            campaign,
            run,
            succeeded_before,
        })
    }

    fn relabelled(
        run: &mut PrePullRun,
        progress: &Progress,
        node: &NodeKey,
        known: Candidate<'_>,
    ) -> Option<Relabelled> {
        let campaign = progress.campaign();
        let task = campaign.tasks.of(node);
        let same = task.is_some_and(|task| run.plan.overriders.matching(known.labels) == task.variant());
        if same || !campaign.selection.names(node) {
            return None;
        }
        let mut alone = Choice {
            nodes: vec![Chosen {
                name: node.clone(),
                unfit: None,
            }],
            ..Choice::default()
        };
        let fleet = BTreeMap::from([(node.clone(), known)]);
        let own = run.plan.tasks(&mut alone, &fleet, &Tasks::default());
        // The campaign is as long as the fleet, and mostly the same as before.
        let knows_secrets =
            |task: &&Arc<NodeTask>| task.secrets().iter().all(|secret| campaign.secrets.contains(secret));
        if let Some(task) = own.of(node).filter(knows_secrets) {
            return Some(Relabelled::Task(Arc::clone(task)));
        }
        let chosen = run.choice.nodes.iter_mut().find(|chosen| chosen.name == *node)?;
        *chosen = alone.nodes.pop()?;
        let mut tasks = campaign.tasks.clone();
        tasks.remove(node);
        if let Some(task) = own.of(node) {
            tasks.insert(node.clone(), Arc::clone(task));
        }
        Some(Relabelled::Campaign(Box::new(run.plan.campaign(&run.choice, tasks))))
    }

    fn reported(run: &mut PrePullRun, node: &NodeKey, report: Option<NodeReport>) -> bool {
        run.reports.set(node, report)
    }

    fn rephrase(progress: &Progress, image: &ImageRef, handed_out: Timestamp, reason: Reason) -> Option<Failure> {
        time::rephrase(progress, image, handed_out, reason)
    }

    fn status(
        run: &PrePullRun,
        object: &ImagePrePullJob,
        progress: &mut Progress,
        unusable: &UnusableSecrets,
        end: Option<End>,
        now: Timestamp,
    ) -> ImagePrePullJobStatus {
        status::status(run, object, progress, unusable, end, now)
    }

    fn refused(object: &ImagePrePullJob, refusal: &Refusal, now: Timestamp) -> ImagePrePullJobStatus {
        status::refused(object.status.as_ref(), object.metadata.generation, refusal, now)
    }

    fn achievement(_object: &ImagePrePullJob, counts: StatusCounts) -> String {
        format!("{} of {} nodes have every image", counts.succeeded, counts.desired)
    }

    fn explain(
        run: &PrePullRun,
        progress: &Progress,
        unusable: &UnusableSecrets,
        nodes: &BTreeMap<NodeKey, Option<Candidate<'_>>>,
        now: Timestamp,
    ) -> Vec<(NodeKey, Explanation)> {
        let own = run.choice.nodes.iter();
        let own = own.map(|chosen| (chosen.name.clone(), explain(progress, chosen, unusable, now)));
        let is_chosen = |node: &NodeKey| run.choice.nodes.iter().any(|chosen| chosen.name == *node);
        let others = nodes.iter().filter(|(node, _)| !is_chosen(node));
        let others = others.map(|(node, known)| (node.clone(), not_chosen(&run.plan, *known)));
        own.chain(others).collect()
    }
}

impl JobStatus for ImagePrePullJobStatus {
    fn counts(&self) -> StatusCounts {
        StatusCounts {
            desired: self.desired,
            succeeded: self.succeeded,
            failed: self.failed,
        }
    }

    fn ended(&self) -> Option<Timestamp> {
        verdict::ended(self)
    }
}

impl PrePullRun {
    /// The choice of nodes that an edit starts from.
    fn choice_before(&self, plan: &PrePull) -> Before {
        let same = self.plan.nodes == plan.nodes && self.plan.waits_for_nodes() == plan.waits_for_nodes();
        let before = self.choice.before();
        if same { before } else { before.edited() }
    }

    /// The tasks that nodes with an order go on with after an edit that leaves the images alone.
    fn kept_tasks(&self, plan: &PrePull, progress: &Progress) -> Tasks {
        if plan.images != self.plan.images || plan.overriders != self.plan.overriders {
            return Tasks::default();
        }
        let tasks = progress.campaign().tasks.by_node();
        let ordered = tasks.filter(|(node, _)| progress.has_order(node));
        ordered.map(|(node, task)| (node.clone(), Arc::clone(task))).collect()
    }
}

/// Whether a controller has seen the job as it is now: an edit since then asks nodes anew.
fn was_seen(object: &ImagePrePullJob) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.progress.conditions);
    let mut seen = conditions.filter_map(|condition| condition.observed_generation);
    seen.any(|seen| object.metadata.generation == Some(seen))
}
