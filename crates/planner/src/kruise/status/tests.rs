//! The texts that scripts read, and what stands beside them.

use jiff::SignedDuration;
use larder_api::conditions::reasons;
use larder_api::contract::Answer;
use rstest::rstest;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;
use crate::campaign::{Campaign, Ending, MaxFailures};
use crate::explain::names_fleet_limit;
use crate::progress::NoLogin;
use crate::schedule::Schedule;
use crate::view::samples::{able, at, blocked, campaign, node, ordered};
use crate::{NodeView, Step};

const NOT_FOUND: Answer = Answer::Failed(Reason::NotFound);

fn progress(campaign: Campaign, views: Vec<NodeView>) -> Progress {
    let mut progress = Progress::new(campaign, at(0));
    for (number, view) in views.into_iter().enumerate() {
        progress.node_changed(&node(number), view, at(0));
    }
    progress
}

fn status(campaign: Campaign, views: Vec<NodeView>, end: Option<End>) -> ImagePullJobStatus {
    progress(campaign, views).pull_job_status(None, Some(1), end, at(10))
}

fn said(answer: Answer) -> NodeView {
    ordered(at(0), answer)
}

fn of_type<'a>(status: &'a ImagePullJobStatus, kind: &str) -> Option<&'a Condition> {
    status
        .progress
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

#[rstest]
#[case::nobody_selected(vec![], "job is running, no progress; no node matches, waits 30 s for one")]
#[case::nothing_done(vec![able(), able()], "job is running, progress 0.0%")]
#[case::one_decimal(vec![said(Answer::Succeeded), said(Answer::Succeeded), said(Answer::Pulling)], "job is running, progress 66.7%")]
#[case::failures_are_progress_too(
    vec![said(NOT_FOUND), said(Answer::Pulling)],
    "job is running, progress 50.0%; nodes that wait or failed: 1 NotFound"
)]
#[case::who_waits_is_told(
    vec![blocked(Reason::NodeNotReady, at(0)), said(Answer::Pulling)],
    "job is running, progress 0.0%; nodes that wait or failed: 1 NodeNotReady"
)]
fn a_running_job_says(#[case] views: Vec<NodeView>, #[case] want: &str) {
    let status = status(campaign(1), views, None);
    assert_eq!(status.message.as_deref(), Some(want));
    assert_eq!(of_type(&status, "Progressing").unwrap().status, "True");
    assert_eq!(of_type(&status, "Complete").or(of_type(&status, "Failed")), None);
    assert_eq!(status.completion_time, None);
}

#[rstest]
#[case::paused(0, None, "job is running, progress 0.0%; paused (parallelism 0)", reasons::PAUSED)]
#[case::fleet_paused(
    1,
    Some(Hold::FleetPaused),
    "job is running, progress 0.0%; handing out is paused for the whole fleet",
    reasons::PAUSED
)]
#[case::secret_missing(
    1,
    Some(Hold::Secrets { missing: vec!["team/pull".into()], unreadable: vec![], forbidden: vec![] }),
    "job is running, progress 0.0%; the pull secret team/pull does not exist; nothing is pulled until that is mended",
    reasons::SECRET_MISSING
)]
#[case::secret_forbidden(
    1,
    Some(Hold::Secrets { missing: vec![], unreadable: vec![], forbidden: vec!["team/pull".into()] }),
    "job is running, progress 0.0%; the API server does not let the controller read the pull secret team/pull; nothing is pulled until that is mended",
    reasons::SECRET_MISSING
)]
fn a_job_that_is_held_says_why(
    #[case] parallelism: usize,
    #[case] hold: Option<Hold>,
    #[case] message: &str,
    #[case] reason: &str,
) {
    let mut progress = progress(campaign(parallelism), vec![able(), able()]);
    let secret = matches!(hold, Some(Hold::Secrets { .. }));
    progress.hold(hold);
    let status = progress.pull_job_status(None, Some(1), None, at(10));
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(of_type(&status, "Progressing").unwrap().reason, reason);
    assert_eq!(status.progress.reasons.get("SecretMissing"), secret.then_some(&2));
}

#[rstest]
#[case::all_succeeded(vec![said(Answer::Succeeded)], End::AllDone, "job has completed", "Complete", "AllNodesSucceeded")]
#[case::one_failed(vec![said(Answer::Succeeded), said(NOT_FOUND)], End::AllDone, "job has completed", "Failed", "NodesFailed")]
#[case::nobody(vec![], End::NoNodes, "job has completed", "Complete", "NoNodesMatched")]
#[case::deadline(vec![said(Answer::Pulling)], End::Deadline, "job exceeds activeDeadlineSeconds", "Failed", "DeadlineExceeded")]
#[case::too_many(vec![said(NOT_FOUND), able()], End::TooManyFailures, "job has completed", "Failed", "TooManyFailures")]
fn an_ended_job_says(
    #[case] views: Vec<NodeView>,
    #[case] end: End,
    #[case] message: &str,
    #[case] kind: &str,
    #[case] reason: &str,
) {
    let status = status(campaign(1), views, Some(end));
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(status.completion_time, Some(Time(at(10))));
    let verdict = of_type(&status, kind).unwrap();
    assert_eq!((verdict.status.as_str(), verdict.reason.as_str()), ("True", reason));
    assert_eq!(of_type(&status, "Progressing").unwrap().status, "False");
    assert_eq!(status.progress.conditions.len(), 2);
    assert_eq!((status.active, status.progress.eta_seconds), (0, None));
}

