//! What a node of a running ImagePrePullJob is asked for, when its labels change or the controller comes back.
//!
//! The overriders go by the labels that a node has when it is handed the order. From then on it keeps what it was asked for,
//! whatever becomes of its labels: a pull that is under way is not thrown away, and a success is not taken back. Only an
//! edit of the images or overriders asks anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use larder_api::ImagePrePullJob;
use larder_planner::prepull::nodes::Chosen;
use larder_planner::prepull::{Choice, PrePull, Tasks};
use larder_planner::{NodeKey, Progress};

use super::{Work, candidate};
use crate::index::jobs::JobState;
use crate::index::{Index, JobId};

impl Work {
    /// What nodes with an order go on with after an edit that leaves the images alone.
    pub(super) fn kept_by(&self, plan: &PrePull, progress: &Progress) -> Tasks {
        if plan.images != self.plan.images || plan.overriders != self.plan.overriders {
            return Tasks::new();
        }
        let ordered = self.tasks.iter().filter(|(node, _)| progress.has_order(node));
        ordered.map(|(node, task)| (node.clone(), Arc::clone(task))).collect()
    }
}

impl Index {
    /// What nodes were asked for by an earlier life of the controller, where their labels say something else by now. An
    /// edit in between asks anew.
    pub(super) fn handed_out_before(&self, plan: &PrePull, job: &ImagePrePullJob, claimed: &[NodeKey]) -> Tasks {
        let conditions = job.status.iter().flat_map(|status| &status.progress.conditions);
        let mut seen = conditions.filter_map(|condition| condition.observed_generation);
        if plan.overriders.is_empty() || !seen.any(|seen| job.metadata.generation == Some(seen)) {
            return Tasks::new();
        }
        let object = |node| Some((node, self.nodes.get(node)?.living_image()?));
        plan.handed_out(&self.candidates(), claimed.iter().filter_map(object))
    }

    /// Whether a node that is chosen has no task, or one that its labels do not ask for any more and that it was not
    /// handed out.
    pub(super) fn needs_task(&self, job: JobId, node: &NodeKey) -> bool {
        let Some(running) = self.running(job).filter(|running| running.has_chosen(node)) else {
            return false;
        };
        let (Some(work), Some(record)) = (&running.work, self.nodes.get(node)) else {
            return false;
        };
        let Some(task) = work.tasks.get(node) else {
            return true;
        };
        let relabelled =
            candidate(record).is_some_and(|node| work.plan.overriders.matching(node.labels) != task.overriders());
        if !relabelled || running.progress.has_order(node) {
            return false;
        }
        let uid = running.progress.campaign().uid();
        let object = record.living_image();
        object.and_then(|object| task.report(object, uid)).is_none()
    }

    /// Gives a node of the choice the task that its labels ask for.
    pub(super) fn give_task(&mut self, id: JobId, node: &NodeKey, now: Timestamp) {
        let Some(candidate) = self.nodes.get(node).and_then(|record| candidate(record)) else {
            return;
        };
        let Some(JobState::Running(running)) = self.jobs.get_mut(&id).map(|record| &mut record.state) else {
            return;
        };
        let Some(work) = running.work.as_deref_mut() else {
            return;
        };
        let name = node.clone();
        let mut alone = Choice {
            nodes: vec![Chosen { name, unfit: None }],
            ..Choice::default()
        };
        let fleet = BTreeMap::from([(node.clone(), candidate)]);
        work.tasks.remove(node);
        work.tasks.extend(work.plan.tasks(&mut alone, &fleet, &Tasks::new()));
        let secrets = &running.progress.campaign().secrets;
        let known = work.tasks.get(node).is_some_and(|task| {
            let mut needed = task.secrets().into_iter().map(ToString::to_string);
            needed.all(|secret| secrets.contains(&secret))
        });
        // The engine's view is as long as the fleet, and mostly the same as before.
        if known {
            return;
        }
        let mut chosen = work.choice.nodes.iter_mut();
        if let (Some(chosen), Some(now)) = (chosen.find(|chosen| chosen.name == *node), alone.nodes.pop()) {
            *chosen = now;
        }
        if let Some(campaign) = work.plan.campaign(&work.choice, &work.tasks) {
            running.progress.amend(campaign, now);
        }
    }
}
