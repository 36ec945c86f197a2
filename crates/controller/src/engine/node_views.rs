//! How a campaign sees a node: whether it selects the node, what keeps the node from taking part, and what the node reports.

use std::collections::BTreeMap;

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_api::contract::Answer;
use larder_model::Reason;
use larder_planner::agent_nodes::NoAgent;
use larder_planner::campaign::{Campaign, SecretScope};
use larder_planner::dialect::Relabelled;
use larder_planner::occupancy::{NoRoom, claim_fits};
use larder_planner::report::NodeReport;
use larder_planner::select::{NodeTraits, SelectBy};
use larder_planner::task::NodeTask;
use larder_planner::{Block, Heard, NodeKey, NodeView};

use super::compressed_node_image::CompressedNodeImage;
use super::jobs::Running;
use super::node_policy::Sealing;
use super::nodes::{NodeChange, NodeRecord};
use super::{Engine, JobId};
use crate::kinds::KindId;

impl Engine {
    /// Takes in a NodeImage, from the watch or from a write.
    pub(super) fn observe_image(&mut self, node: &NodeKey, object: NodeImage, from_write: bool, now: Timestamp) {
        let Some((before, change)) = self.nodes.observe_image(node, object, from_write, now) else {
            return;
        };
        self.record_results(node, &before, now);
        self.nodes.forget_texts(node, |owner| {
            KindId::of_reference(owner).is_some_and(|kind| kind.kind().quotes_nodes)
        });
        self.node_changed(node, &change, now);
        // Jobs that own entries still were shown the node, unless selections were looked at.
        let others_owned = |record: &NodeRecord| before.has_owner_beyond(&record.image);
        if matches!(change, NodeChange::Reselect) || self.nodes.get(node).is_some_and(others_owned) {
            self.show_to_former_jobs(node, &before, now);
        }
        let image = self.nodes.get(node).map(|record| &record.image);
        if image.is_some_and(|image| image.decides_otherwise(&before)) {
            self.queue.node(node);
        }
        self.nodes.compress_later(node);
    }

    /// The NodeImage is gone.
    pub(super) fn image_gone(&mut self, node: &NodeKey, now: Timestamp) {
        if self.nodes.get(node).is_none() {
            return;
        }
        let before = self.nodes.image_gone(node).unwrap_or_default();
        self.reselect_node(node, now);
        self.show_to_former_jobs(node, &before, now);
        self.queue.node(node);
    }

    pub(super) fn node_changed(&mut self, node: &NodeKey, change: &NodeChange, now: Timestamp) {
        match change {
            NodeChange::Nothing => {}
            NodeChange::Seen => self.show_node(node, now),
            NodeChange::Reselect => self.reselect_node(node, now),
        }
    }

    /// Looks anew which running jobs select a node, and shows the node to them.
    pub(super) fn reselect_node(&mut self, node: &NodeKey, now: Timestamp) {
        for job in self.jobs.running_ids() {
            self.reselect(job, node, now);
        }
    }

    /// Looks anew whether a job selects a node, and shows the node to it if it does, or did: a job holds the slot of a node
    /// that it left until its entries are gone. True if the node was shown.
    pub(super) fn reselect(&mut self, job: JobId, node: &NodeKey, now: Timestamp) -> bool {
        let Some(running) = self.jobs.running(job) else {
            return false;
        };
        let mut shown = running.progress.knows(node);
        if running.knows_nodes() {
            shown |= self.select(job, node);
        }
        if shown {
            self.show(job, node, now);
        }
        self.gate.look_at(node);
        shown
    }

    /// Looks anew whether a job selects a node. True if it does.
    fn select(&mut self, job: JobId, node: &NodeKey) -> bool {
        let Some(running) = self.jobs.running(job) else {
            return false;
        };
        let found = selects(running, node, self.nodes.get(node));
        let no_agent = match found {
            Selected::WithoutAgent(why) => Some(why),
            Selected::Yes | Selected::No => None,
        };
        if let Some(running) = self.jobs.running_mut(job)
            && running.progress.leave_out(node, no_agent)
        {
            self.queue.job(job);
        }
        let selected = found == Selected::Yes;
        let was_selected = match self.nodes.get_mut(node) {
            Some(record) if selected => !record.jobs.insert(job),
            Some(record) => record.jobs.remove(&job),
            None => false,
        };
        // A job that left the node is taken off its entries.
        if selected != was_selected {
            self.queue.node(node);
        }
        selected
    }

    /// Shows a node to the jobs that select it, and to those that still own an entry: they hold a slot until it is gone.
    fn show_node(&mut self, node: &NodeKey, now: Timestamp) {
        let Some(record) = self.nodes.get(node) else {
            return;
        };
        let mut jobs = self.jobs.owners_in(record.image.as_ref());
        jobs.extend(&record.jobs);
        for job in jobs {
            self.show(job, node, now);
        }
    }

