use super::*;
use rstest::rstest;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn job(spec: Value, status: Value) -> ImagePullJob {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn running() -> Value {
    json!({"startTime": "2026-01-01T00:00:00Z", "desired": 2})
}

fn node(name: &str, ready: bool) -> Node {
    let status = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]},
    }))
    .unwrap()
}

/// A NodeImage; with a result, the job has a claim on it.
fn node_image(name: &str, result: Option<Value>) -> NodeImage {
    let entry = json!({
        "tag": "1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 1}, "createdAt": "2026-01-01T00:00:30Z",
        "ownerReferences": [{"uid": "u"}], "claims": [{"uid": "u", "version": 1}],
    });
    let (images, results) = match result {
        Some(result) => (
            json!({"nginx": {"tags": [entry]}}),
            json!({"nginx": {"tags": [result]}}),
        ),
        None => (json!({}), json!({})),
    };
    serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"zone": name}},
        "spec": {"images": images}, "status": {"imageStatuses": results, "agent": {"version": "1"}},
    }))
    .unwrap()
}

fn objects(result: Option<Value>) -> Objects {
    Objects {
        nodes: vec![node("a", true), node("b", false)],
        node_images: vec![node_image("a", result), node_image("b", None)],
        ..Objects::default()
    }
}

fn said(job: &ImagePullJob, objects: Objects) -> Vec<(String, &'static str, String)> {
    let found = nodes(job, objects, now()).unwrap();
    let parts = |(node, said): (String, Explanation)| (node, said.state.as_str(), said.sentence);
    found.into_iter().map(parts).collect()
}

#[rstest]
#[case::pulls(json!({"tag": "1", "version": 1, "phase": "Pulling", "bytesDone": 1024, "bytesTotal": 4096}), "Pulling", "Pulls: 1.0 KiB of 4.0 KiB after 30 s.")]
#[case::failed(json!({"tag": "1", "version": 1, "phase": "Failed", "reason": "NotFound"}), "Failed", "")]
#[case::succeeded(json!({"tag": "1", "version": 1, "phase": "Succeeded"}), "Succeeded", "The image is there.")]
fn the_planner_speaks(#[case] result: Value, #[case] state: &str, #[case] sentence: &str) {
    let found = said(&job(json!({"image": "nginx:1"}), running()), objects(Some(result)));
    assert_eq!((found[0].0.as_str(), found[0].1), ("a", state));
    assert!(found[0].2.starts_with(sentence), "{found:?}");
    assert_eq!((found[1].0.as_str(), found[1].1), ("b", "Blocked"));
}

#[test]
fn a_missing_secret_is_what_a_node_waits_for() {
    let spec = json!({"image": "nginx:1", "pullSecrets": ["login"], "selector": {"names": ["a"]}});
    let mut objects = objects(None);
    objects.missing_secrets = vec!["default/login".into()];
    objects.node_images[0]
        .status
        .as_mut()
        .unwrap()
        .agent
        .as_mut()
        .unwrap()
        .public_key = Some("key".into());
    let found = said(&job(spec, running()), objects);
    assert_eq!(found[0].1, "Waiting");
    assert!(
        found[0].2.contains("the pull secret default/login does not exist"),
        "{found:?}"
    );
    assert_eq!(found[1].1, "NotSelected");
}

#[test]
fn a_node_without_an_agent_is_named_with_the_reason() {
    let mut objects = objects(None);
    let windows = json!({"metadata": {"name": "win", "labels": {"kubernetes.io/os": "windows"}}});
    objects.nodes.push(serde_json::from_value(windows).unwrap());
    let found = said(&job(json!({"image": "nginx:1"}), running()), objects);
    let (node, state, sentence) = found.last().unwrap();
    assert_eq!((node.as_str(), *state), ("win", "NoAgent"));
    assert_eq!(
        sentence,
        "Left out: no agent runs on this node: its operating system is not Linux. The job neither waits for it nor fails \
         because of it."
    );
}

