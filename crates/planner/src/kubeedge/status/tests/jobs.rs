//! What the job as a whole says: tolerance, nodes that are left out, deadlines, missing Secrets.

use super::*;

#[test]
fn nodes_that_do_not_qualify_count_against_the_tolerance() {
    let names = json!({"nodeNames": ["a", "b", "gone"], "failureTolerate": "0.34", "concurrency": 9});
    let job = job(&names, &json!([]));
    let mut fleet = Fleet::start(&job, edge_nodes(&[("a", "east"), ("b", "east")]), &Before::default());
    assert_eq!(fleet.step(0), ["a", "b"]);
    fleet.succeed("a", 1);
    fleet.succeed("b", 1);
    let status = fleet.status(2);
    assert_eq!(phases(&status), ["Successful", "Successful", "Failure"]);
    assert_eq!(
        status.node_status[2].reason.as_deref(),
        Some("failed to get node, err: nodes \"gone\" not found")
    );
    assert_eq!(
        status.status[2].node_status.as_ref().unwrap().event.as_deref(),
        Some("Init")
    );
    assert_eq!(
        (status.phase.as_deref(), conditions(&status)),
        (Some("Completed"), vec![("Complete", "WithinTolerance")])
    );
    assert_eq!(status.progress.reasons, [("NodeUnsuitable".to_owned(), 1)].into());
}

#[test]
fn nodes_that_were_left_out_are_counted_in_the_message() {
    let mut nodes = edge_nodes(&[("a", "east"), ("b", "east")]);
    nodes.get_mut("b").unwrap().ready = false;
    let mut fleet = Fleet::start(
        &job(&json!({"labelSelector": {}}), &json!([])),
        nodes,
        &Before::default(),
    );
    let status = fleet.status(0);
    assert_eq!(status.desired, 1);
    assert_eq!(
        status.progress.conditions[0].message,
        "0 of 1 nodes done, 0 failed; 1 nodes with the right labels left out: 1 not ready"
    );
}

#[test]
fn with_a_deadline_nodes_that_are_not_ready_wait_until_then() {
    let mut nodes = edge_nodes(&[("a", "east"), ("down", "east"), ("late", "east")]);
    nodes.get_mut("down").unwrap().ready = false;
    let template = json!({"labelSelector": {}, "activeDeadlineSeconds": 3_600});
    let mut fleet = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
    assert_eq!(fleet.step(0), ["a"]);
    fleet.succeed("a", 1);
    assert_eq!(fleet.step(1), ["late"]);
    let status = fleet.status(1_800);
    assert_eq!(phases(&status), ["Successful", "Pending", "InProgress"]);
    assert_eq!(status.node_status[1].reason.as_deref(), Some("the node is not ready"));
    assert_eq!(fleet.end(3_599), None);
    let status = fleet.status(3_600);
    assert_eq!(phases(&status), ["Successful", "Failure", "Unknown"]);
    assert_eq!(status.reason, Some(too_many_failed(2, 3)));
    assert_eq!(conditions(&status), [("Failed", "DeadlineExceeded")]);
}

#[test]
fn a_node_whose_turn_did_not_come_before_the_deadline_says_so() {
    let mut fleet = fleet(
        &json!({"activeDeadlineSeconds": 60, "failureTolerate": "1"}),
        &["a", "b"],
    );
    fleet.step(0);
    let status = fleet.status(60);
    assert_eq!(phases(&status), ["Unknown", "Failure"]);
    let reason = status.node_status[1].reason.as_deref().unwrap();
    assert!(reason.contains("ran out before the node's turn came"), "{reason}");
    assert_eq!(status.phase.as_deref(), Some("Completed"), "all of them may fail");
}

#[test]
fn the_job_stops_early_and_waits_for_what_is_under_way() {
    let template = json!({"failureTolerate": "0.1", "concurrency": 2});
    let mut fleet = fleet(&template, &["a", "b", "c", "d"]);
    assert_eq!(fleet.step(0), ["a", "b"]);
    fleet.fail("a", Reason::NotFound, 1);
    assert_eq!(fleet.step(1), [""; 0], "nothing more is handed out");
    let running = fleet.status(1);
    assert_eq!((running.phase.as_deref(), fleet.end(1)), (Some("InProgress"), None));
    assert!(
        running.progress.conditions[0]
            .message
            .contains("waits for the pulls that are under way")
    );
    fleet.succeed("b", 2);
    let status = fleet.status(2);
    assert_eq!(phases(&status), ["Failure", "Successful", "Pending", "Pending"]);
    assert_eq!(
        (status.phase.as_deref(), status.reason),
        (Some("Failure"), Some(too_many_failed(1, 4)))
    );
}

