//! One node's task: its images in the job's order, handed out together and judged together.
//!
//! The engine counts nodes, not images. So a task's claims go into a NodeImage in one write ([`NodeTask::claim`]), and what
//! the node says to all of them is folded into one answer ([`NodeReport::claim_view`]), which the engine takes for the node's
//! answer.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::NodeImage;
use larder_api::contract::Answer;
use larder_api::node_image::{ImageTagStatus, NodeImageSpec};
use larder_model::{ImageRef, Reason, Retry};

use super::overriders::ResolvedImage;
use super::secret::SecretRef;
use super::time::NodeTime;
use crate::campaign::later;
use crate::order;
use crate::view::ClaimView;

/// A node counts its time by itself and says so when it is over. It is given this long for its words to arrive.
const LAST_WORD: SignedDuration = SignedDuration::from_secs(10);

/// What one node is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTask {
    images: Vec<ResolvedImage>,
    overriders: Vec<usize>,
}

/// What one node says to its task. Only there while every image of the task is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// When the order was written, by the controller's clock.
    pub handed_out: Timestamp,
    /// Per image of the task, in its order.
    pub images: Vec<ImageReport>,
}

/// What one node says to one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReport {
    /// Its answer.
    pub answer: Answer,
    /// The sentence that came with it.
    pub message: Option<String>,
    /// When the first try began, by the node's clock.
    pub started: Option<Timestamp>,
    /// When the answer became final, by the node's clock.
    pub ended: Option<Timestamp>,
    /// Compressed size, where the node tells.
    pub bytes_total: Option<i64>,
    /// Bytes of these that are there.
    pub bytes_done: Option<i64>,
}

impl NodeTask {
    /// A task for these images, as these overriders of the job made them.
    pub fn new(images: Vec<ResolvedImage>, overriders: Vec<usize>) -> Self {
        Self { images, overriders }
    }

    /// Which overriders of the job made the images what they are.
    pub fn overriders(&self) -> &[usize] {
        &self.overriders
    }

    /// The images, in the job's order.
    pub fn images(&self) -> &[ResolvedImage] {
        &self.images
    }

    /// What is pulled, each once.
    pub fn references(&self) -> BTreeSet<&ImageRef> {
        self.images.iter().map(|image| &image.image).collect()
    }

    /// The image of this entry of a NodeImage, if the task asks for it.
    pub fn image(&self, name: &str, tag: &str) -> Option<&ResolvedImage> {
        let same = |image: &&ResolvedImage| image.image.name() == name && image.image.tag_text() == tag;
        self.images.iter().find(same)
    }

    /// Secrets whose credentials may be used for an image.
    pub fn secrets_for(&self, reference: &ImageRef) -> BTreeSet<&SecretRef> {
        let of_image = self.images.iter().filter(|image| image.image == *reference);
        of_image.filter_map(|image| image.secret.as_ref()).collect()
    }

    /// All Secrets that this node needs.
    pub fn secrets(&self) -> BTreeSet<&SecretRef> {
        self.images.iter().filter_map(|image| image.secret.as_ref()).collect()
    }

    /// Versions of a job's claims on the images. An order is carried out when they differ from what they were before: all
    /// there after a claim, none after a withdrawal.
    pub fn claims(&self, object: &NodeImage, uid: &str) -> Vec<Option<i64>> {
        let claim = |image: &ResolvedImage| {
            let entry = object.entry(image.image.name(), &image.image.tag_text())?;
            entry.claim_version(uid)
        };
        self.images.iter().map(claim).collect()
    }

    /// Claims what is missing or failed; what a node has, or works on, is not asked for again. If nothing is missing and
    /// nothing failed, the node kept silent, and is asked anew for all that it has not got.
    pub fn claim(&self, spec: &mut NodeImageSpec, old: &NodeImage, owner: &ObjectReference, now: Timestamp) {
        let uid = owner.uid.as_deref().unwrap_or_default();
        let answer = |reference: &ImageRef| order::claim_view(old, reference, uid).map(|view| view.answer);
        let needed = |answer: Option<Answer>| matches!(answer, None | Some(Answer::Failed(_)));
        let any_needed = self.images.iter().any(|image| needed(answer(&image.image)));
        for reference in self.references() {
            let answer = answer(reference);
            if needed(answer) || (!any_needed && answer != Some(Answer::Succeeded)) {
                order::claim(spec, old, reference, owner, now);
                self.place(spec, reference);
            }
        }
    }

    /// Tells the node which of the job's images comes first. Where there is only one there is nothing to tell.
    fn place(&self, spec: &mut NodeImageSpec, reference: &ImageRef) {
        let position = self.images.iter().position(|image| image.image == *reference);
        let tags = spec.images.get_mut(reference.name()).map(|image| &mut image.tags);
        let entry = tags.and_then(|tags| tags.iter_mut().find(|entry| entry.tag == reference.tag_text()));
        if let Some(entry) = entry {
            let position = position.filter(|_| 1 < self.images.len());
            entry.position = position.and_then(|position| i32::try_from(position).ok());
        }
    }

