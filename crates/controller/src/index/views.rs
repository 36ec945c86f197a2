//! How a campaign sees a node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_api::contract::Answer;
use larder_model::Reason;
use larder_planner::order::claim_view;
use larder_planner::select::{NodeTraits, SelectBy};
use larder_planner::{Block, NodeKey, NodeView};

use super::jobs::{JobState, Running};
use super::nodes::NodeRecord;
use super::{Index, JobId};

impl Index {
    /// Looks anew which running jobs select a node, and shows it to them.
    pub(super) fn reselect_node(&mut self, node: &NodeKey, now: Timestamp) {
        let jobs: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.is_running())
            .map(|(id, _)| *id)
            .collect();
        for job in jobs {
            self.reselect(job, node, now);
        }
    }

    /// Looks anew which nodes a job selects, and shows them to it.
    pub(super) fn reselect_job(&mut self, job: JobId, now: Timestamp) {
        let nodes: Vec<NodeKey> = self.nodes.keys().cloned().collect();
        for node in nodes {
            self.reselect(job, &node, now);
            self.fold(&node);
        }
    }

    /// Looks anew whether a job selects a node, and shows the node to it.
    pub(super) fn reselect(&mut self, job: JobId, node: &NodeKey, now: Timestamp) {
        let (Some(running), Some(record)) = (self.running(job), self.nodes.get(node)) else {
            return;
        };
        if !running.sees_pods {
            return;
        }
        let selected = match running.work {
            Some(_) => running.has_chosen(node),
            None => selects(running, node, record),
        };
        let was_selected = record.jobs.contains(&job);
        if let Some(record) = self.nodes.get_mut(node) {
            if selected {
                record.jobs.insert(job);
            } else {
                record.jobs.remove(&job);
            }
        }
        if selected || was_selected {
            self.touch(job, node, now);
            // Whoever left is taken off the node's entry.
            if selected != was_selected {
                self.agenda.node(node);
            }
        }
    }

    /// Shows a node to the jobs that select it.
    pub(super) fn touch_node(&mut self, node: &NodeKey, now: Timestamp) {
        let Some(record) = self.nodes.get(node) else {
            return;
        };
        // Jobs that no longer select the node hold a slot until their order is gone.
        let mut jobs = self.owners_in(record.image.as_ref());
        jobs.extend(&record.jobs);
        for job in jobs {
            self.touch(job, node, now);
        }
    }

    /// Shows a node to jobs that had an order on it and do not select it any more: when the order is gone, so is their slot.
    pub(super) fn show_loss(&mut self, node: &NodeKey, before: Option<&NodeImage>, now: Timestamp) {
        let mut jobs = self.owners_in(before);
        if let Some(record) = self.nodes.get(node) {
            jobs.retain(|job| !record.jobs.contains(job));
        }
        for job in jobs {
            self.touch(job, node, now);
        }
    }

    /// The jobs that own entries of a NodeImage.
    fn owners_in(&self, image: Option<&NodeImage>) -> BTreeSet<JobId> {
        let images = image.into_iter().flat_map(|image| image.spec.images.values());
        let owners = images
            .flat_map(|image| &image.tags)
            .flat_map(|entry| &entry.owner_references);
        let uids = owners.filter_map(|owner| owner.uid.as_ref());
        uids.filter_map(|uid| self.job_uids.get(uid)).copied().collect()
    }

    /// Shows a node to a job.
    pub(super) fn touch(&mut self, job: JobId, node: &NodeKey, now: Timestamp) {
        if self.running(job).is_some_and(|running| running.work.is_some()) {
            self.touch_chosen(job, node, now);
            return;
        }
        let Some(view) = self.view(job, node) else {
            return;
        };
        if let Some(running) = self.running_mut(job) {
            running.progress.node_changed(node, view, now);
            self.agenda.job(job);
        }
    }

    fn view(&self, job: JobId, node: &NodeKey) -> Option<NodeView> {
        let running = self.running(job)?;
        let Some(record) = self.nodes.get(node) else {
            return Some(NodeView::default());
        };
        let campaign = running.progress.campaign();
        let object = record.living_image();
        let mut claim = object.and_then(|object| claim_view(object, &campaign.image, campaign.uid()));
        if let (Some(claim), Some(object)) = (&mut claim, object)
            && let Answer::Failed(Reason::AuthDenied | Reason::CredentialsUnreadable) = claim.answer
        {
            claim.again = self.has_newer_credentials(job, node, object);
        }
        Some(NodeView {
            selected: record.jobs.contains(&job),
            block: block(running, record, object.is_some_and(|object| self.may_seal_for(object))),
            claim,
            heard: object
                .and_then(|object| object.status.as_ref()?.agent.as_ref()?.last_seen.as_ref())
                .map(|time| time.0),
        })
    }

    pub(super) fn running(&self, job: JobId) -> Option<&Running> {
        match &self.jobs.get(&job)?.state {
            JobState::Running(running) => Some(running),
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => None,
        }
    }

    pub(super) fn running_mut(&mut self, job: JobId) -> Option<&mut Running> {
        match &mut self.jobs.get_mut(&job)?.state {
            JobState::Running(running) => Some(running),
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => None,
        }
    }
}

/// Whether a running job selects a node. One whose NodeImage is still to be made counts, or a job could end before the
/// fleet is there.
fn selects(running: &Running, node: &NodeKey, record: &NodeRecord) -> bool {
    let no_labels = std::collections::BTreeMap::new();
    let labels = match (record.living_metadata(), &record.facts) {
        (Some(metadata), _) => metadata.labels.as_ref(),
        (None, Some(facts)) if record.has_node() => facts.labels.as_ref(),
        (None, _) => return false,
    };
    let selection = &running.progress.campaign().selection;
    selection.selects(NodeTraits {
        name: node,
        labels: labels.unwrap_or(&no_labels),
        taints: record.taints(),
        runs_matching_pod: matches!(selection.by, SelectBy::Pods(_)) && running.pods.contains_key(node),
    })
}

/// What keeps a node from taking part in a job with one image.
fn block(running: &Running, record: &NodeRecord, may_seal: bool) -> Option<Block> {
    let campaign = running.progress.campaign();
    let image = (campaign.image.name(), campaign.image.tag_text());
    let has_room = || record.has_room_for([image]);
    obstacle(
        record,
        running.progress.started(),
        has_room,
        (!campaign.secrets.is_empty()).then_some(may_seal),
    )
}

/// What keeps a node from taking part in a job that started at this moment. `may_seal` is there where it needs credentials,
/// and says whether it may be sent any.
pub(super) fn obstacle(
    record: &NodeRecord,
    started: Timestamp,
    has_room: impl FnOnce() -> bool,
    may_seal: Option<bool>,
) -> Option<Block> {
    let since = |moment: Option<Timestamp>| moment.unwrap_or(started).max(started);
    let blocked = |reason, moment| {
        Some(Block {
            reason,
            since: since(moment),
        })
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
    if !has_room() {
        return blocked(Reason::NodeFull, record.full_since);
    }
    let key = status.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
    if may_seal.is_some_and(|may_seal| !may_seal || key.is_none()) {
        return blocked(Reason::CredentialsUnreadable, created);
    }
    None
}
