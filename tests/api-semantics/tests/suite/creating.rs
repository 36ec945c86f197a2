//! What a server does with the metadata of a new object, and which objects it does not take.

use larder_testkit::unique_name;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{Server, name_of};
use crate::target::Target;

fn job(server: &Server) -> (Resource, Value) {
    let resource = Kind::ImagePullJob.stored();
    (resource, server.object(resource, &json!({"image": "nginx"})))
}

#[rstest]
#[tokio::test]
async fn gives_an_object_its_identity(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, mut object) = job(&server);
    object["metadata"]["uid"] = "of my own".into();
    object["metadata"]["generation"] = 7.into();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    let created = server.create(resource, &object).await.accepted();
    let metadata = &created["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["namespace"], server.namespace());
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(metadata["creationTimestamp"].as_str().unwrap() > "2026");
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
}

#[rstest]
#[tokio::test]
async fn makes_up_a_name(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, mut object) = job(&server);
    object["metadata"] = json!({"generateName": "list-"});
    let first = server.create(resource, &object).await.accepted();
    let second = server.create(resource, &object).await.accepted();
    assert_ne!(name_of(&first), name_of(&second));
    for created in [&first, &second] {
        assert_eq!(created["metadata"]["generateName"], "list-");
        assert_eq!(name_of(created).len(), "list-".len() + 5);
    }
}

#[rstest]
#[case::no_name(json!({"metadata": {"name": null}}), 422, "Invalid", "name or generateName is required")]
#[case::name_in_capitals(json!({"metadata": {"name": "ImagePrepullExample"}}), 422, "Invalid", "a lowercase RFC 1123 subdomain must consist of")]
#[case::another_namespace(json!({"metadata": {"namespace": "kube-system"}}), 400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request")]
#[case::another_kind(json!({"kind": "NodeImage"}), 422, "Invalid", "kind: Invalid value: \"NodeImage\": must be ImagePullJob")]
#[case::another_version(json!({"apiVersion": "apps.kruise.io/v1alpha1"}), 400, "BadRequest", "does not match the expected")]
#[case::label_key(json!({"metadata": {"labels": {"a b": "c"}}}), 422, "Invalid", "metadata.labels: Invalid value: \"a b\"")]
#[case::label_value(json!({"metadata": {"labels": {"a": "b c"}}}), 422, "Invalid", "metadata.labels: Invalid value: \"b c\"")]
#[case::annotation_key(json!({"metadata": {"annotations": {"a b": "c"}}}), 422, "Invalid", "metadata.annotations: Invalid value: \"a b\"")]
#[case::finalizer(json!({"metadata": {"finalizers": ["a b"]}}), 422, "Invalid", "metadata.finalizers")]
#[case::labels_of_another_type(json!({"metadata": {"labels": {"a": 1}}}), 400, "BadRequest", "")]
#[tokio::test]
async fn refuses(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] change: Value,
    #[case] code: u16,
    #[case] reason: &str,
    #[case] text: &str,
) {
    let server = target.server().await;
    let (resource, mut object) = job(&server);
    for (field, value) in change.as_object().unwrap() {
        match value.as_object() {
            None => object[field] = value.clone(),
            Some(members) => {
                for (name, member) in members {
                    object[field][name] = member.clone();
                }
            }
        }
    }
    let answer = server.create(resource, &object).await;
    assert_eq!(answer.body["reason"], reason, "{}", answer.body);
    let message = answer.refused(code);
    assert!(message.contains(text), "{message}");
}

/// kube-apiserver answers 500 here, which nobody relies on.
#[rstest]
#[tokio::test]
async fn refuses_a_version_that_it_did_not_give(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, mut object) = job(&server);
    object["metadata"]["resourceVersion"] = "5".into();
    let answer = server.create(resource, &object).await;
    assert!(answer.code >= 400, "{}", answer.body);
    assert_eq!(
        answer.message(),
        "resourceVersion should not be set on objects to be created"
    );
}

#[rstest]
#[tokio::test]
async fn takes_a_name_once(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = job(&server);
    server.create(resource, &object).await.accepted();
    let answer = server.create(resource, &object).await;
    assert_eq!(answer.body["reason"], "AlreadyExists");
    assert_eq!(answer.body["details"]["name"], object["metadata"]["name"]);
    let message = answer.refused(409);
    let name = name_of(&object);
    assert_eq!(
        message,
        format!("imagepulljobs.apps.kruise.io \"{name}\" already exists")
    );
}

#[rstest]
#[tokio::test]
async fn needs_a_namespace_that_is_there(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, mut object) = job(&server);
    let missing = unique_name("missing");
    object["metadata"]["namespace"] = missing.clone().into();
    let answer = server.post(&resource.path(&missing), &object).await;
    assert_eq!(answer.body["reason"], "NotFound");
    assert_eq!(answer.refused(404), format!("namespaces \"{missing}\" not found"));
}

#[rstest]
#[tokio::test]
async fn only_tries_if_asked_to(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let (resource, object) = job(&server);
    let path = format!("{}?dryRun=All", resource.path(server.namespace()));
    let tried = server.post(&path, &object).await.accepted();
    assert_eq!(tried["spec"]["imagePullPolicy"], "IfNotPresent");
    server.get(resource, name_of(&object)).await.refused(404);

    let created = server.create(resource, &object).await.accepted();
    let path = format!("{}?dryRun=All", server.path(resource, name_of(&object)));
    server.delete(&path, None).await.accepted();
    let still = server.get(resource, name_of(&object)).await.accepted();
    assert_eq!(
        still["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
}
