use rstest::rstest;

use super::super::tests::deployment;
use super::*;

fn owner(uid: &str) -> Owner {
    Owner {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        namespace: "shop".to_owned(),
    }
}

fn wanted(uid: &str, pods: &Value) -> ImageListPullJob {
    let job = wanted_job(&owner(uid), &[deployment(pods)], &Accounts::new());
    job.unwrap().unwrap().0
}

fn pods(image: &str) -> Value {
    json!({"containers": [{"name": "c", "image": image}], "nodeSelector": {"zone": "a"}})
}

/// The job as the API server has it.
fn stored(job: &ImageListPullJob) -> ImageListPullJob {
    let mut job = job.clone();
    job.metadata.uid = Some("job".to_owned());
    job
}

#[test]
fn the_job_of_a_deployment() {
    let job = serde_json::to_value(wanted("u", &pods("web:1"))).unwrap();
    assert_eq!(
        job["metadata"],
        json!({
            "name": "warm-deployment-web", "namespace": "shop", "labels": {"larder.dev/warm": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true}],
        })
    );
    let spec = &job["spec"];
    assert_eq!(
        (&spec["images"], &spec["completionPolicy"]),
        (&json!(["web:1"]), &json!({"type": "Never"}))
    );
    assert_eq!(spec["selector"], json!({"matchLabels": {"zone": "a"}}));
}

#[test]
fn without_images_there_is_no_job() {
    assert!(wanted_job(&owner("u"), &[], &Accounts::new()).unwrap().is_none());
}

#[rstest]
#[case::short("CronJob", "report", "warm-cronjob-report")]
#[case::just_fits("DaemonSet", &"a".repeat(48), &format!("warm-daemonset-{}", "a".repeat(48)))]
fn names(#[case] kind: &str, #[case] name: &str, #[case] want: &str) {
    assert_eq!(job_name(kind, name), want);
}

#[test]
fn long_names_are_cut_and_stay_different() {
    let long = "a".repeat(252);
    let [one, other] = ["x", "y"].map(|end| job_name("Deployment", &format!("{long}{end}")));
    assert!(one.len() <= NAME_MAX && other.len() <= NAME_MAX);
    assert_ne!(one, other);
    assert_ne!(job_name("Deployment", &long), job_name("DaemonSet", &long));
}

#[test]
fn steps() {
    let first = wanted("u", &pods("web:1"));
    assert_eq!(step(None, None), Step::Nothing);
    assert_eq!(step(Some(&first), None), Step::Create(Box::new(first.clone())));
    assert_eq!(step(Some(&first), Some(&stored(&first))), Step::Nothing);
    let uid = "job".to_owned();
    assert_eq!(step(None, Some(&stored(&first))), Step::Delete { uid: uid.clone() });
    let namesake = wanted("another", &pods("web:1"));
    assert_eq!(step(Some(&namesake), Some(&stored(&first))), Step::Delete { uid });

    let mut leaving = stored(&first);
    leaving.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    assert_eq!(
        step(None, Some(&leaving)),
        Step::Nothing,
        "its end is seen, and looked at again"
    );
}

#[test]
fn what_the_template_says_is_followed_and_what_people_set_is_kept() {
    let first = wanted("u", &pods("web:1"));
    let mut there = stored(&first);
    there.spec.template.parallelism = Some(IntOrString::Int(50));
    there.spec.template.pin = Some(true);
    assert_eq!(step(Some(&first), Some(&there)), Step::Nothing);

    let second = wanted("u", &json!({"containers": [{"name": "c", "image": "web:2"}]}));
    assert_eq!(
        step(Some(&second), Some(&there)),
        Step::Patch(json!([
            {"op": "test", "path": "/metadata/uid", "value": "job"},
            {"op": "add", "path": "/spec/images", "value": ["web:2"]},
            {"op": "remove", "path": "/spec/selector"},
        ]))
    );
}

#[test]
fn jobs_of_other_people_are_left_alone() {
    let first = wanted("u", &pods("web:1"));
    let mut foreign = stored(&first);
    foreign.metadata.owner_references = None;
    assert_eq!(step(None, Some(&foreign)), Step::Nothing);
    assert_eq!(step(Some(&first), Some(&foreign)), Step::NameTaken);
    let mut unlabelled = stored(&first);
    unlabelled.metadata.labels = None;
    assert_eq!(step(None, Some(&unlabelled)), Step::Nothing);
}
