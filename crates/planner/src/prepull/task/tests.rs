use larder_api::node_image::ImageTagStatus;
use larder_model::Phase;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::prepull::Before;
use crate::prepull::samples::{Fleet, edge_nodes, job};
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

#[rstest]
#[case::in_time(Answer::Pulling, 309, Answer::Pulling)]
#[case::past_its_time(Answer::Pulling, 310, Answer::Failed(Reason::Unresponsive))]
#[case::never_heard_of(Answer::Unanswered, 310, Answer::Failed(Reason::Unresponsive))]
#[case::spoke_late(Answer::Succeeded, 9_999, Answer::Succeeded)]
fn a_silent_node_is_not_waited_for(#[case] answer: Answer, #[case] seconds: i64, #[case] want: Answer) {
    let view = report(&[answer]).claim_view(SignedDuration::from_secs(300), at(seconds));
    assert_eq!(view.answer, want);
}

#[test]
fn bytes_and_ends_are_those_of_all_images() {
    let view = report(&[Answer::Succeeded, FAILED]).claim_view(SignedDuration::from_secs(300), at(9));
    assert_eq!(
        (view.bytes_total, view.bytes_done, view.ended),
        (Some(20), None, Some(at(5)))
    );
}

fn two_images() -> Fleet {
    let job = job(&json!({"images": ["a:1", "b:1"], "nodeNames": ["node"]}), &json!([]));
    Fleet::start(&job, edge_nodes(&[("node", "east")]), &Before::default())
}

#[test]
fn a_task_is_claimed_in_one_write_and_released_in_one() {
    let mut fleet = two_images();
    assert_eq!(fleet.report("node"), None);
    assert_eq!(fleet.step(0), ["node"]);
    let (task, object) = (fleet.tasks["node"].clone(), fleet.nodes["node"].object.clone());
    assert_eq!(task.claims(&object, "job-uid"), [Some(0), Some(0)]);
    assert_eq!(fleet.report("node").unwrap().answer(), Answer::Unanswered);
    let mut spec = object.spec.clone();
    task.release(&mut spec, "job-uid");
    assert!(spec.images.is_empty());
}

#[rstest]
#[case::failed(Phase::Failed, Some(Reason::Dns))]
#[case::kept_silent(Phase::Pulling, None)]
fn what_is_there_is_not_asked_for_again(#[case] phase: Phase, #[case] reason: Option<Reason>) {
    let mut fleet = two_images();
    fleet.step(0);
    fleet.say("node", "a:1", Phase::Succeeded, None, 1);
    fleet.say("node", "b:1", phase, reason, 1);
    let object = fleet.nodes["node"].object.clone();
    let mut spec = object.spec.clone();
    fleet.tasks["node"].claim(&mut spec, &object, &fleet.plan.owner, at(2));
    let version = |name: &str| spec.images[name].tags[0].version;
    assert_eq!((version("a"), version("b")), (0, 1));
}

#[test]
fn an_image_that_an_edit_added_is_claimed_beside_what_runs() {
    let mut fleet = two_images();
    fleet.step(0);
    fleet.say("node", "a:1", Phase::Pulling, None, 1);
    let object = fleet.nodes["node"].object.clone();
    let mut images = fleet.tasks["node"].images().to_vec();
    let added = ImageRef::parse("c:1").unwrap();
    images.push(ResolvedImage {
        written: "c:1".to_owned(),
        original: added.clone(),
        image: added,
        secret: None,
    });
    let edited = NodeTask::new(images, Vec::new());
    assert_eq!(edited.report(&object, "job-uid"), None, "it has to be handed out");
    let mut spec = object.spec.clone();
    edited.claim(&mut spec, &object, &fleet.plan.owner, at(2));
    let versions: Vec<i64> = ["a", "b", "c"].map(|name| spec.images[name].tags[0].version).into();
    assert_eq!(versions, [0, 0, 0]);
}

#[test]
fn what_was_said_to_an_earlier_order_is_not_shown() {
    let mut object = two_images().nodes.remove("node").unwrap().object;
    let old = ImageTagStatus {
        tag: "1".into(),
        version: Some(0),
        phase: "Failed".into(),
        message: Some("old".into()),
        ..ImageTagStatus::default()
    };
    let all = object.status.get_or_insert_default();
    all.image_statuses.entry("a".into()).or_default().tags.push(old);
    let mut fleet = two_images();
    fleet.nodes.get_mut("node").unwrap().object = object;
    fleet.step(0);
    let report = fleet.report("node").unwrap();
    assert_eq!(
        (report.answer(), report.images[0].message.as_deref()),
        (Answer::Unanswered, None)
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
