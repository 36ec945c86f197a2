//! Which children a list wants, and what it says of them.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn list(spec: &Value) -> ImageListPullJob {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
        "metadata": {"name": "list", "namespace": "team", "uid": "u"},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn one_child_per_image_and_equal_images_count_once() {
    let spec =
        json!({"images": ["nginx", "docker.io/library/nginx:latest", "redis:7"], "parallelism": 3, "priority": 5});
    let children = children(&list(&spec)).unwrap();
    let images: Vec<&str> = children.values().map(|child| child.image.as_str()).collect();
    assert_eq!(images, ["nginx", "redis:7"]);
    assert!(children.values().all(|child| child.template.parallelism.is_some()));
    assert!(children.values().all(|child| child.template.priority == 5));
}

#[test]
fn a_child_fits_into_its_deadline_and_has_no_time_to_live() {
    let spec = json!({
        "images": ["nginx"],
        "completionPolicy": {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5},
    });
    let wanted = children(&list(&spec)).unwrap();
    let child = wanted.values().next().unwrap();
    assert_eq!(child.template.pull_policy.timeout_seconds, 60);
    assert_eq!(child.template.completion_policy.ttl_seconds_after_finished, None);
    assert_eq!(child.template.completion_policy.active_deadline_seconds, Some(60));
}

#[rstest]
#[case::as_it_was_made(json!({}), true)]
#[case::defaults_that_the_api_wrote(json!({"imagePullPolicy": "IfNotPresent", "completionPolicy": {"type": "Always"}}), true)]
#[case::made_by_openkruise_with_a_time_to_live(json!({"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 9}}), true)]
#[case::priority_that_is_none(json!({"priority": 0}), true)]
#[case::another_pace(json!({"parallelism": 5}), false)]
#[case::another_deadline(json!({"completionPolicy": {"activeDeadlineSeconds": 9_000}}), false)]
#[case::another_policy(json!({"imagePullPolicy": "Always"}), false)]
fn existing_children_are_compared_by_their_fields(#[case] change: Value, #[case] want: bool) {
    let wanted = children(&list(&json!({"images": ["nginx"]}))).unwrap();
    let mut spec = json!({"image": "nginx"});
    spec.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let child: ImagePullJobSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(is_as_wanted(&child, wanted.values().next().unwrap()), want);
}

#[rstest]
#[case::time_to_live(json!({"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 9}}))]
#[case::default_policy(json!({"imagePullPolicy": "IfNotPresent"}))]
#[case::timeout_by_default(json!({"pullPolicy": {"timeoutSeconds": 600}}))]
#[case::policy(json!({"imagePullPolicy": "Always"}))]
#[case::pace(json!({"parallelism": 5}))]
#[case::deadline(json!({"completionPolicy": {"activeDeadlineSeconds": 9_000}}))]
fn what_is_done_stays_done_as_long_as_its_child_would_stay(#[case] change: Value) {
    let mut spec = json!({"images": ["nginx"]});
    let before = list(&spec);
    spec.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let after = list(&spec);
    let child = |list: &ImageListPullJob| children(list).unwrap().into_values().next().unwrap();
    assert_eq!(
        revision(&before) == revision(&after),
        is_as_wanted(&child(&before), &child(&after))
    );
}

#[test]
fn a_child_names_its_list_as_controller() {
    let list = list(&json!({"images": ["nginx"]}));
    let spec = children(&list).unwrap().into_values().next().unwrap();
    let child = child(&list, spec);
    assert_eq!(child.metadata.generate_name.as_deref(), Some("list-"));
    let owner = &child.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("u", Some(true)));
    assert!(child.metadata.labels.unwrap().contains_key(TEMPLATE_HASH_LABEL));
}

fn with_status(name: &str, status: &Value) -> ImagePullJob {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"image": name}, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn status_of(list: &ImageListPullJob, existing: &[&ImagePullJob]) -> ImageListPullJobStatus {
    let by_image = existing
        .iter()
        .map(|child| (ImageRef::parse(&child.spec.image).unwrap(), *child))
        .collect();
    status(list, &children(list).unwrap(), &by_image, Timestamp::UNIX_EPOCH)
}

fn two_images() -> ImageListPullJob {
    list(&json!({"images": ["a", "b"]}))
}

const DONE: &str = "2026-01-01T00:00:00Z";

