//! The time of a node. Its agent knows one deadline for each entry and speaks of that; the job has two fields it may stand
//! for. Which of them it was, and what to change, is said here in the job's words.

use jiff::{SignedDuration, Timestamp};
use larder_model::{ImageRef, Reason};

use super::campaign::PrePull;
use crate::campaign::later;
use crate::node::{Key, pull_message};

/// How long the nodes of a job have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTime {
    seconds: i32,
    job_ends: Option<Timestamp>,
}

impl PrePull {
    /// How long its nodes have, if it began at `started`.
    pub fn node_time(&self, started: Timestamp) -> NodeTime {
        NodeTime {
            seconds: self.timeout_seconds,
            job_ends: self.deadline.map(|deadline| later(started, deadline)),
        }
    }
}

impl NodeTime {
    /// Time that each node has, from its own dispatch.
    pub fn timeout(self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds.into())
    }

    /// What a node means that gives this reason for an image, where the job calls it otherwise: its `timeoutSeconds` were
    /// over, and not the whole job's time.
    pub fn in_the_jobs_words(
        self,
        image: &ImageRef,
        handed_out: Timestamp,
        reason: Reason,
    ) -> Option<(Reason, String)> {
        let ends = later(handed_out, self.timeout());
        if reason != Reason::DeadlineExceeded || self.job_ends.is_some_and(|job| job <= ends) {
            return None;
        }
        let key = Key {
            name: image.name().to_owned(),
            tag: image.tag_text(),
        };
        let words = format!(
            "the node's time for all images together, timeoutSeconds ({} s), was over",
            self.seconds
        );
        Some((Reason::Timeout, pull_message(&key, Reason::Timeout, &words)))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::view::samples::at;

    #[rstest]
    #[case::the_nodes_time(None, Reason::DeadlineExceeded, true)]
    #[case::the_job_ends_later(Some(900), Reason::DeadlineExceeded, true)]
    #[case::the_job_ends_first(Some(200), Reason::DeadlineExceeded, false)]
    #[case::another_reason(None, Reason::NotFound, false)]
    fn whose_time_was_over(#[case] job_ends: Option<i64>, #[case] reason: Reason, #[case] the_nodes: bool) {
        let time = NodeTime {
            seconds: 120,
            job_ends: job_ends.map(at),
        };
        let image = ImageRef::parse("nginx:1").unwrap();
        let said = time.in_the_jobs_words(&image, at(100), reason);
        assert_eq!(said.is_some(), the_nodes);
        if let Some((reason, message)) = said {
            assert_eq!(reason, Reason::Timeout);
            assert!(message.contains("timeoutSeconds (120 s)"), "{message}");
            assert!(!message.contains("activeDeadlineSeconds"), "{message}");
        }
    }
}
