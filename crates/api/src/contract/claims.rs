//! From which version on a result counts for which job.

use k8s_openapi::api::core::v1::ObjectReference;
use larder_model::{Phase, Reason};

use crate::node_image::{Claim, ImageTagSpec, ImageTagStatus, NodeImage};

/// What a node says to one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet: the agent has not seen this version.
    Unanswered,
    /// Seen; its turn has not come, for this reason if there is one.
    Waiting(Option<Reason>),
    /// Being pulled.
    Pulling,
    /// There, for good.
    Succeeded,
    /// Not to be had.
    Failed(Reason),
}

/// What `status` says to a claim on `version`.
pub fn answer(version: i64, status: Option<&ImageTagStatus>) -> Answer {
    let Some(status) = status else {
        return Answer::Unanswered;
    };
    let once_succeeded = status
        .last_succeeded
        .as_ref()
        .is_some_and(|success| success.version >= version);
    if once_succeeded {
        return Answer::Succeeded;
    }
    if status.version() < version {
        return Answer::Unanswered;
    }
    match status.phase() {
        Phase::Waiting => Answer::Waiting(status.reason()),
        Phase::Pulling => Answer::Pulling,
        Phase::Succeeded => Answer::Succeeded,
        Phase::Failed => Answer::Failed(status.reason().unwrap_or(Reason::Internal)),
    }
}

/// The version of an entry that is made anew: beyond whatever the status still says of an earlier one, and beyond whatever
/// the agent may yet report of it, so that an old result cannot be taken for an answer.
///
/// A write raises the version of an entry by at most one, and the generation of the NodeImage by one. So no entry that was
/// removed had a version as high as the generation less one.
pub fn first_version(object: &NodeImage, name: &str, tag: &str) -> i64 {
    let reported = object.result(name, tag).map_or(0, |status| {
        let succeeded = status.last_succeeded.as_ref().map_or(-1, |success| success.version);
        status.version().max(succeeded) + 1
    });
    reported.max(object.metadata.generation.unwrap_or(1) - 1)
}

impl ImageTagSpec {
    /// Claims this entry for a job, or claims it anew. `before` is the version of the entry in the NodeImage that is to be
    /// written, None if it is made anew. The first claim of a write raises it, so that only what happens from now on counts;
    /// others in the same write wait for the same result.
    pub fn claim(&mut self, owner: ObjectReference, before: Option<i64>) {
        let uid = owner.uid.clone().unwrap_or_default();
        self.version = before.map_or(self.version, |before| self.version.max(before + 1));
        self.claims.retain(|claim| claim.uid != uid);
        self.claims.push(Claim {
            uid: uid.clone(),
            version: self.version,
        });
        self.owner_references
            .retain(|reference| reference.uid.as_deref() != Some(&uid));
        self.owner_references.push(owner);
    }

    /// Takes a job off this entry. True if it was the last one, and the entry may go.
    pub fn release(&mut self, uid: &str) -> bool {
        let had_owners = !self.owner_references.is_empty();
        self.claims.retain(|claim| claim.uid != uid);
        self.owner_references
            .retain(|reference| reference.uid.as_deref() != Some(uid));
        had_owners && self.owner_references.is_empty()
    }

