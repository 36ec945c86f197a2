//! What may be changed later, and what not.

use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::server::{Answer, MERGE_PATCH, Server, name_of};
use crate::target::Target;

async fn with_secrets(server: &Server, kind: Kind, secrets: &Value) -> String {
    let images = match kind {
        Kind::ImageListPullJob => json!({"images": ["nginx"], "pullSecrets": secrets}),
        _ => json!({"image": "nginx", "pullSecrets": secrets}),
    };
    let mut spec = images;
    if secrets.is_null() {
        spec.as_object_mut().unwrap().remove("pullSecrets");
    }
    let created = server
        .create(kind.stored(), &server.object(kind.stored(), &spec))
        .await
        .accepted();
    name_of(&created).to_owned()
}

#[rstest]
#[case::changed(json!(["one"]), json!(["two"]), false)]
#[case::added(json!(["one"]), json!(["one", "two"]), false)]
#[case::removed(json!(["one", "two"]), json!(["one"]), false)]
#[case::reordered(json!(["one", "two"]), json!(["two", "one"]), false)]
#[case::given_later(Value::Null, json!(["one"]), false)]
#[case::taken_away(json!(["one"]), Value::Null, false)]
#[case::the_same(json!(["one"]), json!(["one"]), true)]
#[case::none_and_an_empty_list(Value::Null, json!([]), true)]
#[case::an_empty_list_and_none(json!([]), Value::Null, true)]
#[tokio::test]
async fn pull_secrets_of_an_image_pull_job_stay(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] before: Value,
    #[case] after: Value,
    #[case] allowed: bool,
) {
    let server = target.server().await;
    for resource in Kind::ImagePullJob.versions() {
        let name = with_secrets(&server, Kind::ImagePullJob, &before).await;
        let patch = json!({"spec": {"pullSecrets": after}});
        let answer = server.patch(resource, &name, MERGE_PATCH, &patch).await;
        if allowed {
            answer.accepted();
        } else {
            let message = answer.refused(422);
            assert!(message.contains("spec.pullSecrets is immutable"), "{message}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn pull_secrets_of_a_list_job_may_change(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for resource in Kind::ImageListPullJob.versions() {
        let name = with_secrets(&server, Kind::ImageListPullJob, &json!(["one"])).await;
        let patch = json!({"spec": {"pullSecrets": ["two"]}});
        let changed = server.patch(resource, &name, MERGE_PATCH, &patch).await.accepted();
        assert_eq!(changed["spec"]["pullSecrets"], json!(["two"]));
    }
}

#[rstest]
#[case::image(json!({"image": "nginx:1.27"}), None)]
#[case::selector(json!({"selector": {"names": ["node-1"]}}), None)]
#[case::parallelism(json!({"parallelism": 0}), None)]
#[case::completion(json!({"completionPolicy": {"type": "Never"}}), None)]
#[case::secrets_untouched_by_another_edit(json!({"pin": true}), None)]
#[case::percent(json!({"parallelism": "5%"}), Some("parallelism does not support percentage"))]
#[case::bad_image(json!({"image": "UPPERCASE/image"}), Some("invalid image"))]
#[case::no_image(json!({"image": null}), Some("spec.image: Required value"))]
#[case::short_deadline(json!({"completionPolicy": {"activeDeadlineSeconds": 5}}), Some("activeDeadlineSeconds must be at least"))]
#[tokio::test]
async fn an_edit_meets_the_same_rules(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] change: Value,
    #[case] refusal: Option<&str>,
) {
    let server = target.server().await;
    for resource in Kind::ImagePullJob.versions() {
        let name = with_secrets(&server, Kind::ImagePullJob, &json!(["one"])).await;
        let answer = server
            .patch(resource, &name, MERGE_PATCH, &json!({"spec": change}))
            .await;
        match refusal {
            None => {
                let edited = answer.accepted();
                assert_eq!(edited["metadata"]["generation"], 2);
                assert_eq!(edited["spec"]["pullSecrets"], json!(["one"]));
            }
            Some(text) => {
                let message = answer.refused(422);
                assert!(message.contains(text), "{message}");
            }
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_field_that_is_removed_gets_its_default_again(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let name = with_secrets(&server, Kind::ImagePullJob, &Value::Null).await;
    let change = async |spec: Value| -> Answer {
        let patch = json!({ "spec": spec });
        server.patch(Kind::ImagePullJob.old(), &name, MERGE_PATCH, &patch).await
    };
    change(json!({"pullPolicy": {"timeoutSeconds": 5}})).await.accepted();
    let edited = change(json!({"pullPolicy": null, "imagePullPolicy": null}))
        .await
        .accepted();
    assert_eq!(
        edited["spec"]["pullPolicy"],
        json!({"timeoutSeconds": 600, "backoffLimit": 3})
    );
    assert_eq!(edited["spec"]["imagePullPolicy"], "IfNotPresent");
}

#[rstest]
#[tokio::test]
async fn a_replace_of_what_was_read_before_another_write_is_a_conflict(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let name = with_secrets(&server, Kind::ImagePullJob, &Value::Null).await;
    let read = server.get(resource, &name).await.accepted();
    server
        .patch(resource, &name, MERGE_PATCH, &json!({"spec": {"parallelism": 2}}))
        .await
        .accepted();
    let message = server.replace(resource, &read).await.refused(409);
    assert!(message.contains("the object has been modified"), "{message}");
}
