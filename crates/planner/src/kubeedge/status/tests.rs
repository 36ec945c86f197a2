//! What a status says of a node, in both shapes.

mod jobs;

use larder_api::image_pre_pull_job::NodeTaskStatus;
use larder_model::Phase;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::kubeedge::Before;
use crate::kubeedge::samples::{Fleet, edge_nodes, job};
use crate::kubeedge::texts::{TIMED_OUT, too_many_failed};
use crate::view::samples::at;

fn fleet(template: &Value, names: &[&str]) -> Fleet {
    let mut template = template.clone();
    template["nodeNames"] = json!(names);
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (*name, "east")).collect();
    Fleet::start(&job(&template, &json!([])), edge_nodes(&nodes), &Before::default())
}

fn json_of<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

fn phases(status: &ImagePrePullJobStatus) -> Vec<&str> {
    status
        .node_status
        .iter()
        .map(|node| node.phase.as_deref().unwrap())
        .collect()
}

/// Condition types that are true, with their reasons.
fn conditions(status: &ImagePrePullJobStatus) -> Vec<(&str, &str)> {
    let conditions = status
        .progress
        .conditions
        .iter()
        .filter(|condition| condition.status == "True");
    conditions
        .map(|condition| (condition.type_.as_str(), condition.reason.as_str()))
        .collect()
}

const GUIDE: &str = "registry.cn-hangzhou.aliyuncs.com/jilimoxing/test:nginx";

#[test]
fn the_guides_job_ends_with_the_guides_output() {
    let template = json!({
        "concurrency": 1, "failureTolerate": "0.1", "images": [GUIDE], "retryTimes": 1, "timeoutSeconds": 120,
        "imageSecrets": "default/my-secret",
    });
    let mut fleet = fleet(&template, &["edge.kubeedge"]);
    fleet.step(0);
    fleet.succeed("edge.kubeedge", 7);
    let status = json_of(&fleet.status(8));
    assert_eq!(
        json!({"action": status["action"], "event": status["event"], "state": status["state"], "status": status["status"]}),
        json!({
            "action": "Success", "event": "Pull", "state": "Successful",
            "status": [{
                "imageStatus": [{"image": GUIDE, "state": "Successful"}],
                "nodeStatus": {
                    "action": "Success", "event": "Pull", "nodeName": "edge.kubeedge", "state": "Successful",
                    "time": "2027-01-15T08:00:07Z",
                },
            }],
        })
    );
    assert_eq!(status["time"], "2027-01-15T08:00:08Z");
    assert_eq!(
        status["nodeStatus"],
        json!([{
            "nodeName": "edge.kubeedge", "phase": "Successful",
            "actionFlow": [
                {"action": "Check", "status": "True", "time": "2027-01-15T08:00:07Z"},
                {"action": "Pull", "status": "True", "time": "2027-01-15T08:00:07Z"},
            ],
            "imageStatus": [{"image": GUIDE, "status": "True"}],
        }])
    );
    assert_eq!((&status["phase"], status.get("reason")), (&json!("Completed"), None));
    assert_eq!(
        (&status["desired"], &status["succeeded"], &status["failed"]),
        (&json!(1), &json!(1), &json!(0))
    );
}

#[test]
fn a_node_goes_through_every_phase() {
    let mut fleet = fleet(&json!({}), &["a", "b"]);
    let seen = |fleet: &mut Fleet, seconds| {
        let status = fleet.status(seconds);
        let node = status.status[0].node_status.clone().unwrap();
        let flow: Vec<String> = status.node_status[0]
            .action_flow
            .iter()
            .map(|entry| entry.action.clone().unwrap())
            .collect();
        (
            phases(&status)[0].to_owned(),
            node.state.unwrap(),
            node.event.unwrap_or_default(),
            status.state.unwrap(),
            flow.join(" "),
        )
    };
    let words = |words: [&str; 5]| {
        let [phase, state, event, job, flow] = words.map(str::to_owned);
        (phase, state, event, job, flow)
    };
    assert_eq!(seen(&mut fleet, 0), words(["Pending", "Init", "", "Checking", ""]));
    fleet.step(0);
    assert_eq!(
        seen(&mut fleet, 1),
        words(["InProgress", "Checking", "Init", "Checking", ""])
    );
    fleet.say("a", "nginx:1", Phase::Pulling, None, 2);
    assert_eq!(
        seen(&mut fleet, 2),
        words(["InProgress", "Pulling", "Check", "Pulling", "Check"])
    );
    fleet.succeed("a", 3);
    assert_eq!(
        seen(&mut fleet, 3),
        words(["Successful", "Successful", "Pull", "Pulling", "Check Pull"])
    );
    let status = fleet.job.status.clone().unwrap();
    assert_eq!(phases(&status), ["Successful", "Pending"]);
    assert_eq!(conditions(&status), [("Progressing", "Waiting")]);
    assert_eq!(status.progress.conditions[0].message, "1 of 2 nodes done, 0 failed");
    fleet.step(4);
    assert_eq!(conditions(&fleet.status(4)), [("Progressing", "Pulling")]);
}