#[test]
fn a_missing_secret_is_named_by_the_job_and_counted() {
    let mut fleet = fleet(&json!({"imageSecrets": "default/pull"}), &["a", "b"]);
    fleet.progress.hold(Some(Hold::Secrets {
        missing: vec!["default/pull".into()],
        unreadable: vec![],
        forbidden: vec![],
    }));
    let status = fleet.status(0);
    assert_eq!(conditions(&status), [("Progressing", "SecretMissing")]);
    assert!(
        status.progress.conditions[0]
            .message
            .contains("the pull secret default/pull does not exist")
    );
    assert_eq!(status.progress.reasons, [("SecretMissing".to_owned(), 2)].into());
}

#[test]
fn a_region_whose_secret_is_missing_does_not_hold_up_the_others() {
    let overriders = json!([{
        "nodeLabel": "region=east",
        "overriders": {"secretOverriders": [{"component": "SecretName", "operator": "replace", "value": "east"}]},
    }]);
    let job = job(
        &json!({"labelSelector": {}, "imageSecrets": "default/all"}),
        &overriders,
    );
    let mut fleet = Fleet::start(&job, edge_nodes(&[("e", "east"), ("w", "west")]), &Before::default());
    let east = crate::secret::SecretRef::parse("default/east").unwrap();
    fleet.unusable.missing.insert(east.clone());
    assert_eq!(fleet.step(1), ["w"]);
    let status = fleet.status(1);
    assert_eq!(phases(&status), ["Pending", "InProgress"]);
    assert_eq!(conditions(&status), [("Progressing", "Pulling")]);
    let message = &status.progress.conditions[0].message;
    assert!(
        message.contains("nodes wait: pull secrets cannot be used") && message.ends_with(": default/east"),
        "{message}"
    );
    assert_eq!(status.progress.reasons, [("SecretMissing".to_owned(), 1)].into());
    fleet.succeed("w", 2);
    assert_eq!(fleet.step(3_600), [""; 0]);
    assert_eq!(conditions(&fleet.status(3_600)), [("Progressing", "SecretMissing")]);
    fleet.unusable.missing.remove(&east);
    assert_eq!(fleet.step(3_601), ["e"], "it goes on when the Secret appears");
}

/// Otherwise the author of a job could find out which Secrets exist in namespaces that are not theirs.
#[test]
fn a_missing_secret_and_one_of_another_type_look_the_same() {
    let status_with = |put: fn(&mut Fleet, crate::secret::SecretRef)| {
        let template = json!({"imageSecrets": "team/login", "activeDeadlineSeconds": 60});
        let mut fleet = fleet(&template, &["a"]);
        put(&mut fleet, crate::secret::SecretRef::parse("team/login").unwrap());
        fleet.step(0);
        (fleet.status(1), fleet.status(60))
    };
    let missing = status_with(|fleet, secret| {
        fleet.unusable.missing.insert(secret);
    });
    let of_another_type = status_with(|fleet, secret| {
        fleet.unusable.unreadable.insert(secret);
    });
    assert_eq!(missing, of_another_type);
}

#[test]
fn a_node_that_waited_for_a_secret_until_the_deadline_names_it() {
    let template = json!({"imageSecrets": "team/login", "activeDeadlineSeconds": 60});
    let mut fleet = fleet(&template, &["a"]);
    let login = crate::secret::SecretRef::parse("team/login").unwrap();
    fleet.unusable.missing.insert(login);
    assert_eq!(fleet.step(0), [""; 0]);
    let status = fleet.status(60);
    assert_eq!(phases(&status), ["Failure"]);
    let reason = status.node_status[0].reason.as_deref().unwrap();
    assert!(reason.ends_with(": team/login"), "{reason}");
}

#[test]
fn times_and_transitions_move_only_with_what_they_are_about() {
    let mut fleet = fleet(&json!({}), &["a", "b"]);
    let first = fleet.status(0);
    fleet.step(0);
    let second = fleet.status(50);
    assert_eq!(first.time, second.time);
    let since = |status: &ImagePrePullJobStatus| status.progress.conditions[0].last_transition_time.0;
    assert_eq!((since(&first), since(&second)), (at(0), at(0)));
    assert_eq!(crate::kubeedge::verdict::began(&second), Some(at(0)));
}

#[rstest]
#[case::spec(Refusal::InvalidSpec, "images[0]: 7 is neither a text nor an object", "InvalidSpec")]
#[case::no_nodes(Refusal::NoNodesMatched, "no nodes were matched with selector", "NoNodesMatched")]
fn a_refused_job_says_why_in_both_shapes(
    #[case] refusal: fn(String) -> Refusal,
    #[case] why: &str,
    #[case] reason: &str,
) {
    let refusal = refusal(why.to_owned());
    let status = refused(None, Some(3), &refusal, at(0));
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failure"), Some(why))
    );
    assert_eq!(
        (status.state.as_deref(), status.action.as_deref()),
        (Some("Failed"), Some("Failure"))
    );
    assert_eq!(conditions(&status), [("Failed", reason)]);
    assert_eq!(crate::kubeedge::verdict::ended(&status), Some(at(0)));
    assert_eq!(
        refused(Some(&status), Some(3), &refusal, at(60)),
        status,
        "it is said once"
    );
}
