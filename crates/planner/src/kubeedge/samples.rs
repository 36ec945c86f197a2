//! A small fleet without a cluster: it does what the controller does around the pure functions, so that tests can tell
//! whole stories.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::names::EDGE_NODE_LABEL;
use larder_api::node_image::{ImageTagStatus, LastSucceeded};
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus, NodeImage};
use larder_model::{Phase, Reason};
use serde_json::{Value, json};

use super::nodes::choose;
use super::{Before, Choice, PrePull, PrePullJobs, PrePullRun, Reports};
use crate::dialect::{Candidate, Dialect as _};
use crate::finish::End;
use crate::progress::{OrderResult, Progress, Step};
use crate::report::NodeReport;
use crate::secret::UnusableSecrets;
use crate::task::{NodeTask, Tasks};
use crate::view::samples::at;
use crate::view::{Block, Heard, NodeKey, NodeView};

/// A job with this template beside `images: [nginx:1]`, and these overriders.
pub(crate) fn job(template: &Value, overriders: &Value) -> ImagePrePullJob {
    let mut whole = json!({"images": ["nginx:1"]});
    whole
        .as_object_mut()
        .unwrap()
        .extend(template.as_object().unwrap().clone());
    let object = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2",
        "kind": "ImagePrePullJob",
        "metadata": {"name": "job", "uid": "job-uid", "generation": 1},
        "spec": {"imagePrePullTemplate": whole, "imagePrePullOverriders": overriders},
    });
    serde_json::from_value(object).unwrap()
}

/// A node of the fleet.
pub(crate) struct Node {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) ready: bool,
    pub(crate) object: NodeImage,
}

/// A job on its fleet.
pub(crate) struct Fleet {
    pub(crate) job: ImagePrePullJob,
    pub(crate) nodes: BTreeMap<NodeKey, Node>,
    pub(crate) run: PrePullRun,
    pub(crate) progress: Progress,
    pub(crate) unusable: UnusableSecrets,
}

/// Edge nodes that are ready, with this label each.
pub(crate) fn edge_nodes(nodes: &[(&str, &str)]) -> BTreeMap<NodeKey, Node> {
    let node = |(name, region): &(&str, &str)| {
        let labels = [(EDGE_NODE_LABEL, ""), ("region", region)];
        let node = Node {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ready: true,
            object: NodeImage::default(),
        };
        (NodeKey::from(*name), node)
    };
    nodes.iter().map(node).collect()
}

/// The same as a choice sees them.
pub(crate) fn candidates(nodes: &BTreeMap<NodeKey, Node>) -> BTreeMap<NodeKey, Candidate<'_>> {
    let mut candidates = BTreeMap::new();
    for (name, node) in nodes {
        let candidate = Candidate {
            labels: &node.labels,
            ready: node.ready,
            no_agent: None,
        };
        candidates.insert(name.clone(), candidate);
    }
    candidates
}

impl Fleet {
    /// Starts a job, or takes it up again after `before`.
    pub(crate) fn start(job: &ImagePrePullJob, nodes: BTreeMap<NodeKey, Node>, before: &Before) -> Self {
        let plan = PrePull::of(job).unwrap();
        let fleet = candidates(&nodes);
        let mut choice = choose(&plan.nodes, &fleet, plan.waits_for_nodes(), before).unwrap();
        let tasks = plan.tasks(&mut choice, &fleet, &Tasks::default());
        let progress = Progress::new(plan.campaign(&choice, tasks), at(0));
        let mut fleet = Self {
            job: job.clone(),
            nodes,
            run: PrePullRun {
                plan,
                choice,
                reports: Reports::default(),
            },
            progress,
            unusable: UnusableSecrets::default(),
        };
        let all: Vec<NodeKey> = fleet.choice().fit().cloned().collect();
        for node in &all {
            fleet.show(node, at(0));
        }
        fleet
    }

    pub(crate) fn choice(&self) -> &Choice {
        &self.run.choice
    }

    pub(crate) fn task(&self, node: &str) -> &NodeTask {
        self.progress.campaign().tasks.of(node).unwrap()
    }

    pub(crate) fn report(&self, node: &str) -> Option<NodeReport> {
        let object = &self.nodes.get(node)?.object;
        let report = self.task(node).report(object, &self.run.plan.uid())?;
        let rephrase = |image: &_, handed_out, reason| PrePullJobs::rephrase(&self.progress, image, handed_out, reason);
        Some(report.rephrased(self.task(node), rephrase))
    }