#[test]
fn a_failure_is_told_per_image_per_node_and_for_the_job() {
    let mut fleet = fleet(&json!({"images": ["a:1", "b:1", "c:1"]}), &["node"]);
    fleet.step(0);
    fleet.say("node", "a:1", Phase::Succeeded, None, 1);
    fleet.say("node", "b:1", Phase::Failed, Some(Reason::NotFound), 2);
    assert_eq!(
        phases(&fleet.status(2)),
        ["InProgress"],
        "a failed image does not stop the others"
    );
    fleet.say("node", "c:1", Phase::Failed, Some(Reason::Dns), 3);
    let status = fleet.status(4);
    let node = json_of(&status.node_status[0]);
    assert_eq!(node["phase"], "Failure");
    assert_eq!(
        node["reason"],
        "there were some failures when pulling images: b:1 (NotFound), c:1 (Dns)"
    );
    assert_eq!(
        node["actionFlow"][1],
        json!({"action": "Pull", "status": "False", "reason": "there were some failures when pulling images", "time": "2027-01-15T08:00:03Z"})
    );
    assert_eq!(node["imageStatus"][0], json!({"image": "a:1", "status": "True"}));
    assert_eq!(node["imageStatus"][1]["status"], "False");
    let why = node["imageStatus"][1]["reason"].as_str().unwrap();
    assert!(
        why.starts_with("Failed to pull image reference \"b:1\": the node's words"),
        "{why}"
    );
    assert_eq!(status.reason, Some(too_many_failed(1, 1)));
    assert_eq!(
        status.reason.as_deref(),
        Some("the number of failed nodes is 1/1, which exceeds the failure tolerance threshold")
    );
    assert_eq!(conditions(&status), [("Failed", "TooManyFailures")]);
    assert_eq!(status.progress.reasons, [("NotFound".to_owned(), 1)].into());
    let legacy = json_of(&status.status[0]);
    assert_eq!(
        (&legacy["nodeStatus"]["event"], &legacy["nodeStatus"]["action"]),
        (&json!("Pull"), &json!("Failure"))
    );
    assert_eq!(legacy["imageStatus"][2]["state"], "Failed");
}

#[test]
fn a_check_that_said_no_is_told_in_its_own_words() {
    let mut fleet = fleet(&json!({}), &["node"]);
    fleet.step(0);
    fleet.fail("node", Reason::CheckFailed, 1);
    let status = fleet.status(2);
    let node = json_of(&status.node_status[0]);
    assert_eq!(node["reason"], "the node's words");
    assert_eq!(
        node["actionFlow"],
        json!([{"action": "Check", "status": "False", "reason": "the node's words", "time": "2027-01-15T08:00:01Z"}])
    );
    assert_eq!(
        (status.state.as_deref(), status.event.as_deref()),
        (Some("Failed"), Some("Check"))
    );
    assert_eq!(
        status.status[0].node_status.as_ref().unwrap().event.as_deref(),
        Some("Check")
    );
}

#[rstest]
#[case::its_time(Reason::DeadlineExceeded)]
#[case::one_try(Reason::Timeout)]
fn a_node_that_reports_its_timeout_failed(#[case] reason: Reason) {
    let mut fleet = fleet(&json!({}), &["node"]);
    fleet.step(0);
    fleet.fail("node", reason, 300);
    let status = fleet.status(300);
    let node = &status.node_status[0];
    assert_eq!(
        (phases(&status), node.reason.as_deref()),
        (vec!["Failure"], Some("The node task has timed out"))
    );
    assert_eq!(status.event.as_deref(), Some("TimeOut"));
    assert_eq!(status.failed, 1);
    assert_eq!(status.progress.reasons, [("Timeout".to_owned(), 1)].into());
    let image = node.image_status[0].reason.as_deref().unwrap();
    assert!(
        image.contains("timeoutSeconds") && !image.contains("activeDeadlineSeconds"),
        "{image}"
    );
}