    /// Shows a node to jobs that owned an entry of it and do not select it any more: when the entry is gone, so is the slot.
    fn show_to_former_jobs(&mut self, node: &NodeKey, before: &CompressedNodeImage, now: Timestamp) {
        let mut jobs = self.jobs.owners_in(before.as_ref());
        if let Some(record) = self.nodes.get(node) {
            jobs.retain(|job| !record.jobs.contains(job));
        }
        for job in jobs {
            self.show(job, node, now);
        }
    }

    /// Shows a node to a job, whether or not anything is known of the node. The job is looked at if that brings anything new.
    pub(super) fn show(&mut self, job: JobId, node: &NodeKey, now: Timestamp) {
        let has_new_task = self.follow_labels(job, node, now);
        let Some((view, is_reported)) = self.view(job, node, now) else {
            return;
        };
        if let Some(running) = self.jobs.running_mut(job) {
            let is_changed = running.progress.node_changed(node, view, now);
            if is_changed || is_reported || has_new_task {
                self.queue.job(job);
                self.gate.look_at(node);
            }
        }
    }

    /// Has a node's task made anew where its labels ask for another one and it was not handed out yet. True if that happened.
    fn follow_labels(&mut self, job: JobId, node: &NodeKey, now: Timestamp) -> bool {
        let record = self.nodes.get(node);
        let Some(known) = record.and_then(NodeRecord::candidate) else {
            return false;
        };
        let Some((job, running)) = self.jobs.running_job_mut(job).filter(|(job, _)| job.follows_labels()) else {
            return false;
        };
        let campaign = running.progress.campaign();
        let (task, object) = (campaign.tasks.of(node), record.and_then(NodeRecord::living_image));
        let report = task
            .zip(object)
            .and_then(|(task, object)| task.report(object, campaign.uid()));
        let has_order = report.is_some() || (task.is_some() && running.progress.has_order(node));
        if has_order {
            return false;
        }
        match job.relabelled(&running.progress, node, known) {
            Some(Relabelled::Task(task)) => running.progress.set_task(node, task, now),
            Some(Relabelled::Campaign(campaign)) => running.progress.amend(*campaign, now),
            None => return false,
        }
        true
    }

    /// A node as a job sees it: whether the job selects it, what keeps it from taking part, and what its NodeImage reports
    /// about the job's task. The dialect is shown the report on the way; whether that was news to it is the second value. None
    /// if the job does not run.
    fn view(&mut self, job: JobId, node: &NodeKey, now: Timestamp) -> Option<(NodeView, bool)> {
        let record = self.nodes.get(node);
        let object = record.and_then(NodeRecord::living_image);
        let sealing = object.map_or(Sealing::Allowed, |object| self.sealing.sealing_for(object));
        let (the_job, running) = self.jobs.running_job_mut(job)?;
        let progress = &running.progress;
        let campaign = progress.campaign();
        let task = campaign.tasks.of(node);
        let report = task
            .zip(object)
            .and_then(|(task, object)| task.report(object, campaign.uid()));
        let report = report.zip(task).map(|(report, task)| {
            report.rephrased(task, |image, handed_out, reason| {
                the_job.rephrase(progress, image, handed_out, reason)
            })
        });
        let mut claim = report.as_ref().map(NodeReport::claim_view);
        let selected = is_selected(campaign, job, node, record);
        let has_order = claim.is_some();
        let block = selected
            .then(|| block(running, node, record, has_order, sealing, now))
            .flatten();
        let is_full = block.is_some_and(|block| block.reason == Reason::NodeFull);
        let no_room = record
            .filter(|_| is_full)
            .and_then(|record| no_room(record, campaign, node));
        // What a node reported outlives its NodeImage, and a node that is gone has no task to read it by.
        let readable = object.is_some() && task.is_some();
        let is_reported = (readable || !progress.has_succeeded(node)) && {
            let report = report.filter(|_| selected);
            the_job.reported(node, report)
        };
        if let (Some(claim), Some(object)) = (&mut claim, object)
            && let Answer::Failed(Reason::AuthDenied | Reason::CredentialsUnreadable) = claim.answer
        {
            let target = self.sealing.target(node, object);
            claim.again = target.is_some_and(|target| self.logins().are_newer(job, node, object, &target));
        }
        let agent = object.and_then(|object| object.status.as_ref()?.agent.as_ref());
        let foreign_agent = block.is_some_and(|block| block.reason == Reason::CredentialsUnreadable)
            && object.is_some_and(is_served_by_another);
        let view = NodeView {
            selected,
            block,
            no_room: no_room.map(Box::new),
            foreign_agent,
            claim,
            heard: Heard {
                last_seen: agent.and_then(|agent| agent.last_seen.as_ref()).map(|time| time.0),
                writes: record.map_or(0, |record| record.status_writes),
            },
            unreadable: !readable,
        };
        Some((view, is_reported))
    }
}