    /// Shows a node to the progress, as the engine does.
    pub(crate) fn show(&mut self, node: &NodeKey, now: Timestamp) {
        let report = self.report(node);
        let claim = report.as_ref().map(NodeReport::claim_view);
        let record = self.nodes.get(node);
        if record.is_some() || !self.progress.has_succeeded(node) {
            PrePullJobs::reported(&mut self.run, node, report);
        }
        let lacks = |node: &str| {
            let task = self.progress.campaign().tasks.of(node);
            task.is_some_and(|task| task.secrets().iter().any(|secret| self.unusable.contains(secret)))
        };
        let block = match record {
            None => Some(Reason::NodeUnsuitable),
            Some(record) if !record.ready => Some(Reason::NodeNotReady),
            Some(_) => lacks(node).then_some(Reason::SecretMissing),
        };
        // A Secret is waited for without end, a node for its time.
        let since = if block == Some(Reason::SecretMissing) {
            now
        } else {
            at(0)
        };
        let view = NodeView {
            selected: true,
            block: block.map(|reason| Block {
                reason,
                since: Some(since),
            }),
            no_room: None,
            foreign_agent: false,
            claim,
            heard: Heard::default(),
            unreadable: record.is_none(),
        };
        self.progress.node_changed(node, view, now);
    }

    /// Decides at `seconds` and writes what is decided. Gives back who was handed the order.
    pub(crate) fn step(&mut self, seconds: i64) -> Vec<String> {
        let now = at(seconds);
        let all: Vec<NodeKey> = self.choice().fit().cloned().collect();
        for node in &all {
            self.show(node, now);
        }
        let mut handed_out = Vec::new();
        for step in self.progress.decide(usize::MAX, now) {
            let (Step::HandOut(node) | Step::Withdraw(node)) = &step;
            let task = self.task(node).clone();
            let owner = self.run.plan.owner.clone();
            let record = self.nodes.get_mut(node).unwrap();
            let mut spec = record.object.spec.clone();
            match step {
                Step::HandOut(_) => {
                    task.claim(&mut spec, &record.object, &owner, now);
                    handed_out.push(node.to_string());
                }
                Step::Withdraw(_) => task.release(&mut spec, owner.uid.as_deref().unwrap()),
            }
            record.object.spec = spec;
            self.show(node, now);
            self.progress.settle(node, OrderResult::Done, now);
        }
        handed_out
    }

    /// A node says something about an image that is pulled under this reference.
    pub(crate) fn say(&mut self, node: &str, image: &str, phase: Phase, reason: Option<Reason>, seconds: i64) {
        let reference = larder_model::ImageRef::parse(image).unwrap();
        let (name, tag) = (reference.name().to_owned(), reference.tag_text());
        let record = self.nodes.get_mut(node).unwrap();
        let version = record.object.entry(&name, &tag).unwrap().version;
        let time = |when: bool| when.then(|| Time(at(seconds)));
        let status = ImageTagStatus {
            tag: tag.clone(),
            version: Some(version),
            phase: phase.as_str().to_owned(),
            reason: reason.map(|reason| reason.to_string()),
            message: reason.map(|reason| {
                format!(
                    "Failed to pull image reference \"{image}\": the node's words. {}",
                    reason.advice()
                )
            }),
            start_time: time(phase != Phase::Waiting),
            completion_time: time(phase.is_final()),
            last_succeeded: (phase == Phase::Succeeded).then(|| LastSucceeded {
                version,
                completion_time: time(true),
                ..LastSucceeded::default()
            }),
            ..ImageTagStatus::default()
        };
        let all = record.object.status.get_or_insert_default();
        let tags = &mut all.image_statuses.entry(name).or_default().tags;
        tags.retain(|known| known.tag != tag);
        tags.push(status);
        self.show(&node.into(), at(seconds));
    }

    /// A node has every image of its task.
    pub(crate) fn succeed(&mut self, node: &str, seconds: i64) {
        let images: Vec<String> = self
            .task(node)
            .references()
            .iter()
            .map(|image| image.familiar())
            .collect();
        for image in images {
            self.say(node, &image, Phase::Succeeded, None, seconds);
        }
    }

    /// A node cannot get any image of its task.
    pub(crate) fn fail(&mut self, node: &str, reason: Reason, seconds: i64) {
        let images: Vec<String> = self
            .task(node)
            .references()
            .iter()
            .map(|image| image.familiar())
            .collect();
        for image in images {
            self.say(node, &image, Phase::Failed, Some(reason), seconds);
        }
    }

    pub(crate) fn end(&self, seconds: i64) -> Option<End> {
        self.progress.end(at(seconds))
    }

    /// The job's status, which the object has from then on.
    pub(crate) fn status(&mut self, seconds: i64) -> ImagePrePullJobStatus {
        let end = self.end(seconds);
        let status = PrePullJobs::status(
            &self.run,
            &self.job,
            &mut self.progress,
            &self.unusable,
            end,
            at(seconds),
        );
        self.job.status = Some(status.clone());
        status
    }
}