    /// The version from which on a result counts for a job. An owner without claim (OpenKruise wrote it) waits for the
    /// entry's own version.
    pub fn claim_version(&self, uid: &str) -> Option<i64> {
        let claim = self
            .claims
            .iter()
            .find(|claim| claim.uid == uid)
            .map(|claim| claim.version);
        let owned = || {
            self.owner_references
                .iter()
                .any(|reference| reference.uid.as_deref() == Some(uid))
        };
        claim.or_else(|| owned().then_some(self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_image::LastSucceeded;
    use proptest::prelude::*;
    use rstest::rstest;

    fn owner(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.into()),
            ..ObjectReference::default()
        }
    }

    fn status(version: i64, phase: Phase, last_succeeded: Option<i64>) -> ImageTagStatus {
        ImageTagStatus {
            version: Some(version),
            phase: phase.as_str().to_owned(),
            last_succeeded: last_succeeded.map(|version| LastSucceeded {
                version,
                ..LastSucceeded::default()
            }),
            ..ImageTagStatus::default()
        }
    }

    #[rstest]
    #[case::nothing_said(1, None, Answer::Unanswered)]
    #[case::answers_an_earlier_version(2, Some(status(1, Phase::Failed, None)), Answer::Unanswered)]
    #[case::waits(2, Some(status(2, Phase::Waiting, None)), Answer::Waiting(None))]
    #[case::pulls(2, Some(status(2, Phase::Pulling, None)), Answer::Pulling)]
    #[case::succeeded(2, Some(status(2, Phase::Succeeded, Some(2))), Answer::Succeeded)]
    #[case::succeeded_as_openkruise_says_it(2, Some(status(2, Phase::Succeeded, None)), Answer::Succeeded)]
    #[case::failed(2, Some(status(2, Phase::Failed, None)), Answer::Failed(Reason::Internal))]
    #[case::a_later_answer_counts(2, Some(status(5, Phase::Succeeded, Some(5))), Answer::Succeeded)]
    #[case::a_later_pull_does_not_take_a_success_back(2, Some(status(3, Phase::Pulling, Some(2))), Answer::Succeeded)]
    #[case::a_later_failure_does_not_take_a_success_back(2, Some(status(3, Phase::Failed, Some(2))), Answer::Succeeded)]
    #[case::an_earlier_success_does_not_count(
        3,
        Some(status(3, Phase::Failed, Some(2))),
        Answer::Failed(Reason::Internal)
    )]
    fn answers(#[case] version: i64, #[case] status: Option<ImageTagStatus>, #[case] want: Answer) {
        assert_eq!(answer(version, status.as_ref()), want);
    }

    #[test]
    fn a_second_claim_raises_the_version_and_leaves_the_first_alone() {
        let mut entry = ImageTagSpec::default();
        entry.claim(owner("first"), None);
        assert_eq!((entry.version, entry.claim_version("first")), (0, Some(0)));
        entry.claim(owner("second"), Some(0));
        assert_eq!(
            (
                entry.version,
                entry.claim_version("first"),
                entry.claim_version("second")
            ),
            (1, Some(0), Some(1))
        );
    }

    #[test]
    fn claiming_anew_waits_for_a_new_result() {
        let mut entry = ImageTagSpec::default();
        entry.claim(owner("daily"), None);
        entry.claim(owner("daily"), Some(0));
        assert_eq!(entry.claim_version("daily"), Some(1));
        assert_eq!(entry.owner_references.len(), 1);
    }

    #[test]
    fn an_entry_goes_with_its_last_owner() {
        let mut entry = ImageTagSpec::default();
        entry.claim(owner("a"), None);
        entry.claim(owner("b"), None);
        assert!(!entry.release("a"));
        assert!(!entry.release("stranger"));
        assert!(entry.release("b"));
    }

    #[test]
    fn a_hand_written_entry_never_goes_with_an_owner() {
        assert!(!ImageTagSpec::default().release("a"));
    }

    #[test]
    fn an_owner_that_openkruise_wrote_waits_for_the_entrys_version() {
        let entry = ImageTagSpec {
            version: 7,
            owner_references: vec![owner("old")],
            ..ImageTagSpec::default()
        };
        assert_eq!(entry.claim_version("old"), Some(7));
        assert_eq!(entry.claim_version("new"), None);
    }

    proptest! {
        /// Whatever an entry's status still says, an entry made anew is not answered by it.
        #[test]
        fn a_left_over_answers_nothing(version in 0i64..100, last in proptest::option::of(0i64..100), phase in 0usize..4) {
            let phase = [Phase::Waiting, Phase::Pulling, Phase::Succeeded, Phase::Failed][phase];
            let left_over = ImageTagStatus { tag: "1".to_owned(), ..status(version, phase, last) };
            let mut object = NodeImage::default();
            object.status.get_or_insert_default().image_statuses.entry("nginx".to_owned()).or_default().tags = vec![left_over.clone()];
            let mut entry = ImageTagSpec { version: first_version(&object, "nginx", "1"), ..ImageTagSpec::default() };
            entry.claim(owner("job"), None);
            prop_assert_eq!(answer(entry.claim_version("job").unwrap(), Some(&left_over)), Answer::Unanswered);
        }

        /// However an entry comes and goes, each write that claims it has a version that no earlier one had.
        #[test]
        fn no_version_is_used_twice(writes in proptest::collection::vec(proptest::collection::vec(0u8..6, 0..4), 1..30)) {
            let mut object = NodeImage::default();
            let mut entry: Option<ImageTagSpec> = None;
            let mut used = -1;
            for (generation, claims) in (1..).zip(writes) {
                object.metadata.generation = Some(generation);
                let before = entry.as_ref().map(|entry| entry.version);
                if claims.is_empty() {
                    entry = None;
                }
                for uid in &claims {
                    let first = || ImageTagSpec { version: first_version(&object, "nginx", "1"), ..ImageTagSpec::default() };
                    let entry = entry.get_or_insert_with(first);
                    entry.claim(owner(&format!("job-{uid}")), before);
                    prop_assert!(used < entry.version);
                }
                used = entry.as_ref().map_or(used, |entry| entry.version);
            }
        }
    }
}