#[test]
fn counts_images_and_names_the_failed_ones_as_upstream() {
    let good = with_status("a", &json!({"desired": 2, "succeeded": 2, "completionTime": DONE}));
    let bad = with_status(
        "b",
        &json!({
            "desired": 2, "succeeded": 1, "failed": 1, "completionTime": DONE, "reasons": {"NotFound": 1},
            "conditions": [{"type": "Failed", "status": "True", "reason": "NodesFailed", "message": "", "lastTransitionTime": DONE}],
        }),
    );
    let status = status_of(&two_images(), &[&good, &bad]);
    assert_eq!(
        (status.desired, status.completed, status.succeeded, status.active),
        (2, 2, 1, 0)
    );
    assert!(status.completion_time.is_some());
    let failed = &status.failed_image_statuses[0];
    let want = "Please check for details which nodes failed by 'kubectl get ImagePullJob b'.";
    assert_eq!(failed.message.as_deref(), Some(want));
    assert_eq!(status.progress.conditions[0].type_, "Failed");
    assert_eq!(status.progress.reasons["NotFound"], 1);
}

#[test]
fn a_child_without_conditions_whose_nodes_failed_is_no_success() {
    let mut list = two_images();
    let good = with_status("a", &json!({"desired": 2, "succeeded": 2, "completionTime": DONE}));
    let counts = json!({"desired": 2, "succeeded": 1, "failed": 1, "completionTime": DONE});
    let by_openkruise = with_status("b", &counts);
    let status = status_of(&list, &[&good, &by_openkruise]);
    let reasons = status.finished_images.iter().map(|image| image.reason.as_deref());
    assert_eq!(reasons.collect::<Vec<_>>(), [None, Some("NodesFailed")]);
    let ended = &status.progress.conditions[0];
    assert_eq!((ended.type_.as_str(), ended.reason.as_str()), ("Failed", "NodesFailed"));
    list.status = Some(status.clone());
    let remembered = status_of(&list, &[]);
    assert_eq!(remembered.succeeded, status.succeeded);
    assert_eq!(remembered.progress.conditions, status.progress.conditions);
}

#[test]
fn is_not_over_before_every_child_is() {
    let good = with_status("a", &json!({"desired": 2, "succeeded": 2, "completionTime": DONE}));
    let running = with_status("b", &json!({"desired": 0, "active": 0}));
    let status = status_of(&two_images(), &[&good, &running]);
    assert_eq!((status.completed, status.completion_time), (1, None));
    let alone = status_of(&two_images(), &[&good]);
    assert_eq!((alone.completed, alone.completion_time), (1, None));
}

#[test]
fn a_list_that_waits_for_the_feature_gate_has_not_failed() {
    let list = list(&json!({"images": ["a"]}));
    let kinds = |status: ImageListPullJobStatus| {
        let conditions = status.progress.conditions.into_iter();
        conditions
            .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason))
            .collect::<Vec<_>>()
    };
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(kinds(held(&list, "the gate is off", now)), ["Progressing=True Paused"]);
    let refused = kinds(refused(&list, "no such image", now));
    assert_eq!(refused, ["Failed=True InvalidSpec", "Progressing=False Finished"]);
}

fn failure(reason: &str) -> Value {
    json!([{"type": "Failed", "status": "True", "reason": reason}])
}

#[test]
fn an_image_whose_child_ended_is_done_wherever_the_child_is() {
    let mut list = two_images();
    let good = with_status("a", &json!({"desired": 2, "succeeded": 2, "completionTime": DONE}));
    let first = status_of(&list, &[&good]);
    assert_eq!(
        (first.completed, first.succeeded, &first.completion_time),
        (1, 1, &None)
    );
    list.status = Some(first);
    let done = finished(&list);
    assert_eq!(done.keys().map(ImageRef::familiar).collect::<Vec<_>>(), ["a:latest"]);

    let failed = json!({"desired": 2, "failed": 2, "completionTime": DONE, "conditions": failure("NodesFailed")});
    let bad = with_status("b", &failed);
    let second = status_of(&list, &[&bad]);
    assert_eq!((second.completed, second.succeeded), (2, 1));
    assert!(second.completion_time.is_some());
    list.status = Some(second.clone());
    let alone = status_of(&list, &[]);
    assert_eq!(alone.finished_images, second.finished_images);
    assert_eq!(alone.failed_image_statuses, second.failed_image_statuses);
    assert_eq!(alone.progress.conditions, second.progress.conditions);

    list.spec.template.parallelism = Some(serde_json::from_value(json!(7)).unwrap());
    assert!(finished(&list).is_empty(), "after an edit everything is done anew");
}

#[rstest]
#[case::nobody_pulls(0, "Paused", "0 of 2 images are done; a:latest: paused (parallelism 0)")]
#[case::somebody_pulls(1, "Pulling", "0 of 2 images are done")]
fn a_list_says_what_it_waits_for(#[case] active: i32, #[case] reason: &str, #[case] message: &str) {
    let waits =
        json!([{"type": "Progressing", "status": "True", "reason": "Paused", "message": "paused (parallelism 0)"}]);
    let paused = with_status("a", &json!({"desired": 2, "active": active, "conditions": waits}));
    let status = status_of(&two_images(), &[&paused]);
    let condition = &status.progress.conditions[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        (reason, message)
    );
}