#[rstest]
#[case::the_controller_says_so(
    "progress 0.0%; the whole fleet has as many pulls as --max-active-pulls allows",
    "--max-active-pulls"
)]
#[case::nobody_says_so("progress 0.0%", "Is about to be served")]
fn the_fleets_limit_is_named_where_it_holds_a_node_back(#[case] message: &str, #[case] want: &str) {
    let mut status = running();
    status["message"] = json!(message);
    let told = said(&job(json!({"image": "nginx:1"}), status), objects(None));
    assert_eq!(told[0].1, "Waiting");
    assert!(told[0].2.contains(want), "{}", told[0].2);

    let condition = json!([{"type": "Progressing", "status": "True", "message": message}]);
    let template = json!({"images": ["redis:7"], "nodeNames": ["a"]});
    let job = prepull(template, json!({"phase": "InProgress", "conditions": condition}));
    let told = prepull_nodes(&job, edge_objects(None), now()).unwrap();
    assert!(told[0].1.sentence.contains(want), "{}", told[0].1.sentence);
}

#[rstest]
#[case::told_by_the_deployment(
    r#"[{"from":"22:00","to":"23:00"}]"#,
    "",
    "outside the fleet's windows until Thu 22:00 UTC"
)]
#[case::told_by_the_status(
    "[]",
    "outside the fleet's windows until Thu 21:00 UTC; 1 node is left out",
    "outside the fleet's windows until Thu 21:00 UTC"
)]
fn windows_of_the_fleet_are_named_where_they_hold_a_node_back(
    #[case] windows: &str,
    #[case] message: &str,
    #[case] want: &str,
) {
    let condition = json!([{"type": "Progressing", "status": "True", "reason": "OutsideWindow", "message": message}]);
    let with_windows = |objects: Objects| Objects {
        fleet_windows: Windows::parse_fleet(windows).unwrap(),
        ..objects
    };
    let mut status = running();
    status["conditions"] = condition.clone();
    let told = said(&job(json!({"image": "nginx:1"}), status), with_windows(objects(None)));
    assert_eq!(
        (told[0].1, &*told[0].2),
        ("Waiting", &*format!("Waits: the job is {want}."))
    );

    let template = json!({"images": ["redis:7"], "nodeNames": ["a"]});
    let job = prepull(template, json!({"phase": "InProgress", "conditions": condition}));
    let told = prepull_nodes(&job, with_windows(edge_objects(None)), now()).unwrap();
    assert!(told[0].1.sentence.contains(want), "{}", told[0].1.sentence);
}

#[test]
fn jobs_with_a_higher_priority_are_counted_where_the_fleets_limit_holds_a_node_back() {
    let mut status = running();
    status["message"] = json!("progress 0.0%; the whole fleet has as many pulls as --max-active-pulls allows");
    let objects = Objects {
        jobs_before: 2,
        ..objects(None)
    };
    let told = said(&job(json!({"image": "nginx:1"}), status), objects);
    assert!(
        told[0].2.ends_with("; 2 jobs with a higher priority go first."),
        "{}",
        told[0].2
    );
}

#[test]
fn a_job_that_nobody_looked_at_says_so() {
    let found = said(&job(json!({"image": "nginx:1"}), Value::Null), objects(None));
    assert!(found[0].2.starts_with("No controller has looked"), "{found:?}");
}

#[test]
fn a_job_that_ended_waits_for_nothing() {
    let ended =
        json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:50Z", "failedNodes": ["b"]});
    let found = said(&job(json!({"image": "nginx:1"}), ended), objects(None));
    assert_eq!((found[0].1, found[1].1), ("Succeeded", "Failed"));
}