#[test]
fn a_node_that_keeps_silent_past_its_time_is_unknown() {
    let mut fleet = fleet(&json!({"failureTolerate": "1"}), &["node", "other"]);
    fleet.step(0);
    fleet.say("node", "nginx:1", Phase::Pulling, None, 1);
    assert_eq!(fleet.step(309), [""; 0]);
    assert_eq!(fleet.step(310), ["other"], "its slot is passed on");
    let status = fleet.status(310);
    let node = &status.node_status[0];
    assert_eq!(
        (phases(&status)[0], node.reason.as_deref()),
        ("Unknown", Some(TIMED_OUT))
    );
    let legacy = status.status[0].node_status.clone().unwrap();
    assert_eq!(
        (legacy.state.as_deref(), legacy.event.as_deref()),
        (Some("Failed"), Some("TimeOut"))
    );
    assert_eq!(status.failed, 1, "it counts as failed");
}

#[test]
fn a_rewritten_image_is_told_by_both_names() {
    let overriders = json!([{
        "nodeLabel": "region=east",
        "overriders": {"imageOverriders": [{"component": "Registry", "operator": "replace", "value": "east.example"}]},
    }]);
    let job = job(&json!({"labelSelector": {}, "concurrency": 2}), &overriders);
    let mut fleet = Fleet::start(&job, edge_nodes(&[("e", "east"), ("w", "west")]), &Before::default());
    fleet.step(0);
    fleet.succeed("e", 1);
    fleet.succeed("w", 1);
    let status = fleet.status(2);
    let both = json!({"image": "nginx:1", "status": "True", "resolvedImage": "east.example/nginx:1"});
    assert_eq!(json_of(&status.node_status[0].image_status[0]), both);
    assert_eq!(
        json_of(&status.node_status[1].image_status[0]),
        json!({"image": "nginx:1", "status": "True"})
    );
    assert_eq!(
        status.status[0].image_status[0].resolved_image.as_deref(),
        Some("east.example/nginx:1")
    );
}

/// What a node may be in the middle of.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Waits,
    Pulls,
    Succeeds,
    Fails(Reason),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let reason = proptest::sample::select(vec![Reason::NotFound, Reason::CheckFailed, Reason::Timeout]);
    let fate = prop_oneof![
        Just(Fate::Waits),
        Just(Fate::Pulls),
        Just(Fate::Succeeds),
        reason.prop_map(Fate::Fails)
    ];
    proptest::collection::vec(fate, 1..12)
}

proptest! {
    /// Both shapes tell of the same nodes, counts add up, a failed node always says why, and no word is foreign.
    #[test]
    fn both_shapes_tell_the_same(fates in fates(), tolerance in proptest::sample::select(vec!["0", "0.5", "1"])) {
        let names: Vec<String> = (0..fates.len()).map(|number| format!("n{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut fleet = fleet(&json!({"failureTolerate": tolerance, "concurrency": 99}), &names);
        fleet.step(0);
        for (name, fate) in names.iter().zip(&fates) {
            match fate {
                Fate::Waits => {}
                Fate::Pulls => fleet.say(name, "nginx:1", Phase::Pulling, None, 1),
                Fate::Succeeds => fleet.succeed(name, 1),
                Fate::Fails(reason) => fleet.fail(name, *reason, 1),
            }
        }
        let status = fleet.status(2);
        prop_assert_eq!(status.node_status.len(), fates.len());
        prop_assert_eq!(status.status.len(), fates.len());
        let (mut succeeded, mut failed) = (0, 0);
        for (node, legacy) in status.node_status.iter().zip(&status.status) {
            let NodeTaskStatus { phase, reason, node_name, .. } = node;
            let old = legacy.node_status.as_ref().unwrap();
            prop_assert_eq!(node_name, &old.node_name);
            prop_assert_eq!(reason, &old.reason);
            let states: &[&str] = match phase.as_deref().unwrap() {
                "Pending" => &["Init"],
                "InProgress" => &["Checking", "Pulling"],
                "Successful" => { succeeded += 1; &["Successful"] }
                "Failure" | "Unknown" => {
                    failed += 1;
                    prop_assert!(reason.as_ref().is_some_and(|reason| !reason.is_empty()));
                    &["Failed"]
                }
                other => return Err(TestCaseError::fail(format!("foreign word {other}"))),
            };
            prop_assert!(states.contains(&old.state.as_deref().unwrap()));
        }
        prop_assert_eq!((status.succeeded, status.failed), (succeeded, failed));
        let allowed = fleet.run.plan.tolerance.allowed(fates.len());
        let over = fates.len() == usize::try_from(succeeded + failed).unwrap();
        let want = match (over, usize::try_from(failed).unwrap() <= allowed) {
            (true, true) => "Completed",
            (true, false) => "Failure",
            (false, _) => "InProgress",
        };
        prop_assert_eq!(status.phase.as_deref(), Some(want));
    }
}
