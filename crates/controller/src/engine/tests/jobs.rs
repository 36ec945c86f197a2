//! The life of a job: started, edited, ended, deleted, and another one of its name.

use super::*;
use crate::engine::jobs::JobState;

fn over() -> Value {
    json!({"completionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn running_jobs_are_counted_as_they_come_and_go() {
    let mut engine = Engine::new(serving());
    let running = |engine: &Engine| {
        let counted = engine.jobs.running_ids().len();
        assert_eq!(engine.sizes().running_jobs, counted);
        counted
    };
    let events = vec![
        pull_job("a", &json!({"image": "nginx"}), &Value::Null),
        pull_job("b", &json!({"image": "nginx"}), &Value::Null),
        pull_job("c", &json!({"image": "nginx"}), &over()),
        pull_job("d", &json!({"image": "UPPER/case"}), &Value::Null),
    ];
    engine.show_all(events, at(0));
    engine.decide(at(0));
    assert_eq!(running(&engine), 2);
    let mut show = |name, image: &str, status: &Value| {
        engine.show_event(pull_job(name, &json!({"image": image}), status), at(0));
        engine.decide(at(0));
    };
    show("a", "redis", &Value::Null);
    assert_eq!(running(&engine), 2, "an edit starts no second one");
    engine.show_event(pull_job("a", &json!({"image": "redis"}), &over()), at(0));
    engine.decide(at(0));
    assert_eq!(running(&engine), 1);
    engine.remove_job(engine.id("a"), at(0));
    engine.remove_job(engine.id("b"), at(0));
    assert_eq!(running(&engine), 0);
    engine.show_event(pull_job("e", &json!({"image": "nginx"}), &Value::Null), at(0));
    engine.decide(at(0));
    assert_eq!(running(&engine), 1);
    engine.restart();
    assert_eq!(running(&engine), 0);
}

#[test]
fn a_job_whose_status_was_cleared_is_served_again() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![], at(0));
    let mut show = |status: &Value| {
        engine.show_event(pull_job("job", &json!({"image": "nginx"}), status), at(0));
        engine.decide(at(0));
        engine.sizes().running_jobs
    };
    assert_eq!(show(&Value::Null), 1);
    assert_eq!(show(&over()), 0);
    assert_eq!(show(&Value::Null), 1);
}

#[test]
fn a_late_response_for_a_deleted_job_leaves_its_namesake_alone() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![pull_job("job", &json!({"image": "nginx"}), &Value::Null)], at(0));
    engine.decide(at(0));
    let (target, _) = engine.next_job_write(at(0)).unwrap();
    let mut namesake = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": "team", "uid": "another"}, "spec": {"image": "nginx"},
    });
    engine.show_event(job::<PullJobs>(namesake.take()), at(1));
    engine.decide(at(1));
    engine.job_written(&target, JobWriteResult::Absent, at(1));
    engine.job_written(&target, JobWriteResult::Failed("late".to_owned()), at(1));
    assert_eq!(engine.sizes().running_jobs, 1);
    let (target, _) = engine.next_job_write(at(1)).unwrap();
    assert_eq!(target.uid, "another");
}

#[test]
fn a_podselector_job_whose_pods_are_never_listed_ends_at_its_deadline() {
    let mut engine = Engine::new(serving());
    let spec = json!({
        "image": "nginx", "podSelector": {"matchLabels": {"app": "web"}},
        "completionPolicy": {"activeDeadlineSeconds": 60},
    });
    engine.show_all(
        vec![node("node"), idle("node"), pull_job("job", &spec, &Value::Null)],
        at(0),
    );
    engine.decide(at(0));
    let (target, JobWrite::Status(patch)) = engine.next_job_write(at(0)).unwrap() else {
        panic!("its status is written first");
    };
    let message = patch[1]["value"]["message"].as_str().unwrap();
    assert!(
        message.contains("waits for the list of the pods in its namespace"),
        "{message}"
    );
    engine.job_written(&target, JobWriteResult::Failed("no".to_owned()), at(0));
    while let Some(wake) = engine.next_wake().filter(|wake| *wake <= at(61)) {
        engine.decide(wake);
    }
    let job = engine.jobs.get(engine.id("job")).unwrap();
    assert!(matches!(job.state, JobState::Ended(_)));
}

