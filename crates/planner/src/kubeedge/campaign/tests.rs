use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::finish::End;
use crate::kubeedge::Before;
use crate::kubeedge::nodes::choose;
use crate::kubeedge::samples::{Fleet, candidates, edge_nodes, job};
use crate::view::samples::at;

fn plan(template: &Value) -> PrePull {
    PrePull::of(&job(template, &json!([]))).unwrap()
}

#[test]
fn documented_defaults_are_really_applied() {
    let plan = plan(&json!({"nodeNames": ["a"]}));
    assert_eq!(plan.checks, [Check::Disk]);
    assert_eq!(plan.tolerance, Tolerance::parse("0.1").unwrap());
    assert_eq!((plan.concurrency, plan.timeout_seconds, plan.retries), (1, 300, 0));
    assert_eq!((plan.deadline, plan.ttl, plan.pin), (None, None, false));
    assert_eq!(plan.priority, 0);
    assert_eq!(
        plan.owner.api_version.as_deref(),
        Some("operations.kubeedge.io/v1alpha2")
    );
    assert_eq!(plan.owner.namespace, None);
}

#[rstest]
#[case::concurrency_0(json!({"concurrency": 0}), 1, 300, 0)]
#[case::negative_concurrency(json!({"concurrency": -3}), 1, 300, 0)]
#[case::timeout_0(json!({"timeoutSeconds": 0}), 1, 300, 0)]
#[case::guide(json!({"concurrency": 2, "timeoutSeconds": 180, "retryTimes": 1}), 2, 180, 1)]
fn numbers(#[case] template: Value, #[case] concurrency: usize, #[case] timeout: i32, #[case] retries: i32) {
    let mut template = template;
    template["nodeNames"] = json!(["a"]);
    let plan = plan(&template);
    assert_eq!(
        (plan.concurrency, plan.timeout_seconds, plan.retries),
        (concurrency, timeout, retries)
    );
}

#[test]
fn no_checks_are_no_checks() {
    assert!(plan(&json!({"nodeNames": ["a"], "checkItems": []})).checks.is_empty());
}

#[rstest]
#[case::images(json!({"nodeNames": ["a"], "images": [7]}), json!([]), "images[0]: 7 is neither")]
#[case::nodes(json!({}), json!([]), "nodeNames and nodeSelector cannot both be empty")]
#[case::overriders(json!({"nodeNames": ["a"]}), json!([{}]), "imagePrePullOverriders[0]")]
#[case::tolerance(json!({"nodeNames": ["a"], "failureTolerate": "10%"}), json!([]), "failureTolerate \"10%\"")]
fn what_cannot_be_carried_out_is_said(#[case] template: Value, #[case] overriders: Value, #[case] want: &str) {
    let refusal = PrePull::of(&job(&template, &overriders)).unwrap_err().to_string();
    assert!(refusal.starts_with(want), "{refusal}");
}

#[test]
fn a_node_that_the_overriders_make_no_image_for_fails_alone() {
    let overriders = json!([{
        "nodeLabel": "region=east",
        "overriders": {"imageOverriders": [{"component": "Registry", "operator": "replace", "value": "not a host"}]},
    }]);
    let nodes = edge_nodes(&[("east-1", "east"), ("west-1", "west"), ("west-2", "west")]);
    let job = job(&json!({"labelSelector": {}, "failureTolerate": "0.5"}), &overriders);
    let mut fleet = Fleet::start(&job, nodes, &Before::default());
    assert_eq!(fleet.choice().unfit(), 1);
    let reason = fleet.status(0).node_status[0].reason.clone().unwrap();
    assert!(
        reason.contains("make no valid image of \"nginx:1\" on this node"),
        "{reason}"
    );
    assert_eq!(fleet.step(0), ["west-1"], "the others go on");
}

#[test]
fn nodes_with_the_same_images_share_a_task() {
    let nodes = edge_nodes(&[("a", "east"), ("b", "east")]);
    let fleet = Fleet::start(
        &job(&json!({"labelSelector": {}}), &json!([])),
        nodes,
        &Before::default(),
    );
    assert!(Arc::ptr_eq(
        fleet.progress.campaign().tasks.of("a").unwrap(),
        fleet.progress.campaign().tasks.of("b").unwrap()
    ));
}

fn campaign(template: &Value, names: &[&str]) -> Campaign {
    let nodes = edge_nodes(&[("a", "east"), ("b", "west")]);
    let mut template = template.clone();
    template["nodeNames"] = json!(names);
    let plan = plan(&template);
    let fleet = candidates(&nodes);
    let mut choice = choose(&plan.nodes, &fleet, plan.waits_for_nodes(), &Before::default()).unwrap();
    let tasks = plan.tasks(&mut choice, &fleet, &Tasks::default());
    plan.campaign(&choice, tasks)
}

