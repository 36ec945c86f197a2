//! The time of a node. Its agent knows one deadline for each entry and speaks of that; the job has two fields it may stand
//! for. Which of them it was, and what to change, is said here in the job's words.

use jiff::Timestamp;
use larder_model::{ImageRef, Reason};

use crate::campaign::later;
use crate::node::{Key, pull_message};
use crate::progress::Progress;
use crate::report::Failure;

/// What a node means that gives this reason for an image, where the job calls it otherwise: its `timeoutSeconds` were over,
/// and not the whole job's time.
pub fn rephrase(progress: &Progress, image: &ImageRef, handed_out: Timestamp, reason: Reason) -> Option<Failure> {
    let campaign = progress.campaign();
    let timeout = campaign.node_timeout?;
    let ends = later(handed_out, timeout);
    let job_ends_first = campaign.deadline(progress.started()).is_some_and(|job| job <= ends);
    if reason != Reason::DeadlineExceeded || job_ends_first {
        return None;
    }
    let key = Key {
        name: image.name().to_owned(),
        tag: image.tag_text(),
    };
    let text = format!(
        "the node's time for all images together, timeoutSeconds ({} s), was over",
        timeout.as_secs()
    );
    Some(Failure {
        reason: Reason::Timeout,
        message: pull_message(&key, Reason::Timeout, &text),
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::campaign::Ending;
    use crate::view::samples::{at, campaign};

    #[rstest]
    #[case::the_nodes_time(None, Reason::DeadlineExceeded, true)]
    #[case::the_job_ends_later(Some(900), Reason::DeadlineExceeded, true)]
    #[case::the_job_ends_first(Some(200), Reason::DeadlineExceeded, false)]
    #[case::another_reason(None, Reason::NotFound, false)]
    fn whose_time_was_over(#[case] job_ends: Option<i64>, #[case] reason: Reason, #[case] the_nodes: bool) {
        let mut campaign = campaign(1);
        campaign.node_timeout = Some(SignedDuration::from_secs(120));
        campaign.ending = Ending::Always {
            deadline: job_ends.map(SignedDuration::from_secs),
            ttl: None,
        };
        let progress = Progress::new(campaign, at(0));
        let image = ImageRef::parse("nginx:1").unwrap();
        let said = rephrase(&progress, &image, at(100), reason);
        assert_eq!(said.is_some(), the_nodes);
        if let Some(Failure { reason, message }) = said {
            assert_eq!(reason, Reason::Timeout);
            assert!(message.contains("timeoutSeconds (120 s)"), "{message}");
            assert!(!message.contains("activeDeadlineSeconds"), "{message}");
        }
    }
}
