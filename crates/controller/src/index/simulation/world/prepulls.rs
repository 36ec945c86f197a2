//! ImagePrePullJobs in the simulation.

use larder_api::contract::{Answer, answer};
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus};

use super::World;
use crate::index::{JobKey, Kind, ObjectAction, ObjectAnswer, Seen};
use crate::kinds::image_pre_pull_job::is_over;

impl World {
    pub(in crate::index::simulation) fn submit_prepull(&mut self, mut job: ImagePrePullJob) {
        job.metadata.resource_version = Some(self.next_revision());
        self.prepulls.insert(JobKey::of(&job.metadata), job.clone());
        self.show(Kind::PrePull, Seen::PrePull(Box::new(job)), "prepull");
    }

    /// Somebody names other nodes.
    pub(in crate::index::simulation) fn rename_nodes(&mut self, names: &[String]) {
        let revision = self.next_revision();
        let job = self.prepulls.values_mut().next().unwrap();
        job.metadata.resource_version = Some(revision);
        job.metadata.generation = job.metadata.generation.map(|generation| generation + 1);
        job.spec.image_pre_pull_template.node_names = names.to_vec();
        let job = Box::new(job.clone());
        self.show(Kind::PrePull, Seen::PrePull(job), "prepull");
    }

    pub(super) fn prepulls_are_over(&self) -> bool {
        self.prepulls.values().all(is_over)
    }

    /// How many nodes the API shows at work for one job.
    pub(super) fn look_at_prepulls(&mut self) {
        for job in self.prepulls.values() {
            let uid = job.metadata.uid.as_deref().unwrap();
            let at_work = self.nodes.values().filter(|object| {
                let mut entries = object
                    .spec
                    .images
                    .iter()
                    .flat_map(|(name, image)| image.tags.iter().map(move |entry| (name, entry)));
                entries.any(|(name, entry)| {
                    let claim = entry.claim_version(uid);
                    let said = claim.map(|version| answer(version, object.result(name, &entry.tag)));
                    said.is_some_and(|said| !matches!(said, Answer::Succeeded | Answer::Failed(_)))
                })
            });
            self.most_at_once = self.most_at_once.max(at_work.count());
        }
    }

    pub(super) fn prepull_request(&mut self, key: &JobKey, action: ObjectAction) -> ObjectAnswer {
        let ObjectAction::Status(patch) = action else {
            panic!("nobody asked for that");
        };
        if self.happens(self.faults.lost_requests) {
            return ObjectAnswer::Failed("lost".into());
        }
        let mut object = serde_json::to_value(&self.prepulls[key]).unwrap();
        json_patch::merge(&mut object, &patch);
        let mut job: ImagePrePullJob = serde_json::from_value(object).unwrap();
        job.metadata.resource_version = Some(self.next_revision());
        self.prepulls.insert(key.clone(), job.clone());
        self.show(Kind::PrePull, Seen::PrePull(Box::new(job.clone())), "prepull");
        if self.happens(self.faults.lost_answers) {
            return ObjectAnswer::Failed("nobody knows".into());
        }
        ObjectAnswer::PrePull(Box::new(job))
    }

    pub(in crate::index::simulation) fn prepull_status(&self) -> ImagePrePullJobStatus {
        self.prepulls
            .values()
            .next()
            .and_then(|job| job.status.clone())
            .unwrap()
    }
}
