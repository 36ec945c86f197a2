//! Fields that nobody knows: dropped silently, as Kubernetes does, or refused if the client asks for it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::full;
use crate::kind::Kind;
use crate::target::Target;
use crate::yaml::{merged, yaml};

fn small_spec(kind: Kind) -> Value {
    yaml(match kind {
        Kind::ImagePullJob => "{image: nginx}",
        Kind::ImageListPullJob => "{images: [nginx]}",
        Kind::NodeImage => "{images: {nginx: {tags: []}}}",
        Kind::ImagePrePullJob => "{imagePrePullTemplate: {images: [nginx], labelSelector: {}}}",
    })
}

#[rstest]
#[tokio::test]
async fn unknown_fields_are_dropped(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for resource in Kind::ALL.into_iter().flat_map(Kind::versions) {
        let plain = server.object(resource, &small_spec(resource.kind));
        let known = server.create(resource, &plain).await.accepted();

        let mut more = server.object(
            resource,
            &merged(&small_spec(resource.kind), &json!({"colour": {"is": "blue"}})),
        );
        more["flavour"] = "salty".into();
        let created = server.create(resource, &more).await.accepted();
        assert_eq!(created["spec"], known["spec"], "{resource:?}");
        assert_eq!(created.get("flavour"), None, "{resource:?}");

        let mut status = created.clone();
        status["status"] = merged(&full::objects(resource.kind)[0].status, &json!({"colour": "blue"}));
        let written = server.replace_status(resource, &status).await.accepted();
        assert_eq!(
            written["status"],
            full::objects(resource.kind)[0].status,
            "{resource:?}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn unknown_fields_are_refused_if_the_client_is_strict(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    for resource in Kind::ALL.into_iter().flat_map(Kind::versions) {
        let spec = merged(&small_spec(resource.kind), &json!({"colour": "blue"}));
        let answer = server.create_strictly(resource, &server.object(resource, &spec)).await;
        let message = answer.refused(400);
        assert!(
            message.contains("unknown field \"spec.colour\""),
            "{resource:?}: {message}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn members_of_an_image_object_are_kept_and_the_rest_is_not(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    for resource in Kind::ImagePrePullJob.versions() {
        let spec = yaml(
            "imagePrePullTemplate: {images: [{repo: team/app, anything: {at: all}}], nodeNames: [edge-1], anything: else}",
        );
        let created = server
            .create(resource, &server.object(resource, &spec))
            .await
            .accepted();
        let template = &created["spec"]["imagePrePullTemplate"];
        assert_eq!(template["images"], spec["imagePrePullTemplate"]["images"]);
        assert_eq!(template.get("anything"), None);
    }
}
