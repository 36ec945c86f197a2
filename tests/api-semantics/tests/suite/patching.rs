//! Patches of the two kinds that every client uses.

use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{JSON_PATCH, MERGE_PATCH, Server, name_of};
use crate::target::Target;

async fn create(server: &Server) -> (Resource, Value) {
    let resource = Kind::ImagePullJob.stored();
    let spec = json!({"image": "nginx", "parallelism": 5, "selector": {"names": ["one", "two"]}});
    let object = server.object(resource, &spec);
    (resource, server.create(resource, &object).await.accepted())
}

#[rstest]
#[case::adds(json!([{"op": "add", "path": "/spec/pin", "value": true}]), "/spec/pin", json!(true))]
#[case::replaces(json!([{"op": "replace", "path": "/spec/parallelism", "value": 7}]), "/spec/parallelism", json!(7))]
#[case::removes(json!([{"op": "remove", "path": "/spec/parallelism"}]), "/spec/parallelism", Value::Null)]
#[case::appends(json!([{"op": "add", "path": "/spec/selector/names/-", "value": "three"}]), "/spec/selector/names", json!(["one", "two", "three"]))]
#[case::inserts(json!([{"op": "add", "path": "/spec/selector/names/0", "value": "zero"}]), "/spec/selector/names", json!(["zero", "one", "two"]))]
#[case::copies(json!([{"op": "copy", "from": "/spec/selector/names/1", "path": "/metadata/labels", "value": null}, {"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]), "/metadata/labels", json!({"a": "b"}))]
#[case::moves(json!([{"op": "move", "from": "/spec/selector/names/0", "path": "/spec/selector/names/1"}]), "/spec/selector/names", json!(["two", "one"]))]
#[case::tests(json!([{"op": "test", "path": "/spec/image", "value": "nginx"}, {"op": "replace", "path": "/spec/image", "value": "busybox"}]), "/spec/image", json!("busybox"))]
#[case::escapes(json!([{"op": "add", "path": "/metadata/annotations", "value": {}}, {"op": "add", "path": "/metadata/annotations/a.b~1c", "value": "d"}]), "/metadata/annotations/a.b~1c", json!("d"))]
#[tokio::test]
async fn by_operations(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] patch: Value,
    #[case] path: &str,
    #[case] want: Value,
) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let patched = server
        .patch(resource, name_of(&object), JSON_PATCH, &patch)
        .await
        .accepted();
    assert_eq!(patched.pointer(path).cloned().unwrap_or_default(), want);
}

/// A patch of less than a kilobyte that would make an object of hundreds of megabytes.
#[rstest]
#[tokio::test]
async fn copies_that_double_an_object_are_refused(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let annotation = json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "x".repeat(5_000)}});
    let copies =
        (0..16).map(|number| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/m{number}")}));
    let patch = Value::Array(std::iter::once(annotation).chain(copies).collect());
    let message = server
        .patch(resource, name_of(&object), JSON_PATCH, &patch)
        .await
        .refused(422);
    assert_eq!(
        message,
        "the server rejected our request due to an error in our request"
    );
}

#[rstest]
#[case::path_that_is_not_there(json!([{"op": "replace", "path": "/spec/nothing/here", "value": 1}]), 422)]
#[case::removes_what_is_not_there(json!([{"op": "remove", "path": "/spec/pin"}]), 422)]
#[case::tests_in_vain(json!([{"op": "test", "path": "/spec/image", "value": "busybox"}]), 422)]
#[case::operation_that_nobody_knows(json!([{"op": "increase", "path": "/spec/parallelism"}]), 422)]
#[case::no_list(json!({"op": "remove", "path": "/spec/parallelism"}), 400)]
#[case::result_that_is_refused(json!([{"op": "replace", "path": "/spec/parallelism", "value": "5%"}]), 422)]
#[tokio::test]
async fn by_operations_that_cannot_be(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] patch: Value,
    #[case] code: u16,
) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    server
        .patch(resource, name_of(&object), JSON_PATCH, &patch)
        .await
        .refused(code);
    let after = server.get(resource, name_of(&object)).await.accepted();
    assert_eq!(after, object);
}