#[rstest]
#[case::all(json!({"image": "nginx:1"}), &["a", "b"])]
#[case::by_name(json!({"image": "nginx:1", "selector": {"names": ["b"]}}), &["b"])]
#[case::by_label(json!({"image": "nginx:1", "selector": {"matchLabels": {"zone": "a"}}}), &["a"])]
#[case::by_pods(json!({"image": "nginx:1", "podSelector": {"matchLabels": {"app": "x"}}}), &["b"])]
fn selects_as_the_controller_does(#[case] spec: Value, #[case] want: &[&str]) {
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"nodeName": "b", "containers": []}});
    let objects = Objects {
        pods: vec![serde_json::from_value(pod).unwrap()],
        ..objects(None)
    };
    let found = said(&job(spec, Value::Null), objects);
    let selected = found.into_iter().filter(|(_, state, _)| *state != "NotSelected");
    assert_eq!(selected.map(|(node, ..)| node).collect::<Vec<_>>(), want);
}

#[test]
fn a_job_that_cannot_be_carried_out_is_not_served() {
    let refused = nodes(
        &job(json!({"image": "Not An Image"}), Value::Null),
        objects(None),
        now(),
    )
    .unwrap_err();
    assert!(refused.to_string().starts_with("the job is not served: "), "{refused}");
}

