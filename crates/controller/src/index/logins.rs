//! Whether the Secrets that a job names are of any use for its images. It goes on without: an image may be had by everybody, and
//! whoever is refused afterwards finds the cause in the job.

use std::collections::BTreeSet;

use larder_model::ImageRef;
use larder_planner::progress::NoLogin;

use super::credentials::fitting;
use super::secrets::SecretKey;
use super::{Index, JobId};

impl Index {
    /// Notes for which registries a job's Secrets hold no login. Asked when the job or one of its Secrets changed.
    pub(super) fn look_for_logins(&mut self, job: JobId) {
        let no_logins = self.no_logins(job);
        if let Some(running) = self.running_mut(job) {
            running.progress.lacks_logins(no_logins.into_iter().collect());
        }
    }

    fn no_logins(&self, job: JobId) -> BTreeSet<NoLogin> {
        let uses = self.uses_of_secrets(job).into_iter();
        let useless = uses.filter(|(image, secrets)| self.is_useless(image, secrets));
        let said = useless.map(|(image, secrets)| NoLogin {
            registry: image.registry().to_owned(),
            secrets: secrets
                .iter()
                .map(|secret| format!("{}/{}", secret.namespace, secret.name))
                .collect(),
        });
        said.collect()
    }

    /// What a job uses which Secrets for.
    fn uses_of_secrets(&self, job: JobId) -> BTreeSet<(ImageRef, Vec<SecretKey>)> {
        let Some(running) = self.running(job) else {
            return BTreeSet::new();
        };
        let mut uses = BTreeSet::new();
        match &running.work {
            None => {
                uses.insert((running.progress.campaign().image.clone(), self.secrets_of(job)));
            }
            Some(work) => {
                for (node, task) in &work.tasks {
                    let images = task.references().into_iter();
                    uses.extend(images.map(|image| (image.clone(), self.secrets_for(job, node, image))));
                }
            }
        }
        uses.retain(|(_, secrets)| !secrets.is_empty());
        uses
    }

    /// Whether these Secrets are known, and hold no login that fits an image.
    fn is_useless(&self, image: &ImageRef, secrets: &[SecretKey]) -> bool {
        let known = self.secrets.credentials(secrets);
        known.is_some_and(|(_, entries)| fitting(entries, image).is_empty())
    }
}
