//! New results in a NodeImage: which Events they are worth, and which of them ask for a job's Secrets to be read again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use larder_api::NodeImage;
use larder_api::node_image::{ImageTagSpec, ImageTagStatus};
use larder_model::{ImageRef, Phase, Reason};
use larder_planner::NodeKey;
use larder_planner::claim::claim_view;

use super::compressed_node_image::CompressedNodeImage;
use super::events::{FAILED, NewEvent, SUCCEEDED};
use super::{Engine, JobId};

/// A result that was not there before.
struct NewResult {
    name: String,
    status: ImageTagStatus,
    /// Uids of the jobs that own the entry.
    owners: Vec<String>,
}

impl NewResult {
    fn is_denied(&self) -> bool {
        self.status.phase() == Phase::Failed && self.status.reason() == Some(Reason::AuthDenied)
    }

    fn image(&self) -> String {
        let tag = &self.status.tag;
        ImageRef::from_parts(&self.name, tag).map_or_else(|_| format!("{}:{tag}", self.name), |image| image.familiar())
    }
}

impl Engine {
    /// Takes in what is new in a node's results.
    pub(super) fn record_results(&mut self, node: &NodeKey, before: &CompressedNodeImage, now: Timestamp) {
        let record = self.nodes.get(node).filter(|record| record.image.has_news(before));
        let Some(after) = record.and_then(|record| record.image.as_ref()) else {
            return;
        };
        let Some(before) = before.as_ref() else {
            return;
        };
        let (results, subject) = (new_results(before, after), node_reference(after));
        if let Some(other) = conflicts_with(after).filter(|_| conflicts_with(before).is_none()) {
            self.events.record_duplicate_agent(&subject, other);
        }
        for result in results {
            if result.is_denied() {
                self.denied(node, &result, now);
            }
            self.record_result(node, &subject, &result);
        }
    }

    /// A pull was denied with the credentials it had: the Secrets are read again before that is final.
    fn denied(&mut self, node: &NodeKey, result: &NewResult, now: Timestamp) {
        if result.owners.is_empty()
            && let Some(record) = self.nodes.get_mut(node)
        {
            record.denied.get_or_insert(now);
        }
        for job in self.owners_of(result) {
            if let Some(running) = self.jobs.running_mut(job)
                && !running.progress.campaign().secrets.is_empty()
            {
                running.denied.get_or_insert(now);
            }
        }
    }

    fn owners_of(&self, result: &NewResult) -> Vec<JobId> {
        let owners = result.owners.iter();
        owners.filter_map(|uid| self.jobs.id_of_uid(uid)).collect()
    }

    fn record_result(&mut self, node: &NodeKey, subject: &ObjectReference, result: &NewResult) {
        let status = &result.status;
        if status.phase() != Phase::Failed {
            if result.owners.is_empty() {
                self.events.push(NewEvent {
                    subject: subject.clone(),
                    warning: false,
                    reason: SUCCEEDED,
                    text: format!("Image {} is there", result.image()),
                });
            }
            return;
        }
        let message = status.message.clone();
        let text = message.unwrap_or_else(|| format!("Failed to pull image {}", result.image()));
        let reason = status.reason().map_or(FAILED, Reason::as_str);
        let jobs = self.owners_of(result);
        let mut recorded = jobs.is_empty();
        for job in jobs {
            let rephrased = self.rephrased(job, node, result);
            let Some(record) = self.jobs.get(job) else {
                continue;
            };
            if self.events.may_record(&record.uid, reason) {
                recorded = true;
                self.events.push(NewEvent {
                    subject: record.job.reference(),
                    warning: true,
                    reason: FAILED,
                    text: format!("node {node}: {}", rephrased.as_ref().unwrap_or(&text)),
                });
            }
        }
        if recorded {
            self.events.push(NewEvent {
                subject: subject.clone(),
                warning: true,
                reason: FAILED,
                text,
            });
        }
    }

    /// A failure as the job describes it, where that differs from the node's message.
    fn rephrased(&self, job: JobId, node: &NodeKey, result: &NewResult) -> Option<String> {
        let record = self.jobs.get(job)?;
        let progress = &record.running()?.progress;
        let campaign = progress.campaign();
        let image = &campaign.tasks.of(node)?.image(&result.name, &result.status.tag)?.image;
        let claim = claim_view(self.nodes.living_image(node)?, image, campaign.uid())?;
        let failure = record
            .job
            .rephrase(progress, image, claim.handed_out, result.status.reason()?)?;
        Some(failure.message)
    }
}

/// The final results that were not there before. The answer to a question (`dryRun`) is for its author alone.
fn new_results(before: &NodeImage, after: &NodeImage) -> Vec<NewResult> {
    let mut news = Vec::new();
    for (name, image) in after.status.iter().flat_map(|status| &status.image_statuses) {
        for status in &image.tags {
            let known = before.result(name, &status.tag);
            let same = known.is_some_and(|known| known.phase == status.phase && known.version() == status.version());
            // The author of a question takes it back as soon as it is answered.
            let entry = after
                .entry(name, &status.tag)
                .or_else(|| before.entry(name, &status.tag));
            let is_question = entry.is_some_and(|entry| entry.dry_run);
            if status.phase().is_final() && !same && !is_question {
                let owners = |entry: &ImageTagSpec| {
                    let owners = entry.owner_references.iter();
                    owners.filter_map(|owner| owner.uid.clone()).collect()
                };
                news.push(NewResult {
                    name: name.clone(),
                    status: status.clone(),
                    owners: after.entry(name, &status.tag).map(owners).unwrap_or_default(),
                });
            }
        }
    }
    news
}

/// The agent that writes this NodeImage's status beside the one that wrote it last.
fn conflicts_with(object: &NodeImage) -> Option<&str> {
    object.status.as_ref()?.agent.as_ref()?.conflicts_with.as_deref()
}

fn node_reference(object: &NodeImage) -> ObjectReference {
    ObjectReference {
        api_version: Some(NodeImage::api_version(&()).into_owned()),
        kind: Some(NodeImage::kind(&()).into_owned()),
        name: object.metadata.name.clone(),
        uid: object.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