#[rstest]
#[tokio::test]
async fn by_merge(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let patch = json!({"spec": {"parallelism": null, "selector": {"names": ["three"]}, "pin": true}, "metadata": {"labels": {"a": "b"}}});
    let patched = server
        .patch(resource, name_of(&object), MERGE_PATCH, &patch)
        .await
        .accepted();
    assert_eq!(patched["spec"].get("parallelism"), None);
    assert_eq!(patched["spec"]["selector"], json!({"names": ["three"]}));
    assert_eq!(
        (&patched["spec"]["pin"], &patched["spec"]["image"]),
        (&json!(true), &json!("nginx"))
    );
    assert_eq!(patched["metadata"]["labels"], json!({"a": "b"}));

    let nothing = server
        .patch(resource, name_of(&object), MERGE_PATCH, &json!({}))
        .await
        .accepted();
    assert_eq!(
        nothing["metadata"]["resourceVersion"],
        patched["metadata"]["resourceVersion"]
    );
    assert_eq!(nothing["metadata"]["generation"], 2);
}

/// A null in a patch says "take away", also where nothing was: it never becomes part of the object.
#[rstest]
#[tokio::test]
async fn by_merge_with_a_null_in_a_new_list(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePrePullJob.stored();
    let spec = json!({"imagePrePullTemplate": {"images": ["nginx"], "labelSelector": {}}});
    let object = server
        .create(resource, &server.object(resource, &spec))
        .await
        .accepted();
    let patch = json!({"spec": {"imagePrePullTemplate": {"images": [{"repo": "team/app", "tag": null}]}}});
    let patched = server
        .patch(resource, name_of(&object), MERGE_PATCH, &patch)
        .await
        .accepted();
    assert_eq!(
        patched["spec"]["imagePrePullTemplate"]["images"],
        json!([{"repo": "team/app"}])
    );
}

#[rstest]
#[tokio::test]
async fn of_a_version_that_is_past(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let patch = |pin: bool| {
        let version = &object["metadata"]["resourceVersion"];
        json!({"metadata": {"resourceVersion": version}, "spec": {"pin": pin}})
    };
    server
        .patch(resource, name_of(&object), MERGE_PATCH, &patch(true))
        .await
        .accepted();
    let answer = server
        .patch(resource, name_of(&object), MERGE_PATCH, &patch(false))
        .await;
    assert_eq!(answer.body["reason"], "Conflict");
    answer.refused(409);
}

#[rstest]
#[case::uid(json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}), 422, "metadata.uid: Invalid value: \"00000000-0000-4000-8000-000000000000\": field is immutable")]
#[case::name(json!({"metadata": {"name": "another"}}), 400, "the name of the object (another) does not match the name on the URL")]
#[case::namespace(json!({"metadata": {"namespace": "default"}}), 400, "the namespace of the provided object does not match the namespace sent on the request")]
#[tokio::test]
async fn of_what_never_changes(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] patch: Value,
    #[case] code: u16,
    #[case] text: &str,
) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let message = server
        .patch(resource, name_of(&object), MERGE_PATCH, &patch)
        .await
        .refused(code);
    assert!(message.contains(text), "{message}");
}

#[rstest]
#[case::strategic("application/strategic-merge-patch+json")]
#[case::plain("application/json")]
#[tokio::test]
async fn of_another_kind(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] patch_type: &str,
) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let answer = server.patch(resource, name_of(&object), patch_type, &json!({})).await;
    assert_eq!(answer.body["reason"], "UnsupportedMediaType");
    answer.refused(415);
}

#[rstest]
#[tokio::test]
async fn of_what_is_not_there(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::NodeImage.stored();
    server
        .patch(resource, "nobody", MERGE_PATCH, &json!({}))
        .await
        .refused(404);
    server.patch_status(resource, "nobody", &json!({})).await.refused(404);
    let object = json!({"apiVersion": resource.api_version(), "kind": "NodeImage", "metadata": {"name": "nobody"}});
    server.replace(resource, &object).await.refused(404);
}

#[rstest]
#[tokio::test]
async fn a_replace_needs_the_version_and_the_name(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = create(&server).await;
    let mut without_version = object.clone();
    without_version["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let message = server.replace(resource, &without_version).await.refused(422);
    assert!(message.contains("metadata.resourceVersion: Invalid value"), "{message}");
    let path = server.path(resource, "another");
    let message = server
        .send(Method::PUT, &path, "application/json", Some(&object))
        .await
        .refused(400);
    assert!(message.contains("does not match the name on the URL"), "{message}");
}
