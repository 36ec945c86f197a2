//! What jobs want of each node: which images, with which Secrets, after which checks; and who cannot be asked, and why.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use larder_api::{ImagePrePullJob, ImagePullJob};
use larder_controller::explain;
use larder_model::{ImageRef, Reason};
use larder_planner::prepull::{PrePull, SecretRef};

use crate::failure::Failure;
use crate::fleet::Fleet;

/// A job as the API server would store it.
pub(super) enum Job {
    Pull(Box<ImagePullJob>),
    PrePull(Box<ImagePrePullJob>),
}

/// One image on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) image: ImageRef,
    pub(super) secrets: BTreeSet<SecretRef>,
    pub(super) checks: Vec<String>,
}

/// What the jobs want of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) images: Vec<Wanted>,
    /// Why the node cannot be asked.
    pub(super) blocked: Option<Blocked>,
}

/// Why a node cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) reason: Reason,
    pub(super) words: String,
}

impl Blocked {
    fn by(reason: Reason) -> Self {
        Self {
            reason,
            words: reason.advice().to_owned(),
        }
    }
}

/// What the jobs want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Each once, in the order of the jobs.
    pub(super) images: Vec<ImageRef>,
    pub(super) nodes: BTreeMap<String, Wish>,
}

impl Wishes {
    /// What all these jobs want of this fleet.
    pub(super) async fn of(fleet: &Fleet, jobs: &[Job], now: Timestamp) -> Result<Self, Failure> {
        let mut wishes = Self::default();
        for job in jobs {
            match job {
                Job::Pull(job) => wishes.add_pull(fleet, job, now).await?,
                Job::PrePull(job) => wishes.add_pre_pull(fleet, job)?,
            }
        }
        Ok(wishes)
    }

    /// All Secrets that the jobs name.
    pub(super) fn secrets(&self) -> BTreeSet<SecretRef> {
        let images = self.nodes.values().flat_map(|wish| &wish.images);
        images.flat_map(|wanted| wanted.secrets.iter().cloned()).collect()
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
        self.name(&image);
        for (node, said) in found.into_iter().filter(|(_, said)| said.state != "NotSelected") {
            let wish = self.nodes.entry(node).or_default();
            wish.want(Wanted {
                image: image.clone(),
                secrets: secrets.clone(),
                checks: Vec::new(),
            });
            if said.state == "Blocked" {
                wish.blocked = said.reason.map(Blocked::by);
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
            let wish = self.nodes.entry(chosen.name.to_string()).or_default();
            if let Some(unfit) = &chosen.unfit {
                wish.blocked = Some(Blocked {
                    reason: unfit.reason(),
                    words: format!("{}: {}.", chosen.name, unfit.text(&chosen.name).trim_end_matches('.')),
                });
                continue;
            }
            let answers =
                |agent: &larder_api::NodeImage| agent.status.as_ref().is_some_and(|status| status.agent.is_some());
            if !fleet.is_ready(&chosen.name) {
                wish.blocked = Some(Blocked::by(Reason::NodeNotReady));
            } else if !fleet.node_image(&chosen.name).is_some_and(answers) {
                wish.blocked = Some(Blocked::by(Reason::Unresponsive));
            }
            let Some(task) = tasks.get(&chosen.name) else { continue };
            for image in task.references() {
                wish.want(Wanted {
                    image: image.clone(),
                    secrets: task.secrets_for(image).into_iter().cloned().collect(),
                    checks: plan.checks.clone(),
                });
            }
        }
        let all: Vec<ImageRef> = tasks
            .values()
            .flat_map(|task| task.images())
            .map(|image| image.image.clone())
            .collect();
        for image in &all {
            self.name(image);
        }
        Ok(())
    }

    fn name(&mut self, image: &ImageRef) {
        if !self.images.contains(image) {
            self.images.push(image.clone());
        }
    }
}

impl Wish {
    /// An image that two jobs want is one wish, with the Secrets and checks of both.
    fn want(&mut self, wanted: Wanted) {
        match self.images.iter_mut().find(|known| known.image == wanted.image) {
            None => self.images.push(wanted),
            Some(known) => {
                known.secrets.extend(wanted.secrets);
                let more = wanted.checks.into_iter().filter(|check| !known.checks.contains(check));
                let more: Vec<String> = more.collect();
                known.checks.extend(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(image: &str, secret: &str, check: &str) -> Wanted {
        Wanted {
            image: ImageRef::parse(image).unwrap(),
            secrets: [SecretRef::parse(secret).unwrap()].into(),
            checks: vec![check.into()],
        }
    }

    #[test]
    fn one_image_of_two_jobs_is_asked_for_once() {
        let mut wish = Wish::default();
        wish.want(wanted("nginx:1", "a/one", "disk"));
        wish.want(wanted("docker.io/library/nginx:1", "a/two", "disk"));
        wish.want(wanted("nginx:2", "a/one", "cpu"));
        assert_eq!(wish.images.len(), 2);
        assert_eq!(wish.images[0].secrets.len(), 2);
        assert_eq!(wish.images[0].checks, ["disk"]);
    }
}