fn is_selected(campaign: &Campaign, job: JobId, node: &NodeKey, record: Option<&NodeRecord>) -> bool {
    match (&campaign.selection.by, record) {
        (SelectBy::Fixed(names), _) => names.contains(&**node),
        (_, record) => record.is_some_and(|record| record.jobs.contains(&job)),
    }
}

/// Whether a job selects a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selected {
    Yes,
    No,
    /// It would, but no agent runs there.
    WithoutAgent(NoAgent),
}

/// Whether a running job selects a node. A node whose NodeImage is still to be made counts, or a job could end before the
/// fleet is there.
fn selects(running: &Running, node: &NodeKey, record: Option<&NodeRecord>) -> Selected {
    let selection = &running.progress.campaign().selection;
    let yes_or_no = |selected| if selected { Selected::Yes } else { Selected::No };
    if let SelectBy::Fixed(names) = &selection.by {
        return yes_or_no(names.contains(&**node));
    }
    let Some(record) = record else {
        return Selected::No;
    };
    let no_labels = BTreeMap::new();
    let labels = match (record.living_metadata(), &record.facts) {
        (Some(metadata), _) => metadata.labels.as_ref(),
        (None, Some(facts)) => facts.labels.as_ref(),
        (None, None) => return Selected::No,
    };
    let selected = selection.selects(NodeTraits {
        name: node,
        labels: labels.unwrap_or(&no_labels),
        taints: record.facts.as_ref().map_or(&[], |facts| &facts.taints),
        runs_matching_pod: running.pods.as_ref().is_some_and(|pods| pods.contains_key(node)),
    });
    match record.no_agent {
        Some(why) if selected => Selected::WithoutAgent(why),
        Some(_) | None => yes_or_no(selected),
    }
}

/// What keeps a node from taking part in a job. `has_order` says whether its NodeImage holds the job's order, `sealing`
/// whether the node may be sent credentials.
fn block(
    running: &Running,
    node: &NodeKey,
    record: Option<&NodeRecord>,
    has_order: bool,
    sealing: Sealing,
    now: Timestamp,
) -> Option<Block> {
    let campaign = running.progress.campaign();
    let started = running.progress.started();
    let blocked = |reason, since: Option<Timestamp>| {
        let since = since.unwrap_or(started).clamp(started, now.max(started));
        Some(Block {
            reason,
            since: Some(since),
        })
    };
    let fixed = matches!(campaign.selection.by, SelectBy::Fixed(_));
    let task = campaign.tasks.of(node);
    let (Some(record), Some(task)) = (record.filter(|record| !fixed || record.has_node()), task) else {
        return blocked(Reason::NodeUnsuitable, Some(now));
    };
    if let Some(facts) = record.facts.as_ref().filter(|facts| !facts.ready) {
        return blocked(Reason::NodeNotReady, facts.since);
    }
    let Some(object) = record.living_image() else {
        return blocked(Reason::Unresponsive, None);
    };
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let Some(status) = &object.status else {
        return blocked(Reason::Unresponsive, created);
    };
    // A node that has the order needs no more room for it.
    if !has_order && no_room(record, campaign, node).is_some() {
        return blocked(Reason::NodeFull, Some(now));
    }
    let key = status.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
    // A Secret and the policy are waited for without end.
    let waits = |reason| Some(Block { reason, since: None });
    if needs_credentials(running, task) {
        match sealing {
            Sealing::Allowed if key.is_some() => {}
            Sealing::Allowed | Sealing::SharedWriter => return blocked(Reason::CredentialsUnreadable, created),
            Sealing::PolicyNotEnforced => return waits(Reason::NodePolicyNotEnforced),
        }
    }
    if campaign.secret_scope == SecretScope::Node && lacks_secret(running, task) {
        return waits(Reason::SecretMissing);
    }
    None
}

/// Whether a node can do its task only with credentials. Where the Secrets hold no login for a registry, it is asked
/// without one.
pub(super) fn needs_credentials(running: &Running, task: &NodeTask) -> bool {
    let mut with_secrets = task.images().iter().filter(|image| !image.secrets.is_empty());
    with_secrets.any(|image| running.progress.has_login(image.image.registry()))
}

/// Why a node's NodeImage has no room for a campaign's task, if it has none.
fn no_room(record: &NodeRecord, campaign: &Campaign, node: &NodeKey) -> Option<NoRoom> {
    let (object, task) = (record.living_image()?, campaign.tasks.of(node)?);
    claim_fits(object, record.bytes, record.occupancy.as_deref(), campaign, task).err()
}

/// Whether something reports in a NodeImage that is not Larder's agent, which introduces itself with its first report.
fn is_served_by_another(object: &NodeImage) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.agent.is_none())
}

fn lacks_secret(running: &Running, task: &NodeTask) -> bool {
    task.secrets().iter().any(|secret| running.unusable.contains(secret))
}
