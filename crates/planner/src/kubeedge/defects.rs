//! What KubeEdge gets wrong, shown not to be here: one test for each weakness that is decided in this crate, named after
//! what users of the original see.

use larder_api::image_pre_pull_job::ImagePrePullJobStatus;
use larder_model::{Phase, Reason};
use rstest::rstest;
use serde_json::{Value, json};

use super::samples::{Fleet, edge_nodes, job};
use super::verdict::is_over;
use super::{Before, PrePull};
use crate::finish::End;
use crate::view::samples::at;

fn start(template: &Value, nodes: &[&str]) -> Fleet {
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|name| (*name, "east")).collect();
    Fleet::start(&job(template, &json!([])), edge_nodes(&nodes), &Before::default())
}

fn phases(status: &ImagePrePullJobStatus) -> Vec<&str> {
    status
        .node_status
        .iter()
        .map(|node| node.phase.as_deref().unwrap())
        .collect()
}

#[test]
fn negative_retries_do_not_report_success_without_pulling() {
    let plan = PrePull::of(&job(&json!({"nodeNames": ["a"], "retryTimes": -1}), &json!([]))).unwrap();
    assert_eq!(plan.retries, 0, "one try, no more");
    let mut fleet = start(&json!({"nodeNames": ["a"], "retryTimes": -2}), &["a"]);
    fleet.step(0);
    assert_eq!(phases(&fleet.status(1)), ["InProgress"]);
}

#[test]
fn no_images_are_no_success() {
    let refusal = PrePull::of(&job(&json!({"nodeNames": ["a"], "images": []}), &json!([]))).unwrap_err();
    assert_eq!(refusal.to_string(), "images is empty; name at least one image");
}

#[test]
fn documented_defaults_exist() {
    let plan = PrePull::of(&job(&json!({"nodeNames": ["a"]}), &json!([]))).unwrap();
    assert_eq!(
        (plan.checks.as_slice(), plan.timeout_seconds),
        (&[larder_model::Check::Disk][..], 300)
    );
    assert_eq!(plan.tolerance.allowed(10), 1);
}

#[test]
fn small_failure_ratios_do_not_pass_by_rounding() {
    let plan = PrePull::of(&job(&json!({"nodeNames": ["a"], "failureTolerate": "0"}), &json!([]))).unwrap();
    assert!(plan.tolerance.allowed(1_000) < 4);
}

#[rstest]
#[case::equal_is_tolerated("0.5", 5, false)]
#[case::nobody_failed_and_none_may("0", 0, false)]
fn the_boundary_is_the_same_everywhere(#[case] tolerance: &str, #[case] failed: usize, #[case] want: bool) {
    let template = json!({"nodeNames": ["a"], "failureTolerate": tolerance});
    let plan = PrePull::of(&job(&template, &json!([]))).unwrap();
    assert_eq!(plan.tolerance.allowed(10) < failed, want);
}

#[test]
fn a_node_that_is_named_twice_does_not_hold_the_job_up() {
    let mut fleet = start(&json!({"nodeNames": ["a", "a"]}), &["a"]);
    fleet.step(0);
    fleet.succeed("a", 1);
    assert_eq!((fleet.end(1), fleet.status(1).desired), (Some(End::AllDone), 1));
}

#[rstest]
#[case::not_a_number("NaN")]
#[case::infinite("Inf")]
#[case::minus_infinite("-Inf")]
fn a_tolerance_that_is_no_number_is_refused_in_a_sentence(#[case] text: &str) {
    let template = json!({"nodeNames": ["a"], "failureTolerate": text});
    let refusal = PrePull::of(&job(&template, &json!([]))).unwrap_err().to_string();
    assert!(refusal.contains("is not a decimal between 0 and 1"), "{refusal}");
}

#[test]
fn a_negative_timeout_breaks_nothing() {
    let plan = PrePull::of(&job(&json!({"nodeNames": ["a"], "timeoutSeconds": -5}), &json!([]))).unwrap();
    assert_eq!(plan.timeout_seconds, 300);
}

#[test]
fn an_empty_selector_does_not_pull_cloud_nodes_in() {
    let mut nodes = edge_nodes(&[("cloud", "east"), ("edge", "east")]);
    nodes.get_mut("cloud").unwrap().labels.clear();
    let mut fleet = Fleet::start(
        &job(&json!({"labelSelector": {}}), &json!([])),
        nodes,
        &Before::default(),
    );
    assert_eq!(fleet.status(0).node_status.len(), 1);
}

#[rstest]
#[case::v1alpha1_successful(json!({"state": "Successful"}), true)]
#[case::v1alpha1_failed(json!({"state": "Failed", "phase": ""}), true)]
#[case::v1alpha1_running(json!({"state": "Pulling"}), false)]
#[case::completed(json!({"phase": "Completed"}), true)]
#[case::failure(json!({"phase": "Failure"}), true)]
#[case::init(json!({"phase": "Init"}), false)]
#[case::phase_wins(json!({"phase": "InProgress", "state": "Successful"}), false)]
fn finished_jobs_of_old_versions_are_not_run_again(#[case] status: Value, #[case] want: bool) {
    assert_eq!(is_over(&serde_json::from_value(status).unwrap(), Some(1)), want);
}

#[test]
fn a_failed_node_always_says_why() {
    let mut fleet = start(&json!({"nodeNames": ["a", "gone"], "failureTolerate": "1"}), &["a"]);
    fleet.step(0);
    fleet.fail("a", Reason::AuthDenied, 1);
    for node in fleet.status(2).node_status {
        assert!(node.reason.is_some_and(|reason| !reason.is_empty()));
    }
}

