//! How a running ImagePrePullJob sees a node.

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_api::contract::Answer;
use larder_model::Reason;
use larder_planner::finish::End;
use larder_planner::prepull::NodeTask;
use larder_planner::prepull::verdict;
use larder_planner::{Block, NodeKey, NodeView};

use super::Work;
use crate::index::jobs::{JobState, Running};
use crate::index::nodes::NodeRecord;
use crate::index::views::obstacle;
use crate::index::{Index, JobId};

impl Running {
    /// Whether an ImagePrePullJob has chosen a node.
    pub(in crate::index) fn has_chosen(&self, node: &NodeKey) -> bool {
        use larder_planner::select::SelectBy;
        match &self.progress.campaign().selection.by {
            SelectBy::Names(names) => names.contains(&**node),
            SelectBy::All | SelectBy::Labels(_) | SelectBy::Pods(_) => false,
        }
    }

    /// How it ended, if it is over.
    pub(in crate::index) fn end(&self, now: Timestamp) -> Option<End> {
        match &self.work {
            None => self.progress.end(now),
            Some(work) => verdict::end(&work.plan, &work.choice, &self.progress, now),
        }
    }
}

impl Index {
    /// Notes whether a job has chosen a node, and shows the node to it.
    pub(super) fn show_chosen(&mut self, job: JobId, node: &NodeKey, now: Timestamp) {
        let chosen = self.running(job).is_some_and(|running| running.has_chosen(node));
        if let Some(record) = self.nodes.get_mut(node) {
            if chosen {
                record.jobs.insert(job);
            } else {
                record.jobs.remove(&job);
            }
        }
        self.touch(job, node, now);
    }

    /// Shows again the nodes whose time is over.
    pub(in crate::index) fn show_overdue(&mut self, job: JobId, now: Timestamp) {
        while let Some(node) = self
            .running_mut(job)
            .and_then(|running| running.work.as_mut()?.overdue.pop_due(now))
        {
            self.touch(job, &node, now);
        }
    }

    /// Shows a node to an ImagePrePullJob, whether or not anything is known of it.
    pub(in crate::index) fn touch_chosen(&mut self, job: JobId, node: &NodeKey, now: Timestamp) {
        if self.needs_task(job, node) {
            self.give_task(job, node, now);
        }
        let Some(mut view) = self.see(job, node, now) else {
            return;
        };
        if let Some(claim) = &mut view.claim
            && let Answer::Failed(Reason::AuthDenied | Reason::CredentialsUnreadable) = claim.answer
            && let Some(object) = self.nodes.get(node).and_then(|record| record.living_image())
        {
            claim.again = self.has_newer_credentials(job, node, object);
        }
        if let Some(running) = self.running_mut(job) {
            running.progress.node_changed(node, view, now);
            self.agenda.job(job);
        }
    }

    /// Takes in what a node says, and what keeps it from taking part.
    fn see(&mut self, job: JobId, node: &NodeKey, now: Timestamp) -> Option<NodeView> {
        let record = self.nodes.get(node).map(|record| &**record);
        let object = record.and_then(NodeRecord::living_image);
        let may_seal = object.is_some_and(|object| self.may_seal_for(object));
        let known = self.jobs.get_mut(&job)?;
        let JobState::Running(running) = &mut known.state else {
            return None;
        };
        let selected = running.has_chosen(node);
        let started = running.progress.started();
        let work = running.work.as_deref_mut()?;
        if !selected {
            return Some(work.farewell(node, object, &known.uid, now));
        }
        let task = work.tasks.get(node).cloned();
        let time = work.plan.node_time(started);
        let report = match &task {
            Some(task) => work.reports.see(node, task, object, &known.uid, time),
            None => work.reports.get(node),
        };
        let timeout = time.timeout();
        let claim = report.map(|report| report.claim_view(timeout, now));
        let over = report.map(|report| report.overdue_at(timeout));
        let open = claim.is_some_and(|claim| !claim.is_final());
        work.overdue.set(node, over.filter(|_| open));
        Some(NodeView {
            selected,
            block: work.block(record, node, task.as_deref(), may_seal, started, now),
            claim,
            heard: object
                .and_then(|object| object.status.as_ref()?.agent.as_ref()?.last_seen.as_ref())
                .map(|time| time.0),
        })
    }
}

impl Work {
    /// A node that an edit took off the list, as long as it has the order.
    fn farewell(&mut self, node: &NodeKey, object: Option<&NodeImage>, uid: &str, now: Timestamp) -> NodeView {
        let report = self
            .leaving
            .get(node)
            .and_then(|task| object.and_then(|object| task.report(object, uid)));
        if report.is_none() {
            self.leaving.remove(node);
        }
        self.overdue.set(node, None);
        NodeView {
            claim: report.map(|report| report.claim_view(self.plan.timeout(), now)),
            ..NodeView::default()
        }
    }

    fn block(
        &mut self,
        record: Option<&NodeRecord>,
        node: &NodeKey,
        task: Option<&NodeTask>,
        may_seal: bool,
        started: Timestamp,
        now: Timestamp,
    ) -> Option<Block> {
        let (Some(record), Some(task)) = (record.filter(|record| record.has_node()), task) else {
            let since = *self.gone.entry(node.clone()).or_insert(now);
            return Some(Block {
                reason: Reason::NodeUnsuitable,
                since,
            });
        };
        self.gone.remove(node);
        let may_seal = (!task.secrets().is_empty()).then_some(may_seal);
        let names = task.references();
        let has_room = || record.has_room_for(names.iter().map(|image| (image.name(), image.tag_text())));
        // A Secret is waited for without end, a node for its time.
        let secret = || {
            self.lacks_secret(task).then_some(Block {
                reason: Reason::SecretMissing,
                since: now,
            })
        };
        obstacle(record, started, has_room, may_seal).or_else(secret)
    }
}
