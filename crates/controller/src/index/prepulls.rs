//! ImagePrePullJobs: what they have beside a campaign's progress. Their nodes are chosen once, each node has several images,
//! and what it says to all of them is one answer to the engine.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_planner::campaign::Campaign;
use larder_planner::finish::End;
use larder_planner::fleet::Share;
use larder_planner::prepull::explain::Lacking;
use larder_planner::prepull::nodes::choose;
use larder_planner::prepull::{Before, Candidate, Choice, NodeTask, PrePull, Reports, Run, SecretRef, Tasks};
use larder_planner::{NodeKey, Progress};

use super::agenda::Later;
use super::jobs::{Ended, JobState, Refusal, Running};
use super::nodes::NodeRecord;
use super::objects::{JobObject, JobStatus};
use super::{Index, JobId};
use crate::kinds::image_pre_pull_job::{Life, began, life};

mod tasks;
mod views;

/// What a running ImagePrePullJob has beside its progress.
pub(super) struct Work {
    pub(super) plan: PrePull,
    pub(super) choice: Choice,
    pub(super) tasks: Tasks,
    pub(super) reports: Reports,
    /// Secrets that do not exist, and that hold no docker configuration: nodes that need one of them wait.
    pub(super) missing: BTreeSet<SecretRef>,
    pub(super) unreadable: BTreeSet<SecretRef>,
    /// When the time of each node at work is over.
    pub(super) overdue: Later<NodeKey>,
    /// What nodes were asked for that an edit took off the list. They hold their slot until their order is gone.
    leaving: Tasks,
    /// Since when nodes are gone.
    gone: BTreeMap<NodeKey, Timestamp>,
}

impl Work {
    fn new(plan: PrePull, choice: Choice, tasks: Tasks, reports: Reports) -> Self {
        Self {
            plan,
            choice,
            tasks,
            reports,
            missing: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            overdue: Later::default(),
            leaving: Tasks::new(),
            gone: BTreeMap::new(),
        }
    }

    /// Whether a node needs a Secret that cannot be used.
    fn lacks_secret(&self, task: &NodeTask) -> bool {
        let cannot = |secret: &&SecretRef| self.missing.contains(*secret) || self.unreadable.contains(*secret);
        task.secrets().iter().any(cannot)
    }

    /// The Secrets that keep a node waiting.
    pub(super) fn lacking(&self, node: &NodeKey) -> Lacking {
        let needed = self.tasks.get(node).map(|task| task.secrets()).unwrap_or_default();
        let of = |unusable: &BTreeSet<SecretRef>| {
            let needed = needed.iter().filter(|secret| unusable.contains(**secret));
            needed.map(ToString::to_string).collect()
        };
        Lacking {
            missing: of(&self.missing),
            unreadable: of(&self.unreadable),
        }
    }

    pub(super) fn status(
        &self,
        progress: &mut Progress,
        object: &JobObject,
        end: Option<End>,
        now: Timestamp,
    ) -> JobStatus {
        let previous = match object {
            JobObject::PrePull(job) => job.status.as_ref(),
            JobObject::Pull(_) => None,
        };
        let run = Run {
            plan: &self.plan,
            choice: &self.choice,
            tasks: &self.tasks,
            reports: &self.reports,
            missing_secrets: &self.missing,
            unreadable_secrets: &self.unreadable,
        };
        let status = run.status(progress, previous, object.metadata().generation, end, now);
        JobStatus::PrePull(Box::new(status))
    }
}

impl Index {
    /// Finds out where an ImagePrePullJob is in its life, and starts or edits it. Its nodes are chosen once, so this is asked
    /// when all of them are known.
    pub(super) fn read_prepull(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get_mut(&id) else {
            return;
        };
        record.unread = false;
        let JobObject::PrePull(job) = &record.object else {
            return;
        };
        if matches!(record.state, JobState::Leaving(_)) {
            return;
        }
        if job.metadata.deletion_timestamp.is_some() {
            self.stop(id, JobState::Leaving(now));
            return;
        }
        let (known, speaks) = match &record.state {
            JobState::Ended(ended) => (Some(ended.at), ended.last_word.is_some()),
            JobState::Running(_) | JobState::Leaving(_) | JobState::Idle => (None, false),
        };
        match life(job) {
            Life::Over(at, plan) => {
                let ended = Ended {
                    at: at.or(known).unwrap_or(now),
                    pins: plan.as_ref().is_some_and(|plan| plan.pin),
                    ttl: plan.and_then(|plan| plan.ttl),
                    last_word: None,
                };
                self.ended_at(id, ended);
            }
            // Its last word is on its way.
            Life::Runs(_) | Life::Refused(_) if speaks => {}
            Life::Runs(_) | Life::Refused(_) if !self.limits.serve_jobs => self.refuse(id, Refusal::GateOff),
            Life::Refused(why) => self.refuse(id, Refusal::Spec(why)),
            Life::Runs(plan) => {
                if let Err(why) = self.start_or_edit_prepull(id, *plan, now) {
                    self.refuse(id, Refusal::Spec(why));
                }
            }
        }
    }

