//! What one node reports about its task, image by image, and the one view of it that a campaign counts by.

use jiff::Timestamp;
use larder_api::contract::Answer;
use larder_api::node_image::ImageTagStatus;
use larder_model::{ImageRef, Reason, Retry};

use crate::task::NodeTask;
use crate::view::{ClaimView, Loss};

/// What one node reports about its task. There is a report only while every image of the task is claimed.
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
    /// Somebody removed the image after the node had it.
    pub loss: Option<Loss>,
}

/// Why an image could not be pulled, in the terms of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub reason: Reason,
    /// A message for people.
    pub message: String,
}

impl ImageReport {
    pub(crate) fn of(view: ClaimView, status: Option<&ImageTagStatus>) -> Self {
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
            loss: view.loss,
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
    /// The same report with failures as the job describes them: `rephrase` gives the reason and message of an image's
    /// failure where the job's own terms differ from those of the node's entry.
    #[must_use]
    pub fn rephrased(
        mut self,
        task: &NodeTask,
        rephrase: impl Fn(&ImageRef, Timestamp, Reason) -> Option<Failure>,
    ) -> Self {
        for (image, report) in task.images().iter().zip(&mut self.images) {
            let failure = report
                .failure()
                .and_then(|reason| rephrase(&image.image, self.handed_out, reason));
            if let Some(Failure { reason, message }) = failure {
                (report.answer, report.message) = (Answer::Failed(reason), Some(message));
            }
        }
        self
    }

    /// The report as a campaign counts it.
    pub fn claim_view(&self) -> ClaimView {
        ClaimView {
            handed_out: self.handed_out,
            answer: self.answer(),
            ended: self.images.iter().filter_map(|image| image.ended).max(),
            bytes_total: sum(self.images.iter().map(|image| image.bytes_total)),
            bytes_done: sum(self.images.iter().map(|image| image.bytes_done)),
            again: false,
            loss: self.images.iter().find_map(|image| image.loss),
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