#[test]
fn at_the_deadline_everybody_who_is_not_done_failed_with_his_own_reason() {
    let views = vec![
        said(Answer::Succeeded),
        said(NOT_FOUND),
        said(Answer::Pulling),
        blocked(Reason::NodeNotReady, at(0)),
        able(),
    ];
    let status = status(campaign(1), views, Some(End::Deadline));
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (5, 1, 4, 0)
    );
    assert_eq!(
        status.failed_nodes,
        ["node-00001", "node-00002", "node-00003", "node-00004"]
    );
    let reasons: Vec<(&str, i32)> = status
        .progress
        .reasons
        .iter()
        .map(|(reason, count)| (reason.as_str(), *count))
        .collect();
    assert_eq!(reasons, [("DeadlineExceeded", 2), ("NodeNotReady", 1), ("NotFound", 1)]);
}

#[test]
fn failed_nodes_are_sorted_and_bounded() {
    let few = status(
        campaign(1),
        vec![said(NOT_FOUND), said(Answer::Pulling), said(NOT_FOUND)],
        None,
    );
    assert_eq!(few.failed_nodes, ["node-00000", "node-00002"]);

    let mut progress = Progress::new(campaign(1), at(0));
    let count = 5_000;
    for number in 0..count {
        let name = format!("{number:05}-{}", "x".repeat(200)).into();
        progress.node_changed(&name, said(NOT_FOUND), at(0));
    }
    let many = progress.pull_job_status(None, Some(1), Some(End::AllDone), at(1));
    let bytes: usize = many.failed_nodes.iter().map(|name| name.len() + 3).sum();
    assert!(
        (FAILED_NODES_BYTES - 500..=FAILED_NODES_BYTES).contains(&bytes),
        "{bytes}"
    );
    assert_eq!(many.failed, 5_000);
    let text = &of_type(&many, "Failed").unwrap().message;
    let unnamed = count - many.failed_nodes.len();
    assert!(text.contains(&format!("{unnamed} of them are not listed")), "{text}");
}

#[test]
fn bytes_and_the_time_that_is_left() {
    let pulling = |done| {
        let mut view = said(Answer::Pulling);
        let claim = view.claim.as_mut().unwrap();
        (claim.bytes_total, claim.bytes_done) = (Some(1_000), Some(done));
        view
    };
    let mut progress = progress(campaign(2), vec![pulling(0), pulling(0)]);
    progress.pull_job_status(None, None, None, at(10));
    progress.node_changed(&node(0), pulling(500), at(20));
    progress.node_changed(&node(1), pulling(300), at(20));
    let status = progress.pull_job_status(None, None, None, at(20));
    assert_eq!(
        (status.progress.bytes_total, status.progress.bytes_done),
        (Some(2_000), Some(800))
    );
    assert!(
        matches!(status.progress.eta_seconds, Some(15 | 16)),
        "{:?}",
        status.progress.eta_seconds
    );
}

#[test]
fn bytes_that_nobody_knows_are_not_told() {
    let status = status(campaign(1), vec![said(Answer::Pulling)], None);
    assert_eq!((status.progress.bytes_total, status.progress.bytes_done), (None, None));
}

#[test]
fn a_transition_keeps_its_time_until_the_next_one() {
    let mut progress = progress(campaign(1), vec![able()]);
    let first = progress.pull_job_status(None, Some(1), None, at(5));
    let second = progress.pull_job_status(Some(&first), Some(1), None, at(50));
    assert_eq!(
        of_type(&second, "Progressing").unwrap().last_transition_time,
        Time(at(5))
    );
    let ended = progress.pull_job_status(Some(&second), Some(1), Some(End::AllDone), at(60));
    assert_eq!(
        of_type(&ended, "Progressing").unwrap().last_transition_time,
        Time(at(60))
    );
}

#[test]
fn what_is_read_back_equals_what_was_written() {
    let started = at(0) + SignedDuration::from_millis(999);
    let mut progress = Progress::new(campaign(1), started);
    let status = progress.pull_job_status(None, None, Some(End::NoNodes), at(40) + SignedDuration::from_millis(1));
    assert_eq!(status.start_time, Some(Time(at(0))));
    assert_eq!(status.completion_time, Some(Time(at(40))));
}

#[test]
fn a_job_that_cannot_be_carried_out_says_what_to_change_and_is_not_over() {
    let status = refused(
        None,
        Some(3),
        &Refusal::InvalidSpec("write the image in lower case".into()),
        at(0),
    );
    assert_eq!(status.message.as_deref(), Some("write the image in lower case"));
    assert_eq!(of_type(&status, "Failed").unwrap().reason, reasons::INVALID_SPEC);
    assert_eq!(status.completion_time, None);
}

