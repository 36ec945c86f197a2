mod nodes;
mod property;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// A Deployment called `web` in `shop` whose pods are like this.
pub(super) fn deployment(pods: &Value) -> Workload {
    named("web", "shop", pods)
}

pub(super) fn named(name: &str, namespace: &str, pods: &Value) -> Workload {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": pods}},
    });
    read(&object, "unused").unwrap().unwrap()
}

fn list(workloads: &[Workload]) -> ImageList {
    image_list(workloads, &Accounts::new()).unwrap()
}

fn of(images: &[&str]) -> Value {
    let containers = images.iter().map(|image| json!({"name": "c", "image": image}));
    json!({"containers": containers.collect::<Vec<_>>()})
}

#[rstest]
#[case::pod("v1", "Pod", json!({"spec": of(&["a:1"])}))]
#[case::pod_template("v1", "PodTemplate", json!({"template": {"spec": of(&["a:1"])}}))]
#[case::replication_controller("v1", "ReplicationController", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::deployment("apps/v1", "Deployment", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::stateful_set("apps/v1", "StatefulSet", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::daemon_set("apps/v1", "DaemonSet", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::replica_set("apps/v1", "ReplicaSet", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::job("batch/v1", "Job", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
#[case::cron_job("batch/v1", "CronJob", json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": of(&["a:1"])}}}}}))]
#[case::of_another_project("apps.kruise.io/v1alpha1", "CloneSet", json!({"spec": {"template": {"spec": of(&["a:1"])}}}))]
fn kinds(#[case] api_version: &str, #[case] kind: &str, #[case] mut object: Value) {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": "web"});
    let workload = read(&object, "default").unwrap().unwrap();
    assert_eq!(
        (workload.title(), &*workload.namespace),
        (format!("{kind} web"), "default")
    );
    assert_eq!(list(&[workload]).images, ["a:1"]);
}

#[rstest]
#[case::service(json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": []}}))]
#[case::template_of_something_else(json!({"apiVersion": "x/v1", "kind": "Certificate", "spec": {"template": {"spec": {"dnsNames": []}}}}))]
#[case::nothing_at_all(json!({"apiVersion": "x/v1", "kind": "Empty"}))]
fn objects_without_pods(#[case] object: Value) {
    assert_eq!(read(&object, "default").unwrap(), None);
}

#[rstest]
#[case::no_template(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}), "spec.template.spec is missing")]
#[case::null(json!({"apiVersion": "v1", "kind": "Pod", "spec": null}), "spec is missing")]
#[case::wrong_type(json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": "a"}}}}}}),
                   "spec.jobTemplate.spec.template.spec: invalid type: string \"a\", expected a sequence")]
fn templates_that_cannot_be_read(#[case] object: Value, #[case] says: &str) {
    assert_eq!(read(&object, "default").unwrap_err().to_string(), says);
}

#[test]
fn every_image_of_a_pod_once() {
    let pods = json!({
        "initContainers": [{"name": "i", "image": "setup:1"}],
        "containers": [{"name": "a", "image": "docker.io/library/web:1"}, {"name": "b", "image": "web:1"}, {"name": "c", "image": "side:1"}],
        "ephemeralContainers": [{"name": "e", "image": "debug:1"}],
        "volumes": [{"name": "v", "image": {"reference": "data:1"}}, {"name": "w", "emptyDir": {}}],
    });
    let other = named("other", "shop", &of(&["side:1", "more:1"]));
    let list = list(&[deployment(&pods), other]);
    let want = [
        "data:1",
        "setup:1",
        "docker.io/library/web:1",
        "side:1",
        "debug:1",
        "more:1",
    ];
    assert_eq!(list.images, want);
    assert_eq!((list.namespace.as_str(), list.notes), ("shop", Vec::new()));
}