#[test]
fn a_list_is_one_job_for_each_image() {
    let list = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob", "metadata": {"name": "l"},
        "spec": {"images": ["nginx:1", "docker.io/library/nginx:1", "app:2"]},
    });
    let children = children(&serde_json::from_value(list).unwrap()).unwrap();
    let images: Vec<&str> = children.iter().map(|child| child.spec.image.as_str()).collect();
    assert_eq!(images, ["app:2", "nginx:1"]);
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn prepull(template: Value, status: Value) -> ImagePrePullJob {
    let object = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": "web", "uid": "u"}, "spec": {"imagePrePullTemplate": template}, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// An edge node with this result, if any, one without edge label, and one that is not named.
fn edge_objects(result: Option<Value>) -> Objects {
    let mut objects = objects(result);
    objects.nodes[0].metadata.labels = Some([("node-role.kubernetes.io/edge".to_owned(), String::new())].into());
    objects.nodes.push(node("c", true));
    objects.node_images.push(node_image("c", None));
    objects
}

#[test]
fn every_node_of_a_pre_pull_job_is_explained() {
    let template = json!({"images": ["nginx:1"], "nodeNames": ["a", "b", "gone"], "failureTolerate": "1"});
    let pulling = json!({"tag": "1", "version": 1, "phase": "Pulling"});
    let running = json!({"phase": "InProgress", "conditions": [
        {"type": "Progressing", "status": "True", "reason": "Pulling", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]});
    let found = prepull_nodes(&prepull(template, running), edge_objects(Some(pulling)), now()).unwrap();
    let states: Vec<_> = found
        .iter()
        .map(|(node, said)| (node.as_str(), said.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [
            ("a", "Pulling"),
            ("b", "Failed"),
            ("gone", "Failed"),
            ("c", "NotSelected")
        ]
    );
    let sentence = &found[1].1.sentence;
    assert!(
        sentence.starts_with("The node is not an edge node. Remove"),
        "{sentence}"
    );
}

#[test]
fn a_secret_without_docker_configuration_is_no_limit_of_the_fleet() {
    let spec = json!({"image": "nginx:1", "pullSecrets": ["login"], "selector": {"names": ["a"]}});
    let mut objects = objects(None);
    objects.unreadable_secrets = vec!["default/login".into()];
    let agent = objects.node_images[0]
        .status
        .as_mut()
        .and_then(|status| status.agent.as_mut())
        .unwrap();
    agent.public_key = Some("key".to_owned());
    let found = said(&job(spec, running()), objects);
    assert!(
        found[0]
            .2
            .contains("the pull secret default/login holds no docker configuration"),
        "{found:?}"
    );
}

#[rstest]
#[case::docker_json(json!({".dockerconfigjson": "eyJhdXRocyI6e319"}), true)]
#[case::another_kind(json!({"password": "eA=="}), false)]
#[case::broken(json!({".dockerconfigjson": "eA=="}), false)]
fn what_can_be_a_pull_secret(#[case] data: Value, #[case] can: bool) {
    let secret = serde_json::from_value(json!({"metadata": {"name": "login"}, "data": data})).unwrap();
    assert_eq!(holds_docker_configuration(&secret), can);
}

#[rstest]
#[case::missing(&["team/pull"], &[])]
#[case::no_docker_configuration(&[], &["team/pull"])]
fn a_pre_pull_job_that_waits_for_a_secret_says_so(#[case] missing: &[&str], #[case] unreadable: &[&str]) {
    let template = json!({"images": ["redis:7"], "nodeNames": ["a"], "imageSecrets": "team/pull"});
    let mut objects = edge_objects(None);
    objects.missing_secrets = missing.iter().map(ToString::to_string).collect();
    objects.unreadable_secrets = unreadable.iter().map(ToString::to_string).collect();
    let agent = objects.node_images[0].status.as_mut().unwrap().agent.as_mut().unwrap();
    agent.public_key = Some("k".to_owned());
    let found = prepull_nodes(&prepull(template, json!({"phase": "InProgress"})), objects, now()).unwrap();
    assert_eq!(
        (found[0].1.state.as_str(), found[0].1.reason),
        ("Blocked", Some(larder_model::Reason::SecretMissing))
    );
    let sentence = &found[0].1.sentence;
    assert!(sentence.starts_with("Waits: pull secrets cannot be used"), "{sentence}");
    assert!(sentence.ends_with(": team/pull."), "{sentence}");
}

/// Whether the policy is enforced is known to the controller alone, and the job's status tells it.
#[rstest]
#[case::enforced(json!({}), "Waiting", None)]
#[case::not_enforced(json!({"NodePolicyNotEnforced": 1}), "Blocked", Some(larder_model::Reason::NodePolicyNotEnforced))]
fn a_job_that_waits_for_the_node_policy_says_so(
    #[case] reasons: Value,
    #[case] state: &str,
    #[case] reason: Option<larder_model::Reason>,
) {
    let template = json!({"images": ["redis:7"], "nodeNames": ["a"], "imageSecrets": "team/pull"});
    let mut objects = edge_objects(None);
    let agent = objects.node_images[0].status.as_mut().unwrap().agent.as_mut().unwrap();
    agent.public_key = Some("k".to_owned());
    let status = json!({"phase": "InProgress", "reasons": reasons});
    let found = prepull_nodes(&prepull(template, status), objects, now()).unwrap();
    assert_eq!(
        (found[0].1.state.as_str(), found[0].1.reason),
        (state, reason),
        "{found:?}"
    );
}

#[rstest]
#[case::no_controller(json!({"images": ["redis:7"], "nodeNames": ["a"]}), Ok("No controller has looked at the job yet"))]
#[case::refused(json!({"images": [{"name": "x"}], "nodeNames": ["a"]}), Err("images[0]: there is no repo"))]
#[case::nobody_matches(json!({"images": ["redis:7"], "labelSelector": {"matchLabels": {"x": "y"}}}), Err("no nodes were matched"))]
fn a_pre_pull_job_that_nobody_has_looked_at(#[case] template: Value, #[case] want: Result<&str, &str>) {
    let found = prepull_nodes(&prepull(template, Value::Null), edge_objects(None), now());
    match (found, want) {
        (Ok(found), Ok(words)) => assert!(found[0].1.sentence.contains(words), "{found:?}"),
        (Err(refused), Err(words)) => assert!(refused.to_string().contains(words), "{refused}"),
        (found, want) => panic!("{found:?}, and not {want:?}"),
    }
}

#[test]
fn a_pre_pull_job_that_is_over_is_explained_by_its_status() {
    let status =
        json!({"phase": "Failure", "nodeStatus": [{"nodeName": "a", "phase": "Failure", "reason": "a story"}]});
    let template = json!({"images": ["nginx:1"], "nodeNames": ["a"]});
    let found = prepull_nodes(&prepull(template, status), Objects::default(), now()).unwrap();
    assert_eq!((found[0].0.as_str(), found[0].1.sentence.as_str()), ("a", "A story."));
}