#[test]
fn the_engine_stops_when_the_tolerance_cannot_be_met_any_more() {
    let tolerant = campaign(
        &json!({"failureTolerate": "0.5", "concurrency": 7, "priority": 5}),
        &["a", "b", "gone", "gone-too"],
    );
    assert_eq!(
        (tolerant.parallelism, tolerant.max_failures, tolerant.failed_before),
        (7, Some(MaxFailures::Count(2)), 2)
    );
    assert_eq!(tolerant.priority, 5);
    let template = json!({"failureTolerate": "0.1", "nodeNames": ["a", "b", "gone"]});
    let nodes = edge_nodes(&[("a", "east"), ("b", "west")]);
    let mut lost = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
    assert_eq!(lost.step(0), [""; 0], "what cannot be saved is not begun");
    assert_eq!(lost.end(0), Some(End::TooManyFailures));
}

#[rstest]
#[case::no_deadline(json!({}), 600, None)]
#[case::deadline(json!({"activeDeadlineSeconds": 86_400, "ttlSecondsAfterFinished": 60}), 86_400, Some(60))]
fn nodes_are_waited_for_as_long_as_the_job_says(#[case] template: Value, #[case] wait: i64, #[case] ttl: Option<i64>) {
    let campaign = campaign(&template, &["a"]);
    assert_eq!(campaign.response_time, SignedDuration::from_secs(wait));
    let Ending::Always { ttl: its, .. } = campaign.ending else {
        panic!("it ends");
    };
    assert_eq!(its, ttl.map(SignedDuration::from_secs));
}

#[test]
fn the_engine_knows_every_secret_once() {
    let template = json!({"images": ["a", {"repo": "b", "imageSecret": "team/b"}, "c"], "imageSecrets": "default/all"});
    let secrets = campaign(&template, &["a", "b"]).secrets;
    let secrets: Vec<String> = secrets.iter().map(ToString::to_string).collect();
    assert_eq!(secrets, ["default/all", "team/b"]);
}

#[rstest]
#[case::own_time(json!({"timeoutSeconds": 120}), None)]
#[case::the_job_ends_later(json!({"timeoutSeconds": 120, "activeDeadlineSeconds": 9_000}), Some(9_000))]
fn every_node_has_its_time_from_its_own_dispatch(#[case] template: Value, #[case] deadline: Option<i64>) {
    let campaign = campaign(&template, &["a"]);
    let terms = campaign.terms("a", at(0));
    assert_eq!((terms.timeout_seconds, terms.seconds_per_order), (120, Some(120)));
    assert_eq!(terms.deadline, deadline.map(at));
    assert_eq!(terms.when, PullWhen::IfNotPresent);
}

/// A node that was handed out in one region and is found in another by the next life of the controller.
#[rstest]
#[case::moved_away("east", "west", Some("registry.east/nginx:1"))]
#[case::moved_here("west", "east", Some("nginx:1"))]
#[case::stayed("east", "east", None)]
fn what_a_node_was_asked_for_is_known_by_its_order(
    #[case] then: &str,
    #[case] now: &str,
    #[case] kept: Option<&str>,
    #[values(true, false)] with_secret: bool,
) {
    let mut changes =
        json!({"imageOverriders": [{"component": "Registry", "operator": "replace", "value": "registry.east"}]});
    if with_secret {
        changes["secretOverriders"] = json!([{"component": "SecretName", "operator": "replace", "value": "east"}]);
    }
    let overriders = json!([{"nodeLabel": "region=east", "overriders": changes}]);
    let template = json!({"nodeNames": ["a"], "imageSecrets": "shops/login"});
    let mut fleet = Fleet::start(
        &job(&template, &overriders),
        edge_nodes(&[("a", then)]),
        &Before::default(),
    );
    assert_eq!(fleet.step(0), ["a"]);
    let node = fleet.nodes.get_mut("a").unwrap();
    node.labels.insert("region".to_owned(), now.to_owned());
    let objects = fleet.nodes.iter().map(|(name, node)| (name, &node.object));
    let found = fleet.run.plan.handed_out(&candidates(&fleet.nodes), objects);
    let images = found.of("a").map(|task| task.images()[0].image.familiar());
    assert_eq!(images.as_deref(), kept);
}

#[test]
fn where_only_the_secret_differs_the_labels_say_which() {
    let changes = json!({"secretOverriders": [{"component": "SecretName", "operator": "replace", "value": "east"}]});
    let overriders = json!([{"nodeLabel": "region=east", "overriders": changes}]);
    let template = json!({"nodeNames": ["a"], "imageSecrets": "shops/login"});
    let mut fleet = Fleet::start(
        &job(&template, &overriders),
        edge_nodes(&[("a", "east")]),
        &Before::default(),
    );
    assert_eq!(fleet.step(0), ["a"]);
    let objects = fleet.nodes.iter().map(|(name, node)| (name, &node.object));
    let found = fleet.run.plan.handed_out(&candidates(&fleet.nodes), objects);
    assert_eq!(found, Tasks::default());
}