#[rstest]
#[case::fixed_tag("a:1", None, Some(false))]
#[case::no_tag("a", None, Some(true))]
#[case::latest("a:latest", None, Some(true))]
#[case::digest(
    "a@sha256:0123456789012345678901234567890123456789012345678901234567890123",
    None,
    Some(false)
)]
#[case::asked_for("a:1", Some("Always"), Some(true))]
#[case::latest_and_there("a", Some("IfNotPresent"), Some(false))]
#[case::never("a:1", Some("Never"), None)]
fn pull_policies(#[case] image: &str, #[case] policy: Option<&str>, #[case] always: Option<bool>) {
    let pods = json!({"containers": [{"name": "c", "image": image, "imagePullPolicy": policy}]});
    let list = image_list(&[deployment(&pods)], &Accounts::new());
    let spec = list
        .as_ref()
        .ok()
        .map(|list| (list.always, list.spec().image_pull_policy));
    let policy = |always| if always { "Always" } else { "IfNotPresent" };
    assert_eq!(spec, always.map(|always| (always, Some(policy(always).to_owned()))));
}

#[test]
fn what_is_left_out_is_said() {
    let pods = json!({"containers": [
        {"name": "a", "image": "local:1", "imagePullPolicy": "Never"},
        {"name": "b", "image": "auto"},
        {"name": "c"},
        {"name": "d", "image": "Not An Image"},
        {"name": "e", "image": "web:1"},
    ]});
    let list = list(&[deployment(&pods)]);
    assert_eq!(list.images, ["web:1"]);
    let says: Vec<String> = list.notes.iter().map(ToString::to_string).collect();
    let begins = [
        "Deployment web: local:1 is left out, because its imagePullPolicy is Never",
        "Deployment web: a container without an image of its own is left out, ",
        "Deployment web: Not An Image is no image: ",
    ];
    assert_eq!(says.len(), begins.len(), "{says:#?}");
    assert!(
        says.iter().zip(begins).all(|(says, begin)| says.starts_with(begin)),
        "{says:#?}"
    );
}

#[test]
fn pull_secrets_are_the_pods_own_or_those_of_their_account() {
    let own = json!({"containers": [{"name": "c", "image": "a:1"}], "imagePullSecrets": [{"name": "b"}, {"name": "a"}], "serviceAccountName": "robot"});
    let of_account = json!({"containers": [{"name": "c", "image": "b:1"}], "serviceAccountName": "robot"});
    let of_default = of(&["c:1"]);
    let account = |name: &str| ("shop".to_owned(), name.to_owned());
    let accounts: Accounts = [
        (account("robot"), vec!["c".to_owned(), "a".to_owned()]),
        (account("default"), vec!["d".to_owned()]),
    ]
    .into();
    let secrets = |pods: &[&Value]| {
        let workloads: Vec<Workload> = pods.iter().map(|pods| deployment(pods)).collect();
        let asked: Vec<String> = service_accounts(&workloads).into_iter().map(|(_, name)| name).collect();
        (
            asked,
            image_list(&workloads, &accounts).unwrap().spec().template.pull_secrets,
        )
    };
    let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.to_owned()).collect() };
    assert_eq!(secrets(&[&own]), (texts(&[]), texts(&["a", "b"])));
    assert_eq!(secrets(&[&of_account]), (texts(&["robot"]), texts(&["a", "c"])));
    assert_eq!(
        secrets(&[&own, &of_default]),
        (texts(&["default"]), texts(&["a", "b", "d"]))
    );
}

#[test]
fn a_job_is_in_the_namespace_of_its_secrets() {
    let plain = named("web", "shop", &of(&["a:1"]));
    let with_secret = |name: &str, namespace: &str| {
        let pods = json!({"containers": [{"name": "c", "image": "b:1"}], "imagePullSecrets": [{"name": "s"}]});
        named(name, namespace, &pods)
    };
    assert_eq!(list(&[plain.clone(), with_secret("api", "back")]).namespace, "back");
    let refused = image_list(
        &[with_secret("api", "back"), plain, with_secret("ui", "front")],
        &Accounts::new(),
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the workloads use pull secrets of the namespaces back and front, and a job can use those of its own namespace only; \
         use one job for each namespace"
    );
}

#[test]
fn a_job_holds_only_so_many_images() {
    let images: Vec<String> = (0..256).map(|number| format!("a:{number}")).collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    assert_eq!(list(&[deployment(&of(&images[1..]))]).images.len(), 255);
    let refused = image_list(&[deployment(&of(&images))], &Accounts::new());
    assert!(matches!(refused, Err(Refusal::TooManyImages(256))), "{refused:?}");
    let refused = image_list(&[deployment(&of(&[]))], &Accounts::new());
    assert!(matches!(refused, Err(Refusal::NoImages)), "{refused:?}");
}