#[test]
fn every_job_and_node_is_looked_at_once_in_a_resync() {
    let mut engine = Engine::new(serving());
    for number in 0..100 {
        engine.show_event(node(&format!("node-{number:03}")), at(0));
    }
    let queued = |engine: &mut Engine| std::iter::from_fn(|| engine.queue.next_node(|_| true)).collect::<Vec<_>>();
    assert_eq!(queued(&mut engine).len(), 100);
    let mut seen = Vec::new();
    assert_eq!(engine.resync_slices(), 4);
    for _ in 0..4 {
        engine.resync_slice(at(0));
        let slice = queued(&mut engine);
        assert!(slice.len() <= 32, "{}", slice.len());
        seen.extend(slice);
    }
    let all = engine.nodes.keys();
    assert_eq!(seen, all);
    engine.resync_slice(at(0));
    assert_eq!(queued(&mut engine), all[..32]);
}

#[test]
fn a_success_on_a_node_that_left_while_no_controller_ran_is_kept() {
    let mut engine = Engine::new(serving());
    let edge = |name: &str| {
        let mut image = node_image(name, &json!({}), &json!({"desired": 0}));
        image.metadata.labels = Some([("node-role.kubernetes.io/edge".to_owned(), String::new())].into());
        shown(image)
    };
    let job = job::<PrePullJobs>(json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": "job", "uid": "job"},
        "spec": {"imagePrePullTemplate": {"images": ["nginx:1"], "nodeNames": ["here", "left"]}},
        "status": {"phase": "InProgress", "nodeStatus": [{"nodeName": "left", "phase": "Successful"}]},
    }));
    // The Node is gone; its NodeImage is still to be deleted.
    engine.show_all(vec![node("here"), edge("here"), edge("left"), job], at(0));
    engine.decide(at(0));
    let running = engine.jobs.running(engine.id("job")).unwrap();
    assert!(running.progress.has_succeeded("left"));
}

#[test]
fn nodes_that_a_large_status_only_names_stay_the_nodes_of_the_job() {
    let mut engine = Engine::new(serving());
    let edge = |name: &str| {
        let mut image = node_image(name, &json!({}), &json!({"desired": 0}));
        image.metadata.labels = Some([("node-role.kubernetes.io/edge".to_owned(), String::new())].into());
        shown(image)
    };
    let job = job::<PrePullJobs>(json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": "job", "uid": "job"},
        "spec": {"imagePrePullTemplate": {"images": ["nginx:1"], "labelSelector": {}}},
        "status": {"phase": "InProgress", "omittedNodes": [
            {"phase": "Pending", "count": 1, "nodes": ["waits"]},
            {"phase": "Successful", "count": 1, "nodes": ["left"]},
        ]},
    }));
    engine.show_all(
        vec![node("waits"), edge("waits"), node("late"), edge("late"), job],
        at(0),
    );
    engine.decide(at(0));
    let progress = &engine.jobs.running(engine.id("job")).unwrap().progress;
    let selects = |name: &str| progress.campaign().selection.names(name);
    assert_eq!(["waits", "left", "late"].map(selects), [true, true, false]);
    assert!(progress.has_succeeded("left"));
}

#[test]
fn a_status_that_could_not_be_written_is_written_again() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![pull_job("job", &json!({"image": "nginx"}), &Value::Null)], at(0));
    engine.decide(at(0));
    let (target, first) = engine.next_job_write(at(0)).unwrap();
    engine.job_written(&target, JobWriteResult::Failed("no response".to_owned()), at(0));
    assert!(engine.next_job_write(at(0)).is_none(), "not at once");
    let wake = engine.next_wake().unwrap();
    assert!(wake <= at(2));
    engine.decide(wake);
    let (_, second) = engine.next_job_write(wake).unwrap();
    assert!(matches!((first, second), (JobWrite::Status(_), JobWrite::Status(_))));
}