#[test]
fn no_timeout_text_is_left_after_a_late_success() {
    let mut fleet = start(&json!({"nodeNames": ["a", "b"], "failureTolerate": "1"}), &["a", "b"]);
    fleet.step(0);
    fleet.say("a", "nginx:1", Phase::Pulling, None, 1);
    fleet.step(400);
    assert_eq!(phases(&fleet.status(400)), ["Unknown", "InProgress"]);
    fleet.succeed("a", 401);
    let status = fleet.status(401);
    assert_eq!(
        (phases(&status)[0], status.node_status[0].reason.as_deref()),
        ("Successful", None)
    );
}

#[test]
fn there_are_counts_bytes_reasons_and_conditions() {
    let mut fleet = start(&json!({"nodeNames": ["a", "b"], "failureTolerate": "1"}), &["a", "b"]);
    fleet.step(0);
    fleet.fail("a", Reason::NotFound, 1);
    let status = fleet.status(2);
    assert_eq!(
        (status.desired, status.failed, status.progress.conditions.len()),
        (2, 1, 1)
    );
    assert_eq!(status.progress.reasons["NotFound"], 1);
}

#[test]
fn readers_of_v1alpha1_see_everything() {
    let mut fleet = start(&json!({"nodeNames": ["a"]}), &["a"]);
    fleet.step(0);
    fleet.succeed("a", 1);
    let status = serde_json::to_value(fleet.status(2)).unwrap();
    for field in ["state", "event", "action", "time"] {
        assert!(status[field].is_string(), "{field}");
        assert!(
            status["status"][0]["nodeStatus"][field].is_string(),
            "{field} of the node"
        );
    }
}

#[test]
fn a_node_that_never_answers_does_not_hold_its_slot_for_ever() {
    let mut fleet = start(&json!({"nodeNames": ["a-dead", "b-alive"]}), &["a-dead", "b-alive"]);
    assert_eq!(fleet.step(0), ["a-dead"]);
    assert_eq!(fleet.step(29), [""; 0]);
    assert_eq!(fleet.step(30), [""; 0], "the order is taken back");
    assert_eq!(fleet.step(31), ["b-alive"]);
}

#[test]
fn nodes_that_wait_for_a_slot_do_not_time_out() {
    let mut fleet = start(&json!({"nodeNames": ["a", "b"], "timeoutSeconds": 60}), &["a", "b"]);
    fleet.step(0);
    fleet.say("a", "nginx:1", Phase::Pulling, None, 1);
    fleet.succeed("a", 59);
    fleet.step(1_000);
    fleet.say("b", "nginx:1", Phase::Pulling, None, 1_001);
    assert_eq!(
        phases(&fleet.status(1_059)),
        ["Successful", "InProgress"],
        "its time began with its own dispatch"
    );
}

#[test]
fn a_node_with_a_wrong_clock_neither_times_out_at_once_nor_never() {
    let mut fleet = start(&json!({"nodeNames": ["a"], "timeoutSeconds": 60}), &["a"]);
    fleet.step(0);
    let years = 10 * 365 * 86_400;
    for skew in [-years, years] {
        fleet.say("a", "nginx:1", Phase::Pulling, None, skew);
        fleet.step(69);
        assert_eq!((fleet.progress.counts().active, fleet.progress.counts().failed), (1, 0));
        let mut later = fleet.progress.clone();
        later.decide(0, at(70));
        assert_eq!(later.counts().reasons, [(Reason::Unresponsive, 1)].into());
    }
}

#[test]
fn a_job_in_progress_is_resumed_after_a_restart() {
    let template = json!({"nodeNames": ["a", "b"]});
    let mut fleet = start(&template, &["a", "b"]);
    fleet.step(0);
    fleet.succeed("a", 1);
    let said = fleet.status(1);
    let claimed = ["a".into()];
    let mut again = Fleet::start(
        &job(&template, &json!([])),
        fleet.nodes,
        &Before::of(Some(&said), claimed),
    );
    assert_eq!(again.step(2), ["b"]);
    assert_eq!(phases(&again.status(2)), ["Successful", "InProgress"]);
}

#[test]
fn nothing_more_is_tried_once_the_tolerance_is_exceeded() {
    let mut fleet = start(
        &json!({"nodeNames": ["a", "b", "c"], "failureTolerate": "0"}),
        &["a", "b", "c"],
    );
    assert_eq!(fleet.step(0), ["a"]);
    fleet.fail("a", Reason::NotFound, 1);
    assert_eq!(fleet.step(1), [""; 0]);
    assert_eq!(fleet.end(1), Some(End::TooManyFailures));
}

#[test]
fn a_node_that_is_offline_at_dispatch_gets_a_later_chance() {
    let template = json!({"nodeNames": ["a"], "activeDeadlineSeconds": 86_400});
    let mut nodes = edge_nodes(&[("a", "east")]);
    nodes.get_mut("a").unwrap().ready = false;
    let mut fleet = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
    assert_eq!(fleet.step(3_600), [""; 0]);
    fleet.nodes.get_mut("a").unwrap().ready = true;
    assert_eq!(fleet.step(7_200), ["a"]);
}

#[test]
fn the_first_phase_is_never_init() {
    let status = start(&json!({"nodeNames": ["a"]}), &["a"]).status(0);
    assert_eq!(
        (status.phase.as_deref(), status.state.as_deref()),
        (Some("InProgress"), Some("Checking"))
    );
}
