//! What the jobs of a plan target: on each node which images, with which Secrets and checks; and which nodes cannot be
//! asked, and why.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use larder_api::{ImagePrePullJob, ImagePullJob};
use larder_controller::explain::{self, ExplainedState};
use larder_model::{Check, ImageRef, Reason};
use larder_planner::SecretRef;
use larder_planner::kubeedge::PrePull;
use larder_planner::task::NodeTask;

use crate::failure::Failure;
use crate::fleet::Fleet;

/// A job as the API server would store it.
pub(super) enum Job {
    Pull(Box<ImagePullJob>),
    PrePull(Box<ImagePrePullJob>),
}

/// One image on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetImage {
    pub(super) image: ImageRef,
    pub(super) secrets: BTreeSet<SecretRef>,
    pub(super) checks: Vec<Check>,
}

/// What the jobs target on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeTarget {
    pub(super) images: Vec<TargetImage>,
    /// Why the node cannot be asked.
    pub(super) blocked: Option<Blocked>,
}

/// Why a node cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Blocked {
    fn by(reason: Reason) -> Self {
        Self {
            reason,
            message: reason.advice().to_owned(),
        }
    }
}

/// Everything that the jobs target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanTargets {
    /// Each once, in the order of the jobs.
    pub(super) images: Vec<ImageRef>,
    pub(super) nodes: BTreeMap<String, NodeTarget>,
}

impl PlanTargets {
    /// The targets of these jobs among these nodes.
    pub(super) async fn of(fleet: &Fleet, jobs: &[Job], now: Timestamp) -> Result<Self, Failure> {
        let mut targets = Self::default();
        for job in jobs {
            match job {
                Job::Pull(job) => targets.add_pull(fleet, job, now).await?,
                Job::PrePull(job) => targets.add_pre_pull(fleet, job)?,
            }
        }
        Ok(targets)
    }

    /// All Secrets that the jobs name.
    pub(super) fn secrets(&self) -> BTreeSet<SecretRef> {
        let images = self.nodes.values().flat_map(|target| &target.images);
        images.flat_map(|image| image.secrets.iter().cloned()).collect()
    }

    async fn add_pull(&mut self, fleet: &Fleet, job: &ImagePullJob, now: Timestamp) -> Result<(), Failure> {
        let image = ImageRef::parse(&job.spec.image).map_err(|error| Failure::wrong(error.to_string()))?;
        let namespace = fleet.namespace_of(job);
        let secrets = job.spec.template.pull_secrets.iter();
        let secrets: BTreeSet<SecretRef> = secrets
            .filter_map(|name| SecretRef::of(&namespace, name).ok())
            .collect();
        let objects = fleet.objects_for(job).await?;
        let found = explain::nodes(job, objects, now).map_err(|refused| Failure::wrong(refused.to_string()))?;
        self.list_image(&image);
        let wanted = found
            .into_iter()
            .filter(|(_, said)| !matches!(said.state, ExplainedState::NotSelected | ExplainedState::NoAgent));
        for (node, said) in wanted {
            let target = self.nodes.entry(node).or_default();
            target.add(TargetImage {
                image: image.clone(),
                secrets: secrets.clone(),
                checks: Vec::new(),
            });
            if said.state == ExplainedState::Blocked {
                target.blocked = said.reason.map(Blocked::by);
            }
        }
        Ok(())
    }

    fn add_pre_pull(&mut self, fleet: &Fleet, job: &ImagePrePullJob) -> Result<(), Failure> {
        let refused =
            |why: String| Failure::wrong(format!("ImagePrePullJob {} would be refused: {why}", job.name_any()));
        let plan = PrePull::of(job).map_err(|refusal| refused(refusal.to_string()))?;
        let (choice, tasks) = fleet.choose(&plan).map_err(|none| refused(none.to_string()))?;
        for chosen in &choice.nodes {
            let target = self.nodes.entry(chosen.name.to_string()).or_default();
            if let Some(unfit) = &chosen.unfit {
                target.blocked = Some(Blocked {
                    reason: unfit.reason(),
                    message: format!("{}: {}.", chosen.name, unfit.text(&chosen.name).trim_end_matches('.')),
                });
                continue;
            }
            let answers =
                |agent: &larder_api::NodeImage| agent.status.as_ref().is_some_and(|status| status.agent.is_some());
            if !fleet.is_ready(&chosen.name) {
                target.blocked = Some(Blocked::by(Reason::NodeNotReady));
            } else if !fleet.node_image(&chosen.name).is_some_and(answers) {
                target.blocked = Some(Blocked::by(Reason::Unresponsive));
            }
            let Some(task) = tasks.of(&chosen.name) else { continue };
            for image in task.references() {
                target.add(TargetImage {
                    image: image.clone(),
                    secrets: task.secrets_for(image).into_iter().collect(),
                    checks: plan.checks.clone(),
                });
            }
        }
        let all: Vec<ImageRef> = tasks
            .iter()
            .flat_map(NodeTask::images)
            .map(|image| image.image.clone())
            .collect();
        for image in &all {
            self.list_image(image);
        }
        Ok(())
    }

    fn list_image(&mut self, image: &ImageRef) {
        if !self.images.contains(image) {
            self.images.push(image.clone());
        }
    }
}

impl NodeTarget {
    /// An image of two jobs is added once, with the Secrets and checks of both.
    fn add(&mut self, image: TargetImage) {
        match self.images.iter_mut().find(|known| known.image == image.image) {
            None => self.images.push(image),
            Some(known) => {
                known.secrets.extend(image.secrets);
                let more = image.checks.into_iter().filter(|check| !known.checks.contains(check));
                let more: Vec<Check> = more.collect();
                known.checks.extend(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(image: &str, secret: &str, check: &str) -> TargetImage {
        TargetImage {
            image: ImageRef::parse(image).unwrap(),
            secrets: [SecretRef::parse(secret).unwrap()].into(),
            checks: vec![check.into()],
        }
    }

    #[test]
    fn one_image_of_two_jobs_is_asked_for_once() {
        let mut target = NodeTarget::default();
        target.add(image("nginx:1", "a/one", "disk"));
        target.add(image("docker.io/library/nginx:1", "a/two", "disk"));
        target.add(image("nginx:2", "a/one", "cpu"));
        assert_eq!(target.images.len(), 2);
        assert_eq!(target.images[0].secrets.len(), 2);
        assert_eq!(target.images[0].checks, [Check::Disk]);
    }
}
