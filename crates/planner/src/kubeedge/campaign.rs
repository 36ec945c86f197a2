//! What a job asks for, checked once, and the [`Campaign`] that it becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::names::KUBEEDGE_GROUP;
use larder_api::{ImagePrePullJob, NodeImage};
use larder_model::{Check, PullWhen};
use thiserror::Error;

use super::images::{ImagesError, JobImage, job_images};
use super::nodes::{Choice, NodeRule, NodeRuleError, Unfit};
use super::overriders::{OverriderError, Overriders, ResolveError};
use super::tolerance::{Tolerance, ToleranceError};
use crate::campaign::{Campaign, Ending, MaxFailures, PullRules, RESPONSE_TIME, SecretScope};
use crate::dialect::Candidate;
use crate::secret::SecretRef;
use crate::select::{SelectBy, Selection};
use crate::task::{NodeTask, Tasks};
use crate::view::NodeKey;
use crate::windows::{WindowError, Windows};

/// Seconds that each node has, when the job says 0.
const DEFAULT_TIMEOUT_SECONDS: i32 = 300;

/// What an ImagePrePullJob asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct PrePull {
    /// What stands as owner in the nodes' entries.
    pub owner: ObjectReference,
    /// The images, in the job's order.
    pub images: Vec<JobImage>,
    /// Per-region rewrites.
    pub overriders: Overriders,
    /// Which nodes.
    pub nodes: NodeRule,
    /// What a node checks before it pulls.
    pub checks: Vec<Check>,
    /// Which share of the nodes may fail.
    pub tolerance: Tolerance,
    /// How many nodes at once; at least one.
    pub concurrency: usize,
    /// Where pulls are limited, jobs with a higher priority go first.
    pub priority: i32,
    /// Seconds that each node has, from its own dispatch; at least one.
    pub timeout_seconds: i32,
    /// Tries after the first.
    pub retries: i32,
    /// When the job ends, whatever is still running. Until then nodes that are not ready are waited for.
    pub deadline: Option<SignedDuration>,
    /// The job is deleted this long after its end.
    pub ttl: Option<SignedDuration>,
    /// Whether the images are kept from the kubelet's garbage collection while the job exists.
    pub pin: bool,
    /// When nodes may be handed the job.
    pub windows: Windows,
}

