//! How objects go: at once, or when the last finalizer is taken away.

use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{MERGE_PATCH, Server, name_of};
use crate::target::Target;

async fn create(server: &Server, resource: Resource, metadata: &Value) -> Value {
    let mut object = server.object(resource, &json!({"image": "nginx"}));
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    server.create(resource, &object).await.accepted()
}

#[rstest]
#[tokio::test]
async fn an_object_is_gone_at_once(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for resource in Kind::ImagePullJob.versions() {
        let job = create(&server, resource, &json!({})).await;
        let path = server.path(resource, name_of(&job));
        let answer = server.delete(&path, None).await.accepted();
        assert_eq!(
            answer,
            json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {
                    "name": name_of(&job),
                    "group": "apps.kruise.io",
                    "kind": "imagepulljobs",
                    "uid": job["metadata"]["uid"],
                },
            })
        );
        let message = server.get(resource, name_of(&job)).await.refused(404);
        assert_eq!(
            message,
            format!("imagepulljobs.apps.kruise.io \"{}\" not found", name_of(&job))
        );
        server.delete(&path, None).await.refused(404);
    }
}

#[rstest]
#[tokio::test]
async fn a_finalizer_holds_an_object(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let held = json!({"finalizers": ["apps.kruise.io/deletion-protection"]});
    let job = create(&server, resource, &held).await;
    let path = server.path(resource, name_of(&job));
    let going = server.delete(&path, None).await.accepted();
    assert_eq!(going["kind"], "ImagePullJob");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(going["metadata"]["generation"], 2);

    let again = server.delete(&path, None).await.accepted();
    assert_eq!(
        again["metadata"]["deletionTimestamp"],
        going["metadata"]["deletionTimestamp"]
    );
    assert_eq!(again["metadata"]["generation"], 2);

    let more = json!({"metadata": {"finalizers": ["apps.kruise.io/deletion-protection", "example.com/another"]}});
    let refused = server
        .patch(resource, name_of(&job), MERGE_PATCH, &more)
        .await
        .refused(422);
    assert!(
        refused.contains("no new finalizers can be added if the object is being deleted"),
        "{refused}"
    );

    let released = json!({"metadata": {"finalizers": null}});
    server
        .patch(resource, name_of(&job), MERGE_PATCH, &released)
        .await
        .accepted();
    server.get(resource, name_of(&job)).await.refused(404);
}

#[rstest]
#[tokio::test]
async fn only_the_object_that_is_meant_goes(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let job = create(&server, resource, &json!({})).await;
    let path = server.path(resource, name_of(&job));
    let options =
        |preconditions: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    let another = options(json!({"uid": "00000000-0000-4000-8000-000000000000"}));
    let answer = server.delete(&path, Some(&another)).await;
    assert_eq!(answer.body["reason"], "Conflict");
    answer.refused(409);
    server
        .delete(&path, Some(&options(json!({"resourceVersion": "1"}))))
        .await
        .refused(409);
    let this = options(json!({"uid": job["metadata"]["uid"]}));
    server.delete(&path, Some(&this)).await.accepted();
}

#[rstest]
#[tokio::test]
async fn many_go_by_label(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let kept = create(&server, resource, &json!({"labels": {"batch": "one"}})).await;
    for _ in 0..3 {
        create(&server, resource, &json!({"labels": {"batch": "two"}})).await;
    }
    let collection = resource.path(server.namespace());
    let answer = server
        .delete(&format!("{collection}?labelSelector=batch%3Dtwo"), None)
        .await
        .accepted();
    assert_eq!(answer["kind"], "ImagePullJobList");
    assert_eq!(answer["items"].as_array().unwrap().len(), 3);
    let left = server.read(&collection).await.accepted();
    let names: Vec<&str> = left["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, [name_of(&kept)]);
}