#[test]
fn a_job_with_too_many_failures_says_what_it_waits_for() {
    let mut strict = campaign(2);
    strict.max_failures = Some(MaxFailures::Count(0));
    let status = status(strict, vec![said(NOT_FOUND), said(Answer::Pulling)], None);
    let want = "job is running, progress 50.0%; too many nodes failed, waits for the pulls that are under way";
    assert_eq!(status.message.as_deref(), Some(want));
}

#[test]
fn an_endless_job_waits_for_nodes_for_ever() {
    let mut endless = campaign(1);
    endless.ending = Ending::Never;
    let status = status(endless, vec![], None);
    assert_eq!(
        status.message.as_deref(),
        Some("job is running, no progress; no node matches, waits for one")
    );
}

#[test]
fn a_node_that_was_just_handed_the_order_is_active() {
    let mut progress = progress(campaign(1), vec![able(), able()]);
    assert_eq!(progress.decide(9, at(1)), [Step::HandOut(node(0))]);
    assert_eq!(progress.pull_job_status(None, None, None, at(1)).active, 1);
}

fn endless(parallelism: usize) -> Campaign {
    Campaign {
        ending: Ending::Never,
        ..campaign(parallelism)
    }
}

#[rstest]
#[case::one_pulls(campaign(1), vec![said(Answer::Pulling), able()], 9, reasons::PULLING)]
#[case::about_to_begin(campaign(1), vec![able()], 9, reasons::PULLING)]
#[case::the_fleet_is_busy(campaign(1), vec![able()], 0, reasons::FLEET_LIMIT)]
#[case::pulls_fewer_than_it_may(campaign(2), vec![said(Answer::Pulling), able()], 0, reasons::PULLING)]
#[case::nobody_is_ready(campaign(1), vec![blocked(Reason::NodeNotReady, at(9))], 9, reasons::WAITING)]
#[case::endless_and_done(endless(1), vec![said(Answer::Succeeded), said(NOT_FOUND)], 9, reasons::FOLLOWING)]
#[case::endless_and_nobody_is_ready(endless(1), vec![blocked(Reason::NodeNotReady, at(9))], 9, reasons::WAITING)]
fn the_condition_says_what_the_job_does(
    #[case] campaign: Campaign,
    #[case] views: Vec<NodeView>,
    #[case] allowance: usize,
    #[case] want: &str,
) {
    let mut progress = progress(campaign, views);
    progress.decide(allowance, at(9));
    let status = progress.pull_job_status(None, Some(1), None, at(10));
    assert_eq!(of_type(&status, "Progressing").unwrap().reason, want);
    let capped = status.message.as_deref().is_some_and(names_fleet_limit);
    assert_eq!(capped, allowance == 0, "{:?}", status.message);
}

#[test]
fn a_job_with_a_schedule_says_when_it_refreshes_next() {
    let scheduled = Campaign {
        refresh: Some(Schedule::parse("30 8 * * *", Some("Europe/Berlin")).unwrap()),
        ..endless(1)
    };
    let mut progress = progress(scheduled, vec![said(Answer::Succeeded)]);
    progress.decide(9, at(9));
    let status = progress.pull_job_status(None, Some(1), None, at(10));
    let refresh = "next refresh Sat 2027-01-16 08:30 Europe/Berlin";
    assert_eq!(
        status.message,
        Some(format!("job is running, progress 100.0%; {refresh}"))
    );
    let condition = of_type(&status, "Progressing").unwrap();
    assert_eq!((&*condition.reason, &*condition.message), (reasons::FOLLOWING, refresh));
}

#[rstest]
#[case::while_it_runs(vec![able()], None, "progress 0.0%; ", true)]
#[case::refused(vec![said(Answer::Failed(Reason::AuthDenied))], Some(End::AllDone), "1 of 1 nodes failed: 1 AuthDenied; ", true)]
#[case::failed_otherwise(vec![said(NOT_FOUND)], Some(End::AllDone), "1 of 1 nodes failed: 1 NotFound", false)]
#[case::pulled_without(vec![said(Answer::Succeeded)], Some(End::AllDone), "1 of 1 nodes have the image", false)]
fn a_secret_without_a_login_for_the_registry_is_named(
    #[case] views: Vec<NodeView>,
    #[case] end: Option<End>,
    #[case] before: &str,
    #[case] named: bool,
) {
    let mut progress = progress(campaign(1), views);
    progress.lacks_logins(vec![NoLogin {
        registry: "docker.io".into(),
        secrets: vec!["team/pull".into()],
    }]);
    let status = progress.pull_job_status(None, Some(1), end, at(10));
    let text = match end {
        None => status.message.unwrap(),
        Some(_) => status.progress.conditions[0].message.clone(),
    };
    let gap = "the pull secret team/pull holds no login for docker.io, which is asked without one";
    let want = if named {
        format!("{before}{gap}")
    } else {
        before.to_owned()
    };
    assert!(text.ends_with(&want), "{text}");
    assert_eq!(text.contains("no login"), named);
}
