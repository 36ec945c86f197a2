//! The two writes between controller and agent, as a server carries them out.

use larder_api::contract::{spec_patch, status_patch};
use larder_api::node_image::{ImageSpec, ImageStatus, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus};
use larder_api::{NodeImage, NodeImageSpec, NodeImageStatus};
use larder_testkit::unique_name;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{Answer, JSON_PATCH, Server};
use crate::target::Target;

/// What controller and agent use.
fn node_images() -> Resource {
    Kind::NodeImage.stored()
}

/// A spec with these tags of these images.
fn wanted(tags: &[(&str, &str)]) -> NodeImageSpec {
    let mut spec = NodeImageSpec::default();
    for (image, tag) in tags {
        let entry = ImageTagSpec {
            tag: (*tag).to_owned(),
            pull_policy: ImageTagPullPolicy::default(),
            ..ImageTagSpec::default()
        };
        let image: &mut ImageSpec = spec.images.entry((*image).to_owned()).or_default();
        image.tags.push(entry);
    }
    spec
}

/// A status with a result for these tags of these images.
fn reported(tags: &[(&str, &str)]) -> NodeImageStatus {
    let mut status = NodeImageStatus {
        desired: i32::try_from(tags.len()).unwrap(),
        ..NodeImageStatus::default()
    };
    for (image, tag) in tags {
        let result = ImageTagStatus {
            tag: (*tag).to_owned(),
            phase: "Succeeded".to_owned(),
            version: Some(0),
            attempts: Some(0),
            ..ImageTagStatus::default()
        };
        let image: &mut ImageStatus = status.image_statuses.entry((*image).to_owned()).or_default();
        image.tags.push(result);
    }
    status
}

fn typed(object: Value) -> NodeImage {
    serde_json::from_value(object).unwrap()
}

async fn create(server: &Server, spec: NodeImageSpec) -> NodeImage {
    let object = serde_json::to_value(NodeImage::new(&unique_name("node"), spec)).unwrap();
    typed(server.create(node_images(), &object).await.accepted())
}

async fn write_spec(server: &Server, current: &NodeImage, wanted: &NodeImageSpec) -> Answer {
    let patch = spec_patch(current, wanted).expect("a change");
    let name = current.metadata.name.as_deref().unwrap();
    server.patch(node_images(), name, JSON_PATCH, &patch).await
}

async fn send_status(server: &Server, current: &NodeImage, wanted: &NodeImageStatus) -> Answer {
    let uid = current.metadata.uid.as_deref().unwrap();
    let patch = status_patch(uid, current.status.as_ref(), wanted).expect("a change");
    let name = current.metadata.name.as_deref().unwrap();
    server.patch_status_with(node_images(), name, JSON_PATCH, &patch).await
}

async fn write_status(server: &Server, current: &NodeImage, wanted: &NodeImageStatus) -> NodeImage {
    typed(send_status(server, current, wanted).await.accepted())
}

const BEFORE: &[(&str, &str)] = &[("nginx", "1.9.1"), ("registry.example:5000/team/app", "v1")];
const AFTER: &[(&str, &str)] = &[("busybox", "latest"), ("registry.example:5000/team/app", "v2")];

#[rstest]
#[tokio::test]
async fn an_order_is_taken_though_the_agent_wrote_in_between(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let seen = create(&server, wanted(BEFORE)).await;
    let reported = write_status(&server, &seen, &reported(BEFORE)).await;
    assert_ne!(reported.metadata.resource_version, seen.metadata.resource_version);

    let ordered = typed(write_spec(&server, &seen, &wanted(AFTER)).await.accepted());
    assert_eq!(ordered.spec, wanted(AFTER));
    assert_eq!(ordered.metadata.generation, Some(2));
    assert_eq!(ordered.status, reported.status);
}