    /// Starts a job, takes it up again, or edits it. The error is a sentence for its status.
    fn start_or_edit_prepull(&mut self, id: JobId, plan: PrePull, now: Timestamp) -> Result<(), String> {
        let Some(record) = self.jobs.get(&id) else {
            return Ok(());
        };
        let JobObject::PrePull(job) = &record.object else {
            return Ok(());
        };
        let started = began(job, now);
        let earlier = match &record.state {
            JobState::Running(running) => running.work.as_deref().map(|work| (&running.progress, work)),
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => None,
        };
        let mut shown: BTreeSet<NodeKey> = BTreeSet::new();
        let (before, kept) = match earlier {
            Some((_, work)) if work.plan == plan => return Ok(()),
            Some((progress, work)) => {
                shown.extend(work.choice.fit().cloned());
                let same = work.plan.nodes == plan.nodes && work.plan.waits_for_nodes() == plan.waits_for_nodes();
                let before = work.choice.before();
                let before = if same { before } else { before.edited() };
                (before, work.kept_by(&plan, progress))
            }
            None => {
                let claimed = self.claimed_by(&record.uid);
                let kept = self.handed_out_before(&plan, job, &claimed);
                (Before::of(job.status.as_ref(), claimed), kept)
            }
        };
        let (choice, tasks, campaign) = self.deploy(&plan, &before, &kept)?;
        shown.extend(choice.fit().cloned());
        let is_there = |node: &str| self.nodes.get(node).is_some_and(|record| record.has_node());
        let departed = Reports::of_departed(job.status.as_ref(), started, is_there);
        let Some(record) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        record.refusal = None;
        match &mut record.state {
            JobState::Running(running) => {
                running.progress.edit(campaign, now);
                if let Some(work) = &mut running.work {
                    let before = std::mem::replace(&mut work.tasks, tasks);
                    (work.plan, work.choice) = (plan, choice);
                    let tasks = &work.tasks;
                    let left = before.into_iter().filter(|(node, _)| !tasks.contains_key(node));
                    work.leaving.extend(left);
                }
            }
            JobState::Ended(_) | JobState::Leaving(_) | JobState::Idle => {
                let work = Work::new(plan, choice, tasks, departed);
                let share = Share::of_newcomer(self.served);
                let running = Running::new(Progress::new(campaign, started), Some(work), share);
                record.state = JobState::Running(Box::new(running));
                self.running += 1;
            }
        }
        for node in &shown {
            self.show_chosen(id, node, now);
            self.fold(node);
        }
        self.wake_nodes_of(id);
        self.look_for_logins(id);
        Ok(())
    }

    /// All nodes, as a choice looks at them.
    fn candidates(&self) -> BTreeMap<NodeKey, Candidate<'_>> {
        let known = self.nodes.iter();
        known
            .filter_map(|(node, record)| Some((node.clone(), candidate(record)?)))
            .collect()
    }

    /// The nodes of a job, what each of them is asked for, and the same for the engine.
    fn deploy(&self, plan: &PrePull, before: &Before, kept: &Tasks) -> Result<(Choice, Tasks, Campaign), String> {
        let fleet = self.candidates();
        let choice = choose(&plan.nodes, &fleet, plan.waits_for_nodes(), before);
        let mut choice = choice.map_err(|error| error.to_string())?;
        let tasks = plan.tasks(&mut choice, &fleet, kept);
        let campaign = plan.campaign(&choice, &tasks);
        let campaign = campaign.ok_or("images is empty; name at least one image")?;
        Ok((choice, tasks, campaign))
    }

    /// Nodes on which a job has an entry.
    fn claimed_by(&self, uid: &str) -> Vec<NodeKey> {
        let claimed = |record: &NodeRecord| {
            if !record.image.may_name(uid) {
                return false;
            }
            let images = record
                .image
                .as_ref()
                .into_iter()
                .flat_map(|image| image.spec.images.values());
            let mut entries = images.flat_map(|image| &image.tags);
            entries.any(|entry| entry.claim_version(uid).is_some())
        };
        let nodes = self.nodes.iter().filter(|(_, record)| claimed(record));
        nodes.map(|(node, _)| node.clone()).collect()
    }
}

/// What a choice looks at; None where Kubernetes has no node that can pull.
pub(super) fn candidate(record: &NodeRecord) -> Option<Candidate<'_>> {
    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
    let facts = record.facts.as_ref().filter(|_| record.has_node())?;
    let of_image = || record.image.metadata()?.labels.as_ref();
    Some(Candidate {
        labels: facts.labels.as_ref().or_else(of_image).unwrap_or(&NO_LABELS),
        ready: facts.ready,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::facts::NodeFacts;
    use crate::index::{Index, Kind, Limits, Seen};

    #[test]
    fn a_job_that_begins_leaves_no_node_image_unfolded() {
        let now = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: true,
            serve_jobs: true,
        });
        let facts = NodeFacts {
            name: "node".to_owned(),
            ready: true,
            ..NodeFacts::default()
        };
        let image = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
            "metadata": {
                "name": "node", "uid": "node", "generation": 1, "labels": {"node-role.kubernetes.io/edge": ""},
            },
            "spec": {}, "status": {"desired": 0},
        });
        let job = json!({
            "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
            "metadata": {"name": "job", "uid": "job"},
            "spec": {"imagePrePullTemplate": {"images": ["nginx:1"], "nodeNames": ["node"]}},
        });
        let seen = [
            (Kind::Node, vec![Seen::Node(facts)]),
            (
                Kind::NodeImage,
                vec![Seen::NodeImage(Box::new(serde_json::from_value(image).unwrap()))],
            ),
            (Kind::Job, vec![]),
            (
                Kind::PrePull,
                vec![Seen::PrePull(Box::new(serde_json::from_value(job).unwrap()))],
            ),
            (Kind::List, vec![]),
        ];
        for (kind, seen) in seen {
            let all = [Seen::Begin].into_iter().chain(seen).chain([Seen::Complete]);
            all.for_each(|seen| index.observe(&kind, seen, now));
        }
        assert!(!index.nodes["node"].image.is_folded());
        index.decide(now);
        assert_eq!(index.sizes().running_jobs, 1);
        assert!(index.nodes["node"].image.is_folded());
    }
}
