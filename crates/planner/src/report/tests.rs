use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::view::samples::at;

const FAILED: Answer = Answer::Failed(Reason::NotFound);
const STUCK: Answer = Answer::Waiting(Some(Reason::RuntimeDown));

fn report(answers: &[Answer]) -> NodeReport {
    let image = |answer: &Answer| ImageReport {
        answer: *answer,
        message: None,
        started: None,
        ended: is_final(*answer).then(|| at(5)),
        bytes_total: Some(10),
        bytes_done: None,
        loss: None,
    };
    NodeReport {
        handed_out: at(0),
        images: answers.iter().map(image).collect(),
    }
}

#[rstest]
#[case::all_there(&[Answer::Succeeded, Answer::Succeeded], Answer::Succeeded)]
#[case::one_failed(&[Answer::Succeeded, FAILED], FAILED)]
#[case::the_first_failure_tells(&[Answer::Failed(Reason::Dns), FAILED], Answer::Failed(Reason::Dns))]
#[case::a_failure_does_not_stop_the_others(&[FAILED, Answer::Waiting(None)], Answer::Waiting(None))]
#[case::pulls(&[FAILED, Answer::Pulling, STUCK], Answer::Pulling)]
#[case::nobody_answered(&[Answer::Unanswered, Answer::Unanswered], Answer::Unanswered)]
#[case::answered_for_some(&[Answer::Succeeded, Answer::Unanswered], Answer::Waiting(None))]
#[case::stuck(&[STUCK, Answer::Unanswered], STUCK)]
#[case::stuck_after_a_success(&[Answer::Succeeded, STUCK], STUCK)]
#[case::one_is_stuck_and_another_moves(&[STUCK, Answer::Waiting(None)], Answer::Waiting(None))]
fn folds(#[case] answers: &[Answer], #[case] want: Answer) {
    assert_eq!(report(answers).answer(), want);
}

#[test]
fn bytes_and_ends_are_those_of_all_images() {
    let view = report(&[Answer::Succeeded, FAILED]).claim_view();
    assert_eq!(
        (view.bytes_total, view.bytes_done, view.ended),
        (Some(20), None, Some(at(5)))
    );
}

fn answers() -> impl Strategy<Value = Answer> {
    proptest::sample::select(vec![
        Answer::Unanswered,
        Answer::Waiting(None),
        STUCK,
        Answer::Pulling,
        Answer::Succeeded,
        FAILED,
    ])
}

proptest! {
    /// A node has said its last word exactly when all its images have, and it succeeded exactly when all of them did.
    #[test]
    fn a_node_is_done_with_its_last_image(answers in proptest::collection::vec(answers(), 1..6)) {
        let folded = report(&answers).answer();
        prop_assert_eq!(is_final(folded), answers.iter().all(|answer| is_final(*answer)));
        prop_assert_eq!(folded == Answer::Succeeded, answers.iter().all(|answer| *answer == Answer::Succeeded));
        let silent = answers.iter().all(|answer| *answer == Answer::Unanswered);
        prop_assert_eq!(folded == Answer::Unanswered, silent);
    }
}