    /// Takes a job off all its images.
    pub fn release(&self, spec: &mut NodeImageSpec, uid: &str) {
        for reference in self.references() {
            order::release(spec, reference, uid);
        }
    }

    /// What the node says. None while one of the images is not claimed, and the task has to be handed out.
    pub fn report(&self, object: &NodeImage, uid: &str) -> Option<NodeReport> {
        let mut handed_out = Timestamp::MIN;
        let mut images = Vec::with_capacity(self.images.len());
        for image in &self.images {
            let view = order::claim_view(object, &image.image, uid)?;
            handed_out = handed_out.max(view.handed_out);
            let status = object.result(image.image.name(), &image.image.tag_text());
            images.push(ImageReport::of(view, status));
        }
        Some(NodeReport { handed_out, images })
    }
}

impl ImageReport {
    fn of(view: ClaimView, status: Option<&ImageTagStatus>) -> Self {
        let said = status.filter(|_| view.answer != Answer::Unanswered);
        let message = said.and_then(|status| status.message.clone());
        let failed = matches!(view.answer, Answer::Failed(_) | Answer::Waiting(Some(_)));
        Self {
            answer: view.answer,
            message: message.filter(|_| failed),
            started: said.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            ended: view.ended,
            bytes_total: view.bytes_total,
            bytes_done: view.bytes_done,
        }
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<Reason> {
        match self.answer {
            Answer::Failed(reason) => Some(reason),
            Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling | Answer::Succeeded => None,
        }
    }

    /// Whether the node's checks let it through.
    pub fn passed_checks(&self) -> bool {
        match self.answer {
            Answer::Pulling | Answer::Succeeded => true,
            Answer::Failed(reason) => reason != Reason::CheckFailed && self.started.is_some(),
            Answer::Unanswered | Answer::Waiting(_) => false,
        }
    }
}

impl NodeReport {
    /// The same with the job's words where the node's are those of its entries.
    #[must_use]
    pub fn in_the_jobs_words(mut self, task: &NodeTask, time: NodeTime) -> Self {
        for (image, said) in task.images().iter().zip(&mut self.images) {
            let words = said
                .failure()
                .and_then(|reason| time.in_the_jobs_words(&image.image, self.handed_out, reason));
            if let Some((reason, message)) = words {
                (said.answer, said.message) = (Answer::Failed(reason), Some(message));
            }
        }
        self
    }

    /// When the node's time is over, if it has `timeout` from its own dispatch. Whoever has not answered by then is not
    /// waited for any longer.
    pub fn overdue_at(&self, timeout: SignedDuration) -> Timestamp {
        later(later(self.handed_out, timeout), LAST_WORD)
    }

    /// The node's answer as the engine takes it. Past its time a silent node counts as unresponsive; when it speaks after
    /// all, its words count again.
    pub fn claim_view(&self, timeout: SignedDuration, now: Timestamp) -> ClaimView {
        let answer = match self.answer() {
            Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling if self.overdue_at(timeout) <= now => {
                Answer::Failed(Reason::Unresponsive)
            }
            answer => answer,
        };
        ClaimView {
            handed_out: self.handed_out,
            answer,
            ended: self.images.iter().filter_map(|image| image.ended).max(),
            bytes_total: sum(self.images.iter().map(|image| image.bytes_total)),
            bytes_done: sum(self.images.iter().map(|image| image.bytes_done)),
            again: false,
        }
    }

    /// All answers folded into one. A failed image does not stop the others, so the node's last word is its last image's.
    pub fn answer(&self) -> Answer {
        let open = || {
            self.images
                .iter()
                .map(|image| image.answer)
                .filter(|answer| !is_final(*answer))
        };
        if open().next().is_none() {
            let failure = self.images.iter().find_map(ImageReport::failure);
            return failure.map_or(Answer::Succeeded, Answer::Failed);
        }
        if open().any(|answer| answer == Answer::Pulling) {
            return Answer::Pulling;
        }
        let moves = open().find(|answer| matches!(answer, Answer::Waiting(reason) if !is_stuck(*reason)));
        let stuck = open().find(|answer| matches!(answer, Answer::Waiting(_)));
        let heard = self.images.iter().any(|image| is_final(image.answer));
        match (moves, stuck) {
            (Some(answer), _) | (None, Some(answer)) => answer,
            // It has answered for some: the rest comes.
            (None, None) if heard => Answer::Waiting(None),
            (None, None) => Answer::Unanswered,
        }
    }
}

fn is_final(answer: Answer) -> bool {
    matches!(answer, Answer::Succeeded | Answer::Failed(_))
}

/// Something of the node's own has to change first.
fn is_stuck(reason: Option<Reason>) -> bool {
    reason.is_some_and(|reason| reason.retry() == Retry::Later)
}

fn sum(bytes: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    bytes.flatten().reduce(i64::saturating_add)
}

#[cfg(test)]
mod tests;