#[rstest]
#[tokio::test]
async fn an_order_is_refused_if_somebody_ordered_in_between(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let seen = create(&server, wanted(BEFORE)).await;
    let by_another = typed(
        write_spec(&server, &seen, &wanted(&[("by/hand", "v9")]))
            .await
            .accepted(),
    );

    write_spec(&server, &seen, &wanted(AFTER)).await.refused(422);
    let name = seen.metadata.name.as_deref().unwrap();
    let after = typed(server.get(node_images(), name).await.accepted());
    assert_eq!(after.spec, by_another.spec);

    let again = typed(write_spec(&server, &by_another, &wanted(AFTER)).await.accepted());
    assert_eq!(again.spec, wanted(AFTER));
}

/// A writer has to know whether to read again or to give up. Both answers are 422 with reason `Invalid`; only a refusal of
/// the content names causes.
#[rstest]
#[tokio::test]
async fn a_late_order_is_told_from_a_bad_one(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let seen = create(&server, wanted(BEFORE)).await;
    let bad = write_spec(&server, &seen, &wanted(&[("nginx", "")])).await;
    assert_eq!((bad.code, &bad.body["reason"]), (422, &json!("Invalid")));
    assert_eq!(
        bad.body["details"]["causes"][0]["field"],
        "spec.images.nginx.tags[0].tag"
    );

    write_spec(&server, &seen, &wanted(AFTER)).await.accepted();
    let late = write_spec(&server, &seen, &wanted(&[("by/hand", "v9")])).await;
    assert_eq!((late.code, &late.body["reason"]), (422, &json!("Invalid")));
    assert_eq!(late.body["details"].get("causes"), None);
}

#[rstest]
#[tokio::test]
async fn the_first_order_goes_to_an_empty_object(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let object = json!({"apiVersion": node_images().api_version(), "kind": "NodeImage", "metadata": {"name": unique_name("node")}});
    let born = typed(server.create(node_images(), &object).await.accepted());
    let ordered = typed(write_spec(&server, &born, &wanted(BEFORE)).await.accepted());
    assert_eq!(ordered.spec, wanted(BEFORE));
    let withdrawn = typed(
        write_spec(&server, &ordered, &NodeImageSpec::default())
            .await
            .accepted(),
    );
    assert_eq!(withdrawn.spec, NodeImageSpec::default());
}

#[rstest]
#[tokio::test]
async fn a_report_removes_what_left_and_touches_no_order(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let born = create(&server, wanted(AFTER)).await;
    let first = write_status(&server, &born, &reported(BEFORE)).await;
    assert_eq!(first.status.as_ref(), Some(&reported(BEFORE)));

    let second = write_status(&server, &first, &reported(AFTER)).await;
    assert_eq!(second.status, Some(reported(AFTER)));
    assert_eq!(second.spec, wanted(AFTER));
    assert_eq!(second.metadata.generation, Some(1));
    assert_eq!(second.result("nginx", "1.9.1"), None);
}

#[rstest]
#[tokio::test]
async fn a_report_of_nothing_is_counters_alone(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let born = create(&server, NodeImageSpec::default()).await;
    let object = send_status(&server, &born, &NodeImageStatus::default())
        .await
        .accepted();
    assert_eq!(
        object["status"],
        json!({"desired": 0, "succeeded": 0, "failed": 0, "pulling": 0, "waiting": 0})
    );
}

/// An agent that has not seen yet that its NodeImage was deleted and created again.
#[rstest]
#[tokio::test]
async fn a_report_for_a_deleted_object_is_refused_by_its_namesake(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let old = create(&server, wanted(BEFORE)).await;
    let seen = write_status(&server, &old, &reported(BEFORE)).await;
    let name = seen.metadata.name.as_deref().unwrap();
    server.delete(&server.path(node_images(), name), None).await.accepted();
    let anew = serde_json::to_value(NodeImage::new(name, wanted(AFTER))).unwrap();
    server.create(node_images(), &anew).await.accepted();

    for current in [&old, &seen] {
        let late = send_status(&server, current, &reported(AFTER)).await;
        assert_eq!((late.code, &late.body["reason"]), (422, &json!("Invalid")));
    }
    let after = typed(server.get(node_images(), name).await.accepted());
    assert_eq!(after.status, None);
}