/// Why a job cannot be carried out, whatever the nodes: a sentence for its status.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub enum SpecError {
    /// Its images.
    Images(#[from] ImagesError),
    /// Its nodes.
    Nodes(#[from] NodeRuleError),
    /// Its overriders.
    Overriders(#[from] OverriderError),
    /// Its tolerance.
    Tolerance(#[from] ToleranceError),
    /// Its windows.
    Windows(#[from] WindowError),
}

impl PrePull {
    /// Reads a job. Numbers that the API server would refuse today become what they mean at least.
    pub fn of(job: &ImagePrePullJob) -> Result<Self, SpecError> {
        let template = &job.spec.image_pre_pull_template;
        let seconds = |seconds: i64| SignedDuration::from_secs(seconds.max(1));
        Ok(Self {
            owner: reference(job),
            images: job_images(&template.images, template.image_secrets.as_deref())?,
            overriders: Overriders::parse(&job.spec.image_pre_pull_overriders)?,
            nodes: NodeRule::parse(template)?,
            checks: template
                .check_items
                .iter()
                .map(|item| Check::from(item.as_str()))
                .collect(),
            tolerance: Tolerance::parse(&template.failure_tolerate)?,
            concurrency: usize::try_from(template.concurrency).unwrap_or(0).max(1),
            priority: template.priority,
            timeout_seconds: match template.timeout_seconds {
                ..=0 => DEFAULT_TIMEOUT_SECONDS,
                seconds => seconds,
            },
            retries: template.retry_times.max(0),
            deadline: template.active_deadline_seconds.map(seconds),
            ttl: template
                .ttl_seconds_after_finished
                .map(|ttl| SignedDuration::from_secs(ttl.max(0).into())),
            pin: template.pin.unwrap_or(false),
            windows: Windows::parse(&template.windows, template.window_end)?,
        })
    }

    /// The job's uid.
    pub fn uid(&self) -> String {
        self.owner.uid.clone().unwrap_or_default()
    }

    /// Time that each node has, from its own dispatch.
    pub fn timeout(&self) -> SignedDuration {
        SignedDuration::from_secs(self.timeout_seconds.into())
    }

    /// Whether nodes that are not ready are waited for.
    pub fn waits_for_nodes(&self) -> bool {
        self.deadline.is_some()
    }

    /// What each node that can be tried is asked for. A node for which the overriders make no valid image fails by itself.
    /// A node that is gone has no labels to go by, and no task. One that was asked already keeps what is in `kept`, whatever
    /// its labels are now.
    pub fn tasks(&self, choice: &mut Choice, fleet: &BTreeMap<NodeKey, Candidate<'_>>, kept: &Tasks) -> Tasks {
        let mut groups: BTreeMap<Vec<usize>, Result<Arc<NodeTask>, ResolveError>> = BTreeMap::new();
        let mut tasks = Tasks::default();
        for chosen in choice.nodes.iter_mut().filter(|chosen| chosen.unfit.is_none()) {
            let Some(node) = fleet.get(&chosen.name) else {
                continue;
            };
            if let Some(task) = kept.of(&chosen.name) {
                tasks.insert(chosen.name.clone(), task.clone());
                continue;
            }
            let matching = self.overriders.matching(node.labels);
            let task = groups
                .entry(matching)
                .or_insert_with_key(|matching| self.task(matching).map(Arc::new));
            match task {
                Ok(task) => {
                    tasks.insert(chosen.name.clone(), task.clone());
                }
                Err(error) => chosen.unfit = Some(Unfit::Rewrite(error.to_string())),
            }
        }
        tasks
    }

    /// What a node is asked for where these overriders match.
    fn task(&self, matching: &[usize]) -> Result<NodeTask, ResolveError> {
        let images = self.overriders.resolve(&self.images, matching)?;
        Ok(NodeTask::new(images, matching.to_vec()))
    }

    /// What nodes were asked for where that is not what their labels ask for: they changed after the order was written. It
    /// is found where no overrider matched then, or one, or those that match another node.
    pub fn handed_out<'a>(
        &self,
        fleet: &BTreeMap<NodeKey, Candidate<'_>>,
        claimed: impl IntoIterator<Item = (&'a NodeKey, &'a NodeImage)>,
    ) -> Tasks {
        let uid = self.owner.uid.as_deref().unwrap_or_default();
        let of_fleet = fleet.values().map(|node| self.overriders.matching(node.labels));
        let alone = (0..self.overriders.len()).map(|index| vec![index]);
        let groups: BTreeSet<Vec<usize>> = of_fleet.chain(alone).chain([Vec::new()]).collect();
        let tasks: BTreeMap<Vec<usize>, Arc<NodeTask>> = groups
            .into_iter()
            .filter_map(|matching| {
                let task = self.task(&matching).ok()?;
                Some((matching, Arc::new(task)))
            })
            .collect();
        let mut kept = Tasks::default();
        for (name, object) in claimed {
            let is_it = |task: &&Arc<NodeTask>| task.report(object, uid).is_some();
            // Where only a Secret differs, several fit; what the labels ask for comes first.
            let asked_for = fleet
                .get(name)
                .and_then(|node| tasks.get(&self.overriders.matching(node.labels)));
            if asked_for.is_some_and(|task| is_it(&task)) {
                continue;
            }
            if let Some(task) = tasks.values().find(is_it) {
                kept.insert(name.clone(), task.clone());
            }
        }
        kept
    }

    /// The job as the engine runs it: so many of the nodes that can be tried at once, until it is over or cannot be saved.
    pub fn campaign(&self, choice: &Choice, tasks: Tasks) -> Campaign {
        let secrets: BTreeSet<&SecretRef> = tasks.iter().flat_map(NodeTask::secrets).collect();
        let secrets = secrets.into_iter().cloned().collect();
        Campaign {
            owner: self.owner.clone(),
            tasks,
            selection: Selection {
                by: SelectBy::Fixed(choice.fit().map(ToString::to_string).collect()),
                tolerations: None,
            },
            parallelism: self.concurrency,
            priority: self.priority,
            ending: Ending::Always {
                deadline: self.deadline,
                ttl: self.ttl,
            },
            rules: PullRules {
                timeout_seconds: self.timeout_seconds,
                backoff_limit: self.retries,
                when: PullWhen::IfNotPresent,
                sandbox: None,
                pin: self.pin,
                checks: self.checks.clone(),
            },
            max_failures: u32::try_from(self.tolerance.allowed(choice.total()))
                .ok()
                .map(MaxFailures::Count),
            failed_before: choice.unfit(),
            secrets,
            secret_scope: SecretScope::Node,
            response_time: self.deadline.unwrap_or(RESPONSE_TIME),
            node_timeout: Some(self.timeout()),
            windows: self.windows.clone(),
            refresh: None,
            gates_nodes: false,
        }
    }
}

/// How entries name their owner. The job has no namespace.
pub fn reference(job: &ImagePrePullJob) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{KUBEEDGE_GROUP}/v1alpha2")),
        kind: Some("ImagePrePullJob".to_owned()),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
